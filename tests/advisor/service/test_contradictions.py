"""Windows that contradict what was predicted: an alarm that names who changed, what counts meanwhile, and its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from advisor.domain import Host, Instance, PlacementRequest
from advisor.service import Advisor
from advisor.settings import Settings
from models.evaluation.contradictions import ALARM, accumulated, beyond
from profiler.demand import Demand
from profiler.observed import MetricSample
from research.contradiction_alarms import LOAD, PCPUS, VCPUS, SimulatedCloud

KNOWN = 200  # windows, 16 hours: after an hour ranges are so wide that a hog does not lead out of them


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[SimulatedCloud]:
    clock = [datetime(2026, 11, 2, 9, tzinfo=UTC)]
    settings = Settings(database=f"sqlite:///{tmp_path}/db.sqlite3", state_dir=tmp_path)
    hosts = [Host(f"h{at}", "kvm", pcpus=PCPUS, memory_mb=65_536, cpu_overcommit=16.0) for at in range(2)]
    with Advisor(settings, clock=lambda: clock[0]) as advisor:
        made = SimulatedCloud(advisor, clock, hosts, np.random.default_rng(1))
        made.learn(KNOWN)
        for _ in range(3):
            made.window()
        assert advisor.cloud.alarms() == ()
        yield made


def newcomer_on(cloud: SimulatedCloud, host: str) -> tuple[float, tuple[str, ...]]:
    """What a newcomer would get on a host, and the notes of the answer."""
    asked = Instance("new", VCPUS, 1024.0, demand={"cpu": Demand(LOAD, common=0.0)})
    answer = cloud.advisor.placements.place(PlacementRequest(asked, dry_run=True)).recommendation
    there = next(one for one in answer.candidates if one.host == host)
    assert there.newcomer.cpu is not None
    return there.newcomer.cpu.share, answer.notes


def watch_run_queue(cloud: SimulatedCloud, victim: str, ran: Mapping[str, float]) -> None:
    """What a run-queue collector pushes of the last window: % of the time for which it waited while who ran."""
    time_s = cloud.clock[0].timestamp() - 60
    values = {"waited_for_host": 0.5, **{f"waited_for:{name}": value for name, value in ran.items()}}
    batch = [MetricSample("h0", victim, "instance", name, value, time_s) for name, value in values.items()]
    assert cloud.advisor.telemetry.ingest(batch)["dropped"] == ()


def test_a_neighbour_that_starts_hogging_raises_an_alarm_that_names_it_and_ends_with_it(cloud: SimulatedCloud) -> None:
    said, notes = newcomer_on(cloud, "h0")
    assert not any("contradicts" in note for note in notes)
    cloud.hogs = {"h0-2": float(VCPUS)}
    for _ in range(9):
        cloud.window()
        watch_run_queue(cloud, "h0-3", {"h0-1": 20.0, "h0-2": 1.0})
    alarms = cloud.advisor.cloud.alarms()
    assert {one.host for one in alarms} == {"h0"}
    named = {one.instance: (one.cause, one.antagonist, one.measured) for one in alarms}
    assert named.pop("h0-3") == ("neighbour", "h0-1", True), "what was measured is believed before what changed"
    assert set(named.values()) == {("neighbour", "h0-2", False)}
    assert all(one.observed < one.lower for one in alarms)
    assert all(one.wanted > 1 for one in alarms if not one.measured)
    now, notes = newcomer_on(cloud, "h0")
    assert any("h0 contradicts its predictions" in note for note in notes)
    assert now < said - 0.1, "the measured demand of the hog counts"
    (raised,) = {one.operation for one in cloud.advisor.access.audit(named="h0-2").items}
    assert raised == "alarm.raise"
    cloud.hogs = {}
    for _ in range(14):
        cloud.window()
    assert cloud.advisor.cloud.alarms() == ()
    assert "alarm.end" in {one.operation for one in cloud.advisor.access.audit(named="h0-2").items}


def test_where_the_cpus_slow_by_half_the_host_is_named_and_the_measured_share_counts(cloud: SimulatedCloud) -> None:
    said, _ = newcomer_on(cloud, "h1")
    cloud.slow = {"h1"}
    for _ in range(9):
        cloud.window()
    alarms = cloud.advisor.cloud.alarms()
    assert alarms and {(one.host, one.cause, one.antagonist) for one in alarms} == {("h1", "host", None)}
    now, _ = newcomer_on(cloud, "h1")
    assert now < said - 0.15


def test_one_bad_window_is_no_alarm_and_a_loss_that_nobody_feels_never_is() -> None:
    total = accumulated(0.0, beyond(0.9, 0.8, 1.0, 0.1))
    assert 0 < total < ALARM
    assert accumulated(total, beyond(0.9, 0.8, 1.0, 0.9)) == 0
    assert beyond(1.0, 0.999, 1.0, 0.96) < 0
    assert beyond(0.9, 0.8, 1.0, 0.79) > 0 > beyond(0.9, 0.8, 2.0, 0.79), "a wider interval holds more"
