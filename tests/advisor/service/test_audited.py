"""Everything that changes something or recommends something is in the audit log, once, with what it is about."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from advisor.access.audit import Operation
from advisor.domain import Host, Instance, Inventory, PlacementRequest, PlanRequest, ProbeReport, WorkloadProfile
from advisor.errors import AdvisorError, RefusedByGate
from advisor.service import Advisor
from profiler.observed import Colocation, MetricSample, Outcome, ProbeResult, Quantity
from tests.advisor.service.service_clock import Clock
from tests.models.made_models import make

# Covered by tests of their own: tests/advisor/store/test_tokens.py, the incremental sync, the conversation with an
# agent, histories from a Prometheus, anomalies, those of kubernetes in integrations/.
ELSEWHERE = {
    "placement.release", "alarm.raise", "alarm.end", "token.create", "token.revoke", "history.take",
    "inventory.announce", "inventory.follow", "session.begin", "session.end", "session.refuse",
    "change.plan", "change.approve", "change.carry_out", "change.undo", "change.measure",
    "change.freeze", "change.thaw",
}  # fmt: skip


def reported(advisor: Advisor) -> list[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
    """Oldest first."""
    return [(one.operation, one.objects, one.detail) for one in advisor.access.audit(limit=1000).items][::-1]


@pytest.fixture
def small(advisor: Advisor, clock: Clock) -> Advisor:
    """h1 with `a` on it; the clock stands still, and still the order of entries is sure."""
    advisor.inventory.put(
        Inventory((Host("h1", "kvm", 4, 8192),), (Instance("a", host="h1"),), (WorkloadProfile("web", {"cpu": 80.0}),)),
        mode="replace",
        generation=None,
    )
    return advisor


def test_changes_of_the_inventory_name_what_they_are_about_and_the_generation_they_made(small: Advisor) -> None:
    steps = (
        lambda: small.inventory.put_host(Host("h2", "kvm", 4, 8192)),
        lambda: small.inventory.put_instance(Instance("b", host="h2")),
        lambda: small.inventory.put_workload(WorkloadProfile("big blob", {"cpu": 10.0})),
        lambda: small.inventory.delete_instance("b"),
        lambda: small.inventory.delete_workload("big blob"),
        lambda: small.inventory.delete_host("h2"),
    )
    seen = []
    for step in steps:
        step()
        newest = small.access.audit(limit=1).items[0]
        seen.append((newest.operation, newest.objects, newest.detail))
    first = ("inventory.put", (), {"generation": 1, "mode": "replace", "hosts": 1, "instances": 1, "workloads": 1})
    assert first in reported(small)
    assert seen == [
        ("host.put", ("h2",), {"generation": 2}),
        ("instance.put", ("b", "h2"), {"generation": 3}),
        ("workload.put", ("big blob",), {"generation": 4}),
        ("instance.delete", ("b",), {"generation": 5}),
        ("workload.delete", ("big blob",), {"generation": 6}),
        ("host.delete", ("h2",), {"generation": 7}),
    ]


def test_what_is_refused_changes_nothing_and_is_not_reported(small: Advisor) -> None:
    before = reported(small)
    for step in (
        lambda: small.inventory.delete_host("h1"),
        lambda: small.inventory.delete_host("nope"),
        lambda: small.inventory.put_instance(Instance("b", host="nope")),
        lambda: small.inventory.put(Inventory(), mode="replace", generation=99),
        lambda: small.models.activate("nope"),
    ):
        with pytest.raises(AdvisorError):
            step()
    assert reported(small) == before


def test_what_was_measured_is_reported_once_for_all_of_it(small: Advisor, clock: Clock) -> None:
    now = clock().timestamp()
    samples = [MetricSample("h1", "a", "instance", "cpu", 50.0, now - number) for number in range(100)]
    small.telemetry.ingest([*samples, MetricSample("nope", None, "host", "event", 1.0, now)])
    small.telemetry.ingest(samples)
    runs = Colocation("run-1", "h1", "1", (Outcome(Instance("a", workload="web"), "throughput", 9.0, 8.0, "req/s"),))
    small.outcomes.record_colocation(runs)
    small.outcomes.record_colocation(runs)
    probed = ProbeResult("cpu-share", {"share": Quantity(76.3, "%")}, "share", {}, ())
    small.telemetry.take_probes([ProbeReport(host, probed, clock()) for host in ("h1", "nope")])
    assert [entry for entry in reported(small) if entry[0] != "inventory.put"] == [
        ("samples.add", (), {"accepted": 100, "duplicate": 0, "dropped": 1}),
        ("samples.add", (), {"accepted": 0, "duplicate": 100, "dropped": 0}),
        ("colocation.add", ("run-1",), {}),
        ("probes.add", (), {"accepted": 1, "older": 0, "dropped": 1}),
    ]


def test_every_recommendation_is_an_event_with_instance_host_and_whether_that_is_held(small: Advisor) -> None:
    dry = small.placements.place(PlacementRequest(Instance("n", vcpus=1), dry_run=True)).recommendation
    held = small.placements.place(PlacementRequest(Instance("n", vcpus=1))).recommendation
    none = small.placements.place(PlacementRequest(Instance("n", vcpus=1, memory_mb=10**9))).recommendation
    plan = small.plans.make(PlanRequest(instances=(Instance("m", vcpus=1),)))
    small.outcomes.record(held.id, "h1", {"n": 0.9})
    small.outcomes.record(held.id, "h1", {"n": 0.9})
    assert reported(small)[1:] == [
        ("placement.answer", (dry.id, "n", "h1"), {"host": "h1", "dry_run": True, "held": False, "model": "analytic"}),
        ("placement.answer", (held.id, "n", "h1"), {"host": "h1", "dry_run": False, "held": True, "model": "analytic"}),
        ("placement.answer", (none.id, "n"), {"host": None, "dry_run": False, "held": False, "model": "analytic"}),
        ("plan.answer", (plan.id,), {"kind": "admit", "instances": 1}),
        ("outcome.put", (held.id, "h1"), {}),
    ]


def test_answers_to_schedulers_are_audited_though_nothing_is_stored(small: Advisor) -> None:
    small.inventory.put_host(Host("h2", "kvm", 4, 8192))
    fits, huge = PlacementRequest(Instance("n")), PlacementRequest(Instance("m", memory_mb=10**9), hosts=("h1", "h2"))
    small.placements.in_turn([fits, huge], hold=False)
    small.placements.in_turn([fits], hold=False, holds_next=True)  # a caller that holds is reported when it does
    small.placements.in_turn([huge], hold=False, holds_next=True)
    small.placements.evacuation("h1")
    small.inventory.put_host(Host("h2", "kvm", 4, 8192, enabled=False))
    small.placements.evacuation("h1", ["h2"])
    small.placements.improvements({"a": ["h1", "h2"]}, most=5, within_s=60.0)
    assert [entry for entry in reported(small) if entry[0] not in {"inventory.put", "host.put"}] == [
        ("placement.look", ("n", "h2"), {"host": "h2", "rejected": 0, "model": "analytic"}),
        ("placement.look", ("m",), {"host": None, "rejected": 2, "model": "analytic"}),
        ("placement.look", ("m",), {"host": None, "rejected": 2, "model": "analytic"}),
        ("moves.answer", ("h1", "a", "h2"), {"moves": 1, "stuck": 0, "model": "analytic"}),
        ("moves.answer", ("h1",), {"moves": 0, "stuck": 1, "model": "analytic"}),
        ("moves.answer", (), {"moves": 0, "stuck": 0, "model": "analytic"}),
    ]
    assert small.outcomes.page().items == ()


def test_pods_that_a_scheduler_placed_are_reported_together(small: Advisor) -> None:
    small.inventory.put_host(Host("h2", "kvm", 4, 8192))
    small.placements.hold([Instance("n", host="h1"), Instance("m", host="h2"), Instance("o", host="gone")])
    assert reported(small)[-1] == ("placement.hold", ("n", "m"), {"hosts": 2})


def test_every_change_of_the_registry_is_reported_and_an_activation_that_the_gate_refused(
    small: Advisor, trained: Path, tmp_path: Path
) -> None:
    version = small.models.register(trained).version
    small.models.judge(version)
    small.models.shadow(version)
    small.models.activate(version)
    small.models.roll_back()
    bad = small.models.register(make(trained, tmp_path / "made", "m-bad", 0.2)).version
    with pytest.raises(RefusedByGate):
        small.models.activate(bad)
    assert [
        (what, names, detail.get("cause"), detail.get("before")) for what, names, detail in reported(small)[1:]
    ] == [
        ("model.register", (version,), None, None),
        ("model.judge", (version,), None, None),
        ("model.shadow", (version,), None, None),
        ("model.activate", (version,), "activate", "analytic"),
        ("model.activate", ("analytic",), "rollback", version),
        ("model.register", (bad,), None, None),
        ("model.refuse", (bad,), None, None),
    ]
    assert [detail for *_, detail in reported(small)[-2:]] == [{"passed": False}, {}]


def test_no_operation_is_forgotten_here() -> None:
    said = Path(__file__).read_text(encoding="utf-8")
    assert {one for one in get_args(Operation) if f'("{one}"' not in said} == ELSEWHERE
