"""Demand that is measured: from windows on their way in to what answers count with, each window once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.inventories.reading import Reading
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import demands as store
from advisor.telemetry import demands
from models.profiling.demand_estimation import Tally
from models.profiling.tallies import Tallies
from profiler.demand import Demand
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

HOSTS = tuple(Host(name, "kvm", pcpus=4, memory_mb=65_536) for name in ("h1", "h2"))
HOUR, PERIOD = 3600.0, 60.0
Load = Callable[[float], float]  # seconds → CPUs


@pytest.fixture
def started(clock: Clock) -> float:
    return clock().timestamp() // 86_400 * 86_400


@pytest.fixture
def cloud(advisor: Advisor) -> Advisor:
    there = [Instance(name, vcpus=2, memory_mb=1024, host="h1") for name in ("a", "b", "c")]
    advisor.inventory.put(Inventory(HOSTS, tuple(there)), mode="replace", generation=None)
    return advisor


def measured(
    load: Load, begin_s: float, hours: float, *, name: str = "a", host: str = "h1", **metrics: float
) -> list[MetricSample]:
    """One sample a minute of the CPU that it used, and of other metrics that stay as they are."""
    times = [begin_s + PERIOD * (at + 1) for at in range(round(hours * HOUR / PERIOD))]
    found = [MetricSample(host, name, "instance", "cpu", 100 * load(at), at) for at in times]
    return found + [MetricSample(host, name, "instance", key, metrics[key], at) for key in metrics for at in times]


def send(advisor: Advisor, clock: Clock, samples: Sequence[MetricSample], *, in_batch: int = 50) -> None:
    ordered = sorted(samples, key=lambda one: one.time_s)
    clock.now = max(clock.now, clock.now.fromtimestamp(ordered[-1].time_s, clock.now.tzinfo))
    for at in range(0, len(ordered), in_batch):
        advisor.telemetry.ingest(ordered[at : at + in_batch])


def cpu(advisor: Advisor, name: str = "a") -> Demand:
    return advisor.inventory.instance(name).demand["cpu"]


def learned(advisor: Advisor, name: str = "a") -> Tally:
    """All that was learned of its CPU, shown or not."""
    with advisor._database.read() as connection:
        return Tallies.of(["cpu"], [store.held(connection, [(name, "cpu")])[name, "cpu"].state]).tally(0)


def waves(at: float) -> float:
    return 0.5 + 0.3 * math.sin(at / 900)


def test_executions_that_agents_count_tell_how_long_bursts_are(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.5, started, 1, execution=50.0))
    found = cpu(cloud)
    assert found.burst_ms == pytest.approx(10.0)
    assert found.of_another(2.0).burst_ms == found.burst_ms, "a larger one of the kind has more bursts, not longer ones"


def test_windows_sent_are_shown_as_measured_demand(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.5, started, 3, waiting=25.0, net_mbit=80.0))
    found = cloud.inventory.instance("a").demand
    assert found["cpu"].mean == pytest.approx(0.5 / (1 - 0.125 * 0.375)), "more than it ran, for it waited"
    assert found["net_mbit"].mean == pytest.approx(80.0)
    assert {one.origin for one in found.values()} == {"measured"}
    assert found["cpu"].windows >= demands.ENOUGH
    assert cloud.inventory.instance("b").demand == {}


def test_what_was_measured_counts_from_the_first_window_on(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.5, started, 0.2))
    found = cpu(cloud)
    assert found.mean == pytest.approx(0.5)
    assert found.doubt > 0.3, "a window says little"
    send(cloud, clock, measured(lambda at: 0.5, started + 0.2 * HOUR, 2))
    assert cpu(cloud).doubt < found.doubt


def test_time_held_back_by_its_own_cap_is_not_demand(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.5, started, 2, waiting=60.0, throttled=40.0))
    send(cloud, clock, measured(lambda at: 0.5, started, 2, name="b", waiting=10.0, throttled=40.0))
    assert cpu(cloud).mean == pytest.approx(0.5 / (1 - 0.1 * 0.35))
    assert cpu(cloud, "b").mean == pytest.approx(0.5)


def test_what_is_sent_again_or_cut_otherwise_teaches_nothing_else(cloud: Advisor, clock: Clock, started: float) -> None:
    samples = measured(waves, started, 5)
    send(cloud, clock, samples, in_batch=7)
    once = learned(cloud)
    send(cloud, clock, samples, in_batch=7)
    assert learned(cloud) == once
    send(cloud, clock, [replace(one, instance="b") for one in samples], in_batch=7)
    assert learned(cloud, "b") == once
    send(cloud, clock, [replace(one, instance="c") for one in samples], in_batch=301)
    assert replace(learned(cloud, "c"), shared=once.shared) == once, "beside two others"
    reported = cpu(cloud)
    assert abs(reported.mean - once.mean) <= reported.doubt / 2


def test_what_was_learned_survives_a_restart(cloud: Advisor, clock: Clock, started: float, settings: Settings) -> None:
    send(cloud, clock, measured(waves, started, 1.2))
    before = cpu(cloud)
    with Advisor(settings, clock=clock) as again:
        assert cpu(again) == before
        send(again, clock, measured(lambda at: 1.5, started + 1.2 * HOUR, 2))
        after = cpu(again)
        assert after.windows > before.windows
    assert cpu(cloud) == after, "the other process sees it"


def test_a_demand_or_load_given_by_hand_beats_what_was_measured_and_is_not_lost(
    cloud: Advisor, clock: Clock, started: float
) -> None:
    plain = Instance("a", vcpus=2, memory_mb=1024, host="h1")
    cloud.inventory.put_instance(replace(plain, demand={"cpu": Demand(0.1)}))
    send(cloud, clock, measured(waves, started, 2, net_mbit=10.0))
    found = cloud.inventory.instance("a").demand
    assert found["cpu"] == Demand(0.1)
    assert found["net_mbit"].origin == "measured"
    cloud.inventory.put_instance(replace(plain, load=0.5))
    assert cloud.inventory.instance("a").demand == {}
    cloud.inventory.put_instance(plain)
    assert cpu(cloud).origin == "measured"


def test_what_is_shown_and_sent_back_is_still_what_is_measured(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(waves, started, 2))
    cloud.inventory.put_instance(cloud.inventory.instance("a"))
    send(cloud, clock, measured(lambda at: 1.8, started + 2 * HOUR, 4))
    assert cpu(cloud).mean > 1.0


@pytest.mark.parametrize("by_sync", [False, True])
def test_an_instance_that_was_made_smaller_than_what_was_measured_is_still_read(
    cloud: Advisor, clock: Clock, started: float, by_sync: bool
) -> None:
    send(cloud, clock, measured(lambda at: 1.7, started, 2))
    if by_sync:
        smaller = {"id": "a", "host": "h1", "vcpus": 1}
        difference = cloud.inventory.follow(Reading("openstack", (), hosts=({"id": "h1"},), instances=(smaller,)))
        assert difference.left_out == ()
    else:
        cloud.inventory.put_instance(Instance("a", vcpus=1, memory_mb=1024, host="h1"))
    assert cpu(cloud).mean == 1.0


def test_answers_count_with_what_was_measured(cloud: Advisor, clock: Clock, started: float) -> None:
    new_vm = PlacementRequest(Instance("new", vcpus=2, memory_mb=1024, demand={"cpu": Demand(1.0)}), dry_run=True)
    for name in ("a", "b", "c"):
        send(cloud, clock, measured(lambda at: 1.9, started, 2, name=name))
    send(cloud, clock, [MetricSample("h2", None, "host", "busy", 1.0, clock.now.timestamp())])
    answer = cloud.placements.place(new_vm).recommendation
    assert [one.host for one in answer.candidates] == ["h2", "h1"]
    assert answer.candidates[1].new_vm.throughput_ratio.expected < 0.9


def test_windows_like_those_before_leave_remembered_answers_alone(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(waves, started, 24))
    before = cpu(cloud)
    send(cloud, clock, measured(waves, started + 24 * HOUR, 2))
    assert cpu(cloud) == before
    generation = cloud.inventory.generation()
    send(cloud, clock, measured(lambda at: 1.9, started + 26 * HOUR, 24))
    assert cpu(cloud).mean > before.mean + 0.3
    assert cloud.inventory.generation() == generation, "no change of the inventory is refused for it"


def test_a_counter_that_went_wrong_teaches_nothing(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.5, started, 2, net_mbit=10.0))
    for value in (1e308, 1e14):
        wrong = measured(lambda at, value=value: value, clock.now.timestamp() + 300, 0.2, net_mbit=value)  # type: ignore[misc]
        send(cloud, clock, wrong)
    send(cloud, clock, measured(lambda at: 0.5, clock.now.timestamp(), 1, net_mbit=10.0))
    assert learned(cloud).most <= 2.0, "no more than it has vCPUs"
    found = cloud.inventory.instance("a").demand["net_mbit"]
    assert found.mean == pytest.approx(10.0)


def test_an_instance_that_moved_is_measured_on(cloud: Advisor, clock: Clock, started: float) -> None:
    send(cloud, clock, measured(lambda at: 0.4, started, 2))
    cloud.inventory.put_instance(Instance("a", vcpus=2, memory_mb=1024, host="h2"))
    send(cloud, clock, measured(lambda at: 1.2, started + 2 * HOUR, 2, host="h2"))
    assert learned(cloud).mean == pytest.approx(0.8, abs=0.02)


def test_after_a_long_silence_every_window_is_learned_though_few_at_once(
    cloud: Advisor, clock: Clock, started: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demands, "MOST_AT_ONCE", 3)
    before = measured(waves, started, 2)
    silent = [*before, *measured(waves, started + 5 * 86_400, 6)]
    send(cloud, clock, silent, in_batch=90)  # what an agent kept while no service answered
    kept = learned(cloud)
    assert kept.n < 60, "three windows with each batch at most"
    for at in range(30):  # and then ten seconds at a time
        send(cloud, clock, measured(waves, started + 5 * 86_400 + 6 * HOUR + at * PERIOD, 1 / 60))
    found = learned(cloud)
    assert found.n == pytest.approx((2 + 6.5) * 12, abs=2)
    assert found.mean == pytest.approx(sum(one.value for one in silent) / 100 / len(silent), rel=0.05)


def test_instances_that_peak_together_have_much_in_common(cloud: Advisor, clock: Clock, started: float) -> None:
    def own(at: float) -> float:
        return 0.5 + 0.3 * math.sin(at / 311) * math.cos(at / 97)

    together = [Instance(name, vcpus=2, memory_mb=1024, host="h1") for name in ("d", "e", "f")]
    for one in together:
        cloud.inventory.put_instance(one)
    samples = [one for name in "abcde" for one in measured(waves, started, 12, name=name)]
    send(cloud, clock, samples + measured(own, started, 12, name="f"), in_batch=300)
    common = {name: cpu(cloud, name).common or 0.0 for name in "abcdef"}
    assert min(common[name] for name in "abcde") > 0.8 > 0.3 > common["f"]


def test_a_profile_at_full_load_gives_way_to_what_this_instance_does(
    cloud: Advisor, clock: Clock, started: float
) -> None:
    cloud.inventory.put_workload(WorkloadProfile("web", {"cpu": 190.0}))
    cloud.inventory.put_instance(Instance("a", vcpus=2, memory_mb=1024, host="h1", workload="web"))
    send(cloud, clock, measured(lambda at: 0.2, started, 2))
    assert cpu(cloud).mean == pytest.approx(0.2)


@pytest.mark.parametrize(("away_h", "forgotten"), [(1.0, False), (9 * 24.0, True)])
def test_who_is_away_for_an_hour_has_lost_nothing_and_who_is_gone_for_long_is_forgotten(
    cloud: Advisor, clock: Clock, started: float, away_h: float, forgotten: bool
) -> None:
    send(cloud, clock, measured(waves, started, 2))
    cloud.inventory.delete_instance("a")
    clock.turn(away_h * HOUR)
    cloud.prune()
    cloud.inventory.put_instance(Instance("a", vcpus=2, memory_mb=1024, host="h1"))
    send(cloud, clock, measured(waves, started + (2 + away_h) * HOUR, 0.5))
    assert (cpu(cloud).windows < 7) == forgotten
    assert (cpu(cloud).windows > demands.ENOUGH) != forgotten
