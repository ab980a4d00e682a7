"""Right-sizing on what is stored: few statements read what a whole cloud used, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from advisor.domain import Host, Instance, Inventory, PlanRequest
from advisor.planning import rightsizing
from advisor.planning.plan_context import PlanContext
from advisor.service import Advisor
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock
from tests.advisor.store.test_usage import statements

HOSTS = tuple(Host(f"h{at}", "kvm", pcpus=8, memory_mb=65_536) for at in range(5))
THERE = tuple(Instance(f"i{at}", 4, 1024.0, host=f"h{at % 5}") for at in range(20))


@pytest.fixture
def measured(advisor: Advisor, clock: Clock) -> Advisor:
    """Every instance used 0.4 of its four CPUs for an hour."""
    advisor.inventory.put(Inventory(HOSTS, THERE), mode="replace", generation=None)
    now = clock().timestamp()
    for one in THERE:
        advisor.telemetry.ingest([
            MetricSample(one.host or "", one.id, "instance", metric, 40.0, now - 10 * at)
            for at in range(400) for metric in ("cpu", "ipc")
        ])  # fmt: skip
    return advisor


@pytest.fixture
def asked() -> Iterator[list[str]]:
    with statements() as found:
        yield found


def test_what_a_whole_cloud_used_is_read_in_one_statement_a_host(measured: Advisor, asked: list[str]) -> None:
    found = measured.plans.make(PlanRequest(kind="right_size"))
    assert len(found.steps) == len(THERE)
    assert all("used up to 0.40 CPUs in 95 % of 400 windows" in one.why for one in found.steps)
    assert len(asked) == len(HOSTS)


def test_a_large_cloud_is_read_piece_by_piece_and_no_further_than_the_time_lasts(
    measured: Advisor, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rightsizing, "USAGE_BATCH", 8)
    whole = measured.plans.make(PlanRequest(kind="right_size"))
    assert len(asked) == len(HOSTS), "two hosts of four instances at a time, each host once"
    assert len(whole.steps) == len(THERE)
    asked.clear()
    monkeypatch.setattr(PlanContext, "left_s", property(lambda _: 0.0))
    late = measured.plans.make(PlanRequest(kind="right_size"))
    assert late.notes == ("Time limit reached before 5 of 5 hosts were looked at.",)
    assert asked == []
