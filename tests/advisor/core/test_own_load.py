"""A host's own work counts as a consumer of its CPUs: as a file says, and as its agent measures it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from advisor.domain import PlacementRequest
from advisor.errors import InvalidInput
from advisor.inventories.static import load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import demands
from models.physics.peak_demand import demand_sums
from models.physics.prior import solve
from profiler.demand import Demand
from profiler.observed import Host, Instance, MetricSample
from tests.servers.fixtures import sqlite_with_tables

SPAN_S = 30.0
BUILD = Instance(
    "build", vcpus=6, memory_mb=4096, demand={"cpu": Demand(5.5, windows=100.0, open_loop=1.0, origin="measured")}
)
TABLE = ProfileTable.build(())


def _kept(host: Host, *instances: Instance) -> float:
    return float(solve(build_batch([(host, instances)], TABLE)).throughput[0, 0])


@pytest.mark.parametrize("kind", ["kvm", "lxc"])
def test_own_work_takes_cpus_as_a_resident_of_that_demand_does(kind: str) -> None:
    host = Host("h", kind, pcpus=8, memory_mb=65_536)  # type: ignore[arg-type]
    steady = Demand(7.0, windows=100.0, origin="measured", open_loop=1.0)
    beside = _kept(host, BUILD, Instance("services", vcpus=7, demand={"cpu": steady}))
    own = _kept(replace(host, own_cpus=7.0), BUILD)
    assert _kept(host, BUILD) == pytest.approx(1.0, abs=0.01)
    assert own < 0.9
    assert own == pytest.approx(beside, abs=0.12)


def test_more_own_work_never_helps_and_none_changes_nothing_for_other_hosts_of_a_batch() -> None:
    host = Host("h", "kvm", pcpus=8, memory_mb=65_536)
    hosts = [replace(host, own_cpus=own) for own in (0.0, 1.0, 4.0, 6.0, 8.0)]
    kept = solve(build_batch([(one, (BUILD,)) for one in hosts], TABLE)).throughput[:, 0]
    assert kept[0] == _kept(host, BUILD)
    assert (np.diff(kept) <= 1e-9).all()
    assert kept[-1] < 0.7


def test_own_work_is_part_of_what_a_host_asks_of_its_cpus() -> None:
    host = Host("h", "kvm", pcpus=8, memory_mb=65_536)
    scenes = build_batch([(host, (BUILD,)), (replace(host, own_cpus=2.5), (BUILD,))], TABLE)
    sums = demand_sums(scenes, demands(scenes))[:, 0]
    assert sums[1, 0] - sums[0, 0] == pytest.approx(2.5)
    assert (sums[1, 4:] - sums[0, 4:]) == pytest.approx(2.5)


@pytest.mark.parametrize(("own", "said"), [("4097", "own_cpus"), ("-1", "own_cpus"), ("nine", "own_cpus")])
def test_own_work_that_no_host_can_do_is_refused_with_its_field(own: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(f"hosts: [{{id: a, kind: kvm, pcpus: 12, memory_mb: 1024, own_cpus: {own}}}]\n")
    with pytest.raises(InvalidInput, match=said):
        load_inventory(file)


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 2, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def advisor(tmp_path: Path, clock: Clock) -> Iterator[Advisor]:
    """Three hosts of one size; `vm` is on the second."""
    settings = Settings(database=sqlite_with_tables(tmp_path / "own.sqlite3"), state_dir=tmp_path)
    with Advisor(settings, clock=clock) as opened:
        for name in ("gateway", "worker", "spare"):
            opened.inventory.put_host(Host(name, "kvm", pcpus=8, memory_mb=65_536))
        opened.inventory.put_instance(Instance("vm", vcpus=4, memory_mb=1024, host="worker"))
        yield opened


def _measure(advisor: Advisor, clock: Clock, host: str, busy: float, **used: float) -> None:
    """Ten minutes of windows: how busy the host's CPUs were, and what its instances used, in % of one CPU."""
    begin = clock.now.timestamp()
    clock.now += timedelta(minutes=10)
    for step in range(1, 21):
        time_s = begin + SPAN_S * step
        samples = [MetricSample(host, None, "host", "busy", busy, time_s)]
        samples += [MetricSample(host, name, "instance", "cpu", value, time_s) for name, value in used.items()]
        advisor.telemetry.ingest(samples)


def _own(advisor: Advisor) -> dict[str, float]:
    return {host.host.id: host.host.own_cpus for host in advisor.cloud.now().hosts}


def _ranked(advisor: Advisor) -> list[str]:
    answer = advisor.placements.place(PlacementRequest(BUILD, limit=9, dry_run=True)).recommendation
    return [candidate.host for candidate in answer.candidates]


def test_what_a_host_is_busy_with_beside_its_instances_counts_as_its_own_work(advisor: Advisor, clock: Clock) -> None:
    _measure(advisor, clock, "gateway", 700.0)
    _measure(advisor, clock, "worker", 310.0, vm=300.0)
    _measure(advisor, clock, "spare", 8.0)
    assert _own(advisor) == {"gateway": 7.0, "worker": 0.0, "spare": 0.0}
    assert _ranked(advisor)[-1] == "gateway"
    found = advisor.cloud.checkup()
    assert [(one.host, one.cpus, one.pcpus) for one in found.own_load] == [("gateway", 7.0, 8)]


def test_own_work_that_ends_fades_from_what_counts(advisor: Advisor, clock: Clock) -> None:
    _measure(advisor, clock, "gateway", 700.0)
    for _ in range(30):
        _measure(advisor, clock, "gateway", 4.0)
    assert _own(advisor)["gateway"] == 0.0


def test_what_is_measured_goes_before_what_was_given(advisor: Advisor, clock: Clock) -> None:
    given = replace(advisor.inventory.host("spare"), own_cpus=6.0)
    advisor.inventory.put_host(given)
    assert _own(advisor)["spare"] == 6.0
    _measure(advisor, clock, "spare", 200.0)
    assert _own(advisor)["spare"] == 2.0
    assert advisor.inventory.host("spare") == given


def test_dom0_of_xen_is_no_work_beside_the_driver_domain(advisor: Advisor, clock: Clock) -> None:
    advisor.inventory.put_host(Host("xen1", "xen", pcpus=8, memory_mb=65_536))
    _measure(advisor, clock, "xen1", 150.0)
    assert _own(advisor)["xen1"] == 0.0
