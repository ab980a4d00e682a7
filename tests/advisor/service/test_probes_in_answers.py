"""Stored results of probes: which count, what they change, and that answers with them are nearer to what is right."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import mean

import pytest

from advisor import offline
from advisor.domain import Host, Instance, Inventory, ProbeReport
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import HELD_BACK, ProbeResult, Quantity
from tests.advisor.service import hosts_to_probe
from tests.advisor.service.hosts_to_probe import Ratios
from tests.advisor.service.service_clock import Clock
from tests.models.made_models import limit_trees

IDLE = {"load": "0.10 2.00 2.00", "cpus": "0-3"}
CAPPED = f"{HELD_BACK} loop ran 60.1 % of the time: processes beside it, interrupts, a cap or steal took the rest"


@pytest.fixture
def hosts(advisor: Advisor) -> None:
    some = tuple(Host(name, "kvm", 4, 8192) for name in ("h1", "h2"))
    advisor.inventory.put(Inventory(some, (Instance("web-1", host="h1"),)), mode="replace", generation=None)


def report(clock: Clock, value: float = 60.0, probe: str = "cpu-share.share", **more: object) -> ProbeReport:
    name, _, main = probe.partition(".")
    marks, found = more.pop("marks", ()), more.pop("found", IDLE)
    result = ProbeResult(name, {main: Quantity(value, "1")}, main, found, marks)  # type: ignore[arg-type]
    return replace(ProbeReport("h1", result, clock()), **more)  # type: ignore[arg-type]


def known(advisor: Advisor, clock: Clock) -> tuple[dict[str, float], int]:
    """What models read that probes found on h1, and the generation."""
    view, _ = advisor._cache.at(clock())
    at = view.snapshot.index("h1")
    assert at is not None
    return dict(view.snapshot.hosts[at].probed), view.counts.inventory


@pytest.mark.parametrize(
    "one",
    [
        {"instance": "web-1"},
        {"probe": "hops.hop1_median"},
        {"marks": ("the hypervisor below took 3.1 % of a CPU meanwhile (steal)",)},
        {"marks": ("stopped before its end", CAPPED)},
        {"found": {"load": "2.50 0.10 0.10", "cpus": "0-3"}},
        {"probe": "tcp.throughput", "found": IDLE | {"peer": "127.0.0.1 (this machine)"}},
        {"probe": "rtt.median", "peer": "h1"},
    ],
)
@pytest.mark.usefixtures("hosts")
def test_a_result_that_says_nothing_of_the_host_alone_does_not_count(
    advisor: Advisor, clock: Clock, one: dict[str, object]
) -> None:
    before = known(advisor, clock)
    assert advisor.telemetry.take_probes([report(clock, **one)])["accepted"] == 1  # type: ignore[arg-type]
    assert known(advisor, clock) == before


@pytest.mark.usefixtures("hosts")
def test_what_counts_is_known_at_once_and_forgotten_with_its_result(advisor: Advisor, clock: Clock) -> None:
    nothing, generation = known(advisor, clock)
    assert nothing == {}
    rates = [report(clock, rate, "tcp.throughput", peer=peer) for rate, peer in ((90.0, "h2"), (94.0, ""))]
    advisor.telemetry.take_probes([report(clock, marks=(CAPPED,)), *rates])
    assert known(advisor, clock) == ({"cpu-share.share": 60.0, "tcp.throughput": 92.0}, generation + 1)
    clock.turn(60)
    advisor.telemetry.take_probes([report(clock, marks=(CAPPED,))])  # the same again is no news
    assert known(advisor, clock)[1] == generation + 1
    host = advisor.inventory.host("h1")
    advisor.inventory.put_host(replace(host, labels={"zone": "a"}, probed={"rtt.median": 1.0}))
    assert known(advisor, clock) == ({"cpu-share.share": 60.0, "tcp.throughput": 92.0}, generation + 2)
    clock.turn(60)
    advisor.telemetry.take_probes([report(clock, marks=("stopped before its end",))])
    assert known(advisor, clock) == ({"tcp.throughput": 92.0}, generation + 3)
    clock.turn(timedelta(days=90).total_seconds())
    advisor.prune()
    assert known(advisor, clock) == ({}, generation + 4)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for hosts that are either capped or not."""
    limit_trees(monkeypatch, 40, boosters=1, folds=3)


@pytest.mark.usefixtures("few_trees")
def test_an_answer_about_a_capped_host_is_nearer_to_what_is_right_with_its_results(tmp_path: Path) -> None:
    learned_from, new = hosts_to_probe.real_hosts()
    models = hosts_to_probe.train(learned_from, tmp_path)
    without, unprobed, probed = hosts_to_probe.serve(models, new, tmp_path)
    right = hosts_to_probe.right(new)
    capped = {host.said.id for host in new if host.cores < 1}

    def error(reported: Ratios, hosts: set[str]) -> float:
        return mean(abs(reported[host] - right[host]) for host in hosts)

    assert unprobed != probed
    assert error(probed, capped) < 0.85 * error(unprobed, capped)
    assert error(probed, capped) < 0.5 * error(without, capped)
    assert error(probed, set(right)) < error(without, set(right))
    cloud = hosts_to_probe.cloud(hosts_to_probe.as_probed(new))
    reported = offline.where(
        cloud, hosts_to_probe.question(len(new)), model=models[1], settings=Settings(state_dir=tmp_path)
    )
    assert {one.host: one.new_vm.throughput_ratio.expected for one in reported.candidates} == probed
