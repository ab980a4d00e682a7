"""Latency and jitter of the prior: exact on its limiting cases, monotone, and in sight of what the lab measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.dataset import load_dataset
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.features.examples import scene_of
from models.physics.cpu_speed import budget_runs_out, cap_stall, processor_sharing
from models.physics.demands import GOODPUT
from models.physics.latency import BACKLOG_MBIT
from models.physics.prior import PriorPredictor, solve
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings
from tests.examples import examples
from tests.models.synthetic import NAMES, TABLE, Scene, batch, dedicated, host, instance, instances, scenes, shared

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
PAGES = ProfileTable.build([WorkloadProfile("pages", {"cpu": 0.0, "driver_domain.cpu": 60.0})])
BURSTS = ProfileTable.build(
    [
        WorkloadProfile("asks", {"cpu": 20.0, "execution": 100.0}),  # bursts of 2 ms
        WorkloadProfile("game", {"cpu": 2.0, "execution": 20.0, "net_mbit": 0.1, "latency_mean_ms": 1.0}),
        WorkloadProfile("fills", {"cpu": 2.0, "net_mbit": 900.0}),
        WorkloadProfile("spin", {"cpu": 100.0, "execution": 1.0}),
    ]
)
DEVICES_ALONE = ProfileTable.build(  # without CPU time, which who waits for a device leaves to others
    [
        WorkloadProfile("disk", {"cpu": 0.0, "disk_mb_s": 200.0, "block": 100.0}),
        WorkloadProfile("log", {"cpu": 0.0, "disk_mb_s": 40.0}),
        WorkloadProfile("copy", {"cpu": 0.0, "mem_bw_mb_s": 9000.0}),
        WorkloadProfile("idle", {"cpu": 0.0}),
    ]
)
LINE = 10 * GOODPUT
PACKETS = ProfileTable.build(
    [
        WorkloadProfile("few", {"cpu": 0.0, "net_mbit": 0.001, "latency_mean_ms": 1.0}),
        WorkloadProfile("some", {"cpu": 0.0, "net_mbit": 4.0, "latency_mean_ms": 1.0}),
        WorkloadProfile("many", {"cpu": 0.0, "net_mbit": 10.0, "latency_mean_ms": 1.0}),
        WorkloadProfile("fills", {"cpu": 0.0, "net_mbit": 900.0}),
    ]
)


def ratios(there: Host, *those: Instance, table: ProfileTable = TABLE) -> tuple[Floats, Floats]:
    """Latency and jitter ratios of these instances on this host."""
    named = [replace(one, id=f"i{number}") for number, one in enumerate(those)]
    result = solve(batch((there, named), table=table))
    return result.latency[0], result.jitter[0]


# limiting cases


@pytest.mark.parametrize("kind", ["xen", "kvm", "lxc"])
@pytest.mark.parametrize("workload", [*NAMES, None])
@pytest.mark.parametrize("load", [0.3, 1.0])
def test_alone_latency_and_jitter_are_those_of_alone(kind: str, workload: str | None, load: float) -> None:
    there = host(kind, 2, driver_cpus=(0,))
    for values in ratios(there, instance(workload=workload, load=load)):
        assert values == pytest.approx([1.0])


@pytest.mark.parametrize("load", [0.3, 1.0])
def test_apart_from_each_other_no_instance_waits(load: float) -> None:
    for values in ratios(host("kvm", 2), instance(pins="0:0", load=load), instance(pins="0:1", load=load)):
        assert values == pytest.approx([1.0, 1.0])


def test_on_a_host_with_endless_cpus_no_instance_waits() -> None:
    for values in ratios(host("kvm", 512), *[instance(workload="half", load=0.9) for _ in range(4)]):
        assert values == pytest.approx([1.0] * 4)


def test_who_share_a_cpu_are_an_m_g_1_with_processor_sharing() -> None:
    """A quarter of the CPU each: (1 - 0.25) / (1 - 0.5)."""
    half = instance(workload="half", load=0.5)
    assert ratios(host(), half, half)[0] == pytest.approx([1.5, 1.5], rel=0.02)


def test_beside_one_that_never_stops_the_fair_share_is_the_server() -> None:
    latency, _ = ratios(host(), instance(workload="half", load=0.5), instance())
    assert latency[0] == pytest.approx((1 - 0.25) / (0.5 - 0.25), rel=0.02)


def test_a_weight_is_a_larger_server() -> None:
    """Of three times the weight Linux lets brief bursts feel the square root."""
    latency, _ = ratios(host(), instance(workload="half", load=0.5, weight=768), instance())
    assert latency[0] == pytest.approx((1 - 0.25) / (3**0.5 / (3**0.5 + 1) - 0.25), rel=0.02)


def test_who_saturate_a_resource_obey_littles_law() -> None:
    assert ratios(host(), instance(), instance())[0] == pytest.approx([2.0, 2.0])
    assert ratios(host("lxc", 4), instance(workload="disk"), instance(workload="disk"))[0] == pytest.approx([2.0, 2.0])


@pytest.mark.parametrize("mine", [0.2, 0.5])
def test_the_driver_domain_is_a_queue_that_pages_of_all_wait_in(mine: float) -> None:
    there = host("xen", 3, driver_cpus=(0,))
    pair = [instance(workload="pages", pins="0:1", load=mine), instance(workload="pages", pins="0:2", load=0.5)]
    latency, jitter = ratios(there, *pair, table=PAGES)
    price = 1.0  # one CPU each and no crowd: a page costs as much as alone
    own, total = 0.6 * mine * price, (0.6 * mine + 0.3) * price
    assert latency[0] == pytest.approx((1 - own) / (1 - total))
    assert jitter[0] == pytest.approx((1 - own) / (1 - total))  # a sojourn of M/M/1 is exponential


def test_equals_wait_equally() -> None:
    for values in ratios(host("xen", 2, driver_cpus=(0,)), *[instance(workload="web", load=0.4) for _ in range(3)]):
        assert values == pytest.approx([values[0]] * 3)
        assert values[0] > 1


# caps


@pytest.mark.parametrize("kind", ["xen", "kvm", "lxc"])
@pytest.mark.parametrize("cap", [20, 50, 80])
def test_who_is_held_by_its_cap_is_as_slow_and_stalls_once_a_period(kind: str, cap: float) -> None:
    latency, jitter = ratios(host(kind), instance(workload="spin", cap=cap), table=BURSTS)
    assert latency == pytest.approx([100 / cap])
    period = np.array({"xen": 10.0, "kvm": 100.0, "lxc": 100.0}[kind])  # ms
    stall = float(cap_stall(np.array(cap / 100), period).variance)
    burst = 1000.0  # ms: it leaves its CPU once a second
    alone = float(processor_sharing(np.array(1.0), np.array(1.0), np.array(1.0)).variance)
    assert jitter == pytest.approx([np.sqrt((100 / cap) ** 2 + stall / (alone * burst**2))])


@pytest.mark.parametrize(("service", "period"), [("throughput", 100.0), ("latency", 10.0)])
def test_a_cap_above_the_demand_is_felt_as_often_as_its_budget_runs_out(service: str, period: float) -> None:
    latency, _ = ratios(host("lxc"), instance(workload="asks", cap=30, load=0.99, service=service), table=BURSTS)
    cap, own, burst = 0.3, 0.2 * 0.99, 2.0
    chance = float(budget_runs_out(*(np.array(value) for value in (cap, own, period, burst))))
    stall = chance * float(cap_stall(np.array(cap), np.array(period)).mean)
    slower = (1 - chance) / (1 - own) + chance / (cap - own)
    assert 0.1 < chance < 1
    assert latency == pytest.approx([(slower + stall / burst) * (1 - own)])


@pytest.mark.parametrize(("kind", "vcpus", "cap", "period"), [
    ("lxc", 1, 50, 10.0), ("lxc", 2, 50, 10.0), ("lxc", 1, 5, 20.0), ("kvm", 2, 50, 10.0), ("kvm", 2, 5, 40.0),
    ("xen", 1, 5, 10.0),
])  # fmt: skip
def test_who_minds_latency_stalls_for_the_short_period_that_its_cap_is_rendered_with(
    kind: str, vcpus: int, cap: float, period: float
) -> None:
    spin, usual = instance(workload="spin", cap=cap, vcpus=vcpus), {"xen": 10.0, "kvm": 100.0, "lxc": 100.0}[kind]
    long, short = (
        solve(batch((host(kind, vcpus), [replace(spin, service=service)]), table=BURSTS))
        for service in ("throughput", "latency")
    )
    assert short.throughput == pytest.approx(long.throughput)
    burst, alone = 1000.0, float(processor_sharing(np.array(1 / vcpus), np.array(1.0), np.array(vcpus)).variance)
    stalls = [float(cap_stall(np.array(cap / 100 / vcpus), np.array(one)).variance) for one in (usual, period)]
    assert (long.jitter**2 - short.jitter**2) * alone * burst**2 == pytest.approx(stalls[0] - stalls[1], rel=1e-3)


@settings(max_examples=examples(60), deadline=None)
@given(scenes(least=1, most=4, names=("spin", "half", "idle", None), kinds=("kvm", "lxc")), st.data())
def test_a_higher_cap_never_raises_its_owners_latency_or_jitter(scene: Scene, data: st.DataObject) -> None:
    there, those = scene
    low, high = sorted(data.draw(st.tuples(st.floats(5, 300), st.floats(5, 300))))
    before, after = (
        solve(batch((there, [replace(those[0], settings=replace(those[0].settings, cap_percent=cap)), *those[1:]])))
        for cap in (low, high)
    )
    assert after.latency[0, 0] <= before.latency[0, 0] * (1 + 1e-6)
    assert after.jitter[0, 0] <= before.jitter[0, 0] * (1 + 1e-6)


# the network


def test_in_a_full_queue_all_wait_for_all_of_it_and_in_a_class_of_its_own_none() -> None:
    there = host("lxc", 4, nic_mbit=10.0)
    game, fills = instance(workload="game"), instance(workload="fills")
    full = ratios(there, game, fills, table=BURSTS)
    classed = (instance(workload=name, network=dedicated(5.0)) for name in ("game", "fills"))
    apart = ratios(there, *classed, table=BURSTS)
    delay_ms = 1000 * BACKLOG_MBIT / (10 * GOODPUT)
    assert delay_ms < full[0][0] < 1.5 * delay_ms  # alone it takes 1 ms
    assert apart[0][0] < 1.5  # half the link sends each of its packets half as fast
    assert full[1][0] > 10 > apart[1][0]


def test_a_class_that_is_sent_more_than_its_rate_delays_its_own_packets_only() -> None:
    there = host("lxc", 4, nic_mbit=10.0)
    tight, wide = (instance(workload="game", network=network) for network in (dedicated(0.05), shared(1.0, 10.0)))
    latency, _ = ratios(there, tight, wide, table=BURSTS)
    assert latency[0] > 1000 * BACKLOG_MBIT / 0.05
    assert latency[1] == pytest.approx(1.0, abs=0.05)


def in_line(workload: str, network: NetworkSettings | None = None, load: float = 1.0) -> Instance:
    return instance(workload=workload, network=network, load=load)


def waits(*those: Instance) -> Floats:
    """Latency ratios on a line of 10 Mbit/s of those who do nothing but send."""
    return ratios(host("lxc", 4, nic_mbit=10.0), *those, table=PACKETS)[0]


def meeting(load: float) -> float:
    """The wait of an M/D/1 queue, in services."""
    return load / 2 / (1 - load)


def test_who_stays_within_a_class_waits_for_half_a_frame_of_a_sender_that_fills_the_line() -> None:
    for network in (shared(5.0, 10.0), dedicated(5.0)):
        assert waits(in_line("few", network), in_line("fills"))[0] == pytest.approx(1.5, abs=0.001)
        assert waits(in_line("few", network))[0] == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
@pytest.mark.parametrize("network", [None, shared(5.0, 10.0)])
def test_a_frame_of_a_sender_that_is_held_back_is_met_as_often_as_it_sends(
    rate: float, network: NetworkSettings | None
) -> None:
    latency = waits(in_line("few", network), in_line("fills", dedicated(rate)))
    assert latency[0] == pytest.approx(1 + rate / LINE / 2, abs=0.005)


@pytest.mark.parametrize("held", [3.0, 4.5])  # below half of the line, which is kept for who has no class
@pytest.mark.parametrize("network", [None, shared(1.0, 10.0)])
def test_a_sender_that_is_held_to_its_rate_leaves_the_line_minus_that_rate(
    held: float, network: NetworkSettings | None
) -> None:
    """8 Mbit/s do not fit into what is left, which empties the full queue; what else is waited for adds no 30 ms."""
    latency = waits(in_line("many", network, load=0.8), in_line("fills", dedicated(held)))
    delay_ms = 1000 * BACKLOG_MBIT / (LINE - held)
    assert delay_ms < latency[0] < delay_ms + 30


def test_a_full_queue_of_those_without_a_class_is_emptied_at_the_rate_that_is_kept_for_them() -> None:
    half = LINE / 2
    for promised in (LINE * 0.75, LINE):
        kept_ms, taken_ms = (
            1000 * BACKLOG_MBIT / rate for rate in (half * LINE / (promised + half), max(LINE - promised, 1e-9))
        )
        latency = waits(in_line("many", load=0.8), in_line("fills", dedicated(promised)))[0]
        assert kept_ms < latency < min(kept_ms + 30, taken_ms)


@pytest.mark.parametrize("rate", [4.5, 6.0, 9.0])
def test_packets_of_one_sender_meet_in_a_class_that_is_slower_than_the_line(rate: float) -> None:
    latency = waits(in_line("some", dedicated(rate)))
    assert latency[0] == pytest.approx(1 + meeting(4 / rate) * LINE / rate - meeting(4 / LINE))


def test_without_classes_packets_wait_for_those_of_the_others_in_one_queue() -> None:
    latency = waits(in_line("few"), in_line("some", load=0.9))
    assert latency[0] == pytest.approx(1 + meeting(3.6 / LINE), abs=0.001)


# what must hold everywhere


@settings(max_examples=examples(50), deadline=None)
@given(
    st.sampled_from([("spin", "half", "idle"), ("disk", "log", "idle"), ("copy", "idle")]),
    st.sampled_from(["kvm", "lxc"]),
    st.data(),
)
def test_where_one_resource_is_shared_one_more_neighbour_shortens_no_wait(
    names: tuple[str, ...], kind: str, data: st.DataObject
) -> None:
    """On CPUs of closed loops of one vCPU, which are exact: how other bursts meet there is approximated."""
    there, those = data.draw(scenes(kinds=(kind,), names=names, least=1, most=3))
    all_of_them = [*those, replace(data.draw(instances(there.pcpus, names)), id="further")]
    if "spin" in names:
        all_of_them = [
            Instance(one.id, workload=one.workload, settings=IsolationSettings(weight=one.settings.weight))
            for one in all_of_them
        ]
    table = TABLE if "spin" in names else DEVICES_ALONE
    fewer, more = (solve(batch((there, some), table=table)) for some in (all_of_them[:-1], all_of_them))
    assert (more.latency[0, :-1] >= fewer.latency[0] * (1 - 1e-6)).all()
    assert (more.jitter[0, :-1] >= fewer.jitter[0] * (1 - 1e-6)).all()


def test_on_a_full_cpu_one_more_neighbour_shortens_no_wait() -> None:
    there = [instance(workload="half"), instance(load=0.5)]
    fewer, more = (ratios(host("lxc"), *some)[0] for some in (there, [*there, instance(workload="half", load=0.1)]))
    assert (more[:2] >= fewer * (1 - 1e-6)).all()


def test_the_prior_alone_answers_with_intervals_that_grow_with_the_ratio() -> None:
    calm, crowded = (
        PriorPredictor().predict(batch((host(), [instance("a", "half", load=0.5), *others])))
        for others in ([], [instance("b"), instance("c")])
    )
    for kind in ("latency", "jitter"):
        narrow, wide = (getattr(said, kind) for said in (calm, crowded))
        assert narrow.lower[0, 0] < 1 < narrow.upper[0, 0]
        assert wide.upper[0, 0] / wide.lower[0, 0] > narrow.upper[0, 0] / narrow.lower[0, 0]
    assert calm.jitter.upper[0, 0] > calm.latency.upper[0, 0]


# what the lab measured


def measured(name: str, outcome: str) -> tuple[Floats, Floats, list[str]]:
    """Ratios of a dataset, what the prior says of them, and a label each: run, workload and load."""
    data = load_dataset(DATASETS / name)
    both = [scene_of(one, dict(data.platforms)) for one in data.colocations]
    result = solve(build_batch(both, ProfileTable.build(data.profiles)))
    values = result.jitter if outcome == "jitter_ms" else result.latency
    seen, said, labels = [], [], []
    for row, one in enumerate(data.colocations):
        slots = [instance.id for instance in both[row][1]]
        for found in one.outcomes:
            if found.outcome == outcome and found.solo and found.colocated:
                seen.append(found.colocated / found.solo)
                said.append(values[row, slots.index(found.instance.id)])
                labels.append(f"{one.run} {found.instance.workload} {found.instance.load}")
    return np.array(seen), np.array(said), labels


@pytest.mark.parametrize("outcome", ["latency_mean_ms", "jitter_ms"])
def test_a_game_behind_a_bulk_sender_waits_hundreds_of_times_longer_as_in_the_lab(outcome: str) -> None:
    """Measured on 2026-11-21: latency 320 to 430 times that of alone, jitter 600 to 1900 times."""
    seen, said, labels = measured("lab-game-uplink", outcome)
    behind = np.array(["game:bulk game" in label for label in labels])
    beside = np.array(["cpu-hog game" in label or "disk-pairs-2 game" in label for label in labels])
    assert behind.sum() == 4
    assert abs(np.log(np.median(seen[behind]) / np.median(said[behind]))) < np.log(3)
    assert said[beside] == pytest.approx(np.ones(beside.sum()), abs=0.05)


def test_below_saturation_the_prior_is_nearer_to_the_lab_than_no_waiting_is() -> None:
    seen, said, labels = measured("lab-colocations", "latency_mean_ms")
    same_cpu = np.array([label.startswith("same:") and not label.endswith(" 1.0") for label in labels])
    assert same_cpu.sum() > 40
    off, without = (np.abs(np.log(seen[same_cpu] / value)) for value in (said[same_cpu], 1.0))
    assert off.mean() < 0.8 * without.mean()
