"""Policies are held to the same limits and see nothing that is still to come; what they come to is predicted right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import PLAN_FOR, Host, Instance, PlanFor, Replay, Replayed, ReplayRequest, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.replay import simulation
from advisor.replay.grid import Trace
from advisor.replay.packed_cloud import (
    MIN_LOAD,
    RULES,
    PackedCloud,
    RulePolicy,
    bin_bound,
    demand_of,
    fewest_kept,
    room,
)
from advisor.replay.simulation import (
    BIN,
    BINS,
    POLICIES,
    FairShares,
    PlacementLog,
    ReplayPredictions,
    SimulationResult,
    SimulationTask,
    conclusion,
    predict_replay,
)
from models import executor
from models.data.scene import ProfileTable, build_batch
from models.physics.demands import GOODPUT
from models.physics.prior import PriorPredictor
from tests.advisor.replay.replay_cases import HOST, made_trace, replayed, timeless
from tests.examples import examples

WEB = WorkloadProfile("web", {"cpu": 80.0, "net_mbit": 200.0, "ipc": 1.2}, origin="given")
PLACING = POLICIES[:-1]
AMONG_THEM = ("cotenant", "first fit", "best fit", "fewest vCPUs", "Nova's weighers", "random", "peak oracle")


def work(policy: str = "first fit", *, net: bool = False, hosts: int = 5, **options: object) -> SimulationTask:
    trace = made_trace(net=net)
    demand = demand_of(trace, (), replace(HOST, labels={}), (WEB,) if net else (), 1)
    given = SimulationTask(policy, 1, demand, hosts, PriorPredictor(), PriorPredictor(), 4, 0.8, "pack", "p95")
    return replace(given, **options)  # type: ignore[arg-type]


REQUEST = ReplayRequest(hosts=5, history_s=1200, seeds=(1, 2), rebalance_s=1800)


@pytest.fixture(scope="module")
def found() -> Replay:
    return replayed(made_trace(), REQUEST)


@pytest.mark.parametrize("net", [False, True])
def test_what_a_replay_predicts_is_what_the_predictor_says_of_each_host_at_each_moment(net: bool) -> None:
    one = work("random", net=net)
    where = PlacementLog.by(one).where
    predictions = predict_replay(one.demand, where, one.first, one.evaluator, 0.8)
    trace = one.demand.trace
    ratios: list[float] = []
    for moment, places in enumerate(where):
        lowest, below = np.inf, 0
        for host in sorted(set(places[places >= 0].tolist())):
            there = np.flatnonzero(places == host).tolist()
            loads = {who: max(float(np.float64(trace.cpu[one.first + moment, who])), MIN_LOAD) for who in there}
            profiles = []
            for who in there:
                cpu = 100.0 * trace.vcpus[who]
                used = trace.net_mbit
                rate = {} if used is None else {"net_mbit": float(used[one.first + moment, who]) / loads[who]}
                profiles.append(WorkloadProfile(f"p{who}", {"cpu": cpu, **rate}))
            instances = [
                Instance(f"i{who}", int(trace.vcpus[who]), workload=f"p{who}", load=loads[who]) for who in there
            ]
            scene = build_batch([(HOST, instances)], ProfileTable.build(profiles))
            expected = PriorPredictor().predict(scene, ()).throughput.expected[0]
            lowest, below = min(lowest, expected.min()), below + int((expected < 0.8).sum())
            ratios += expected.tolist()
        assert predictions.worst[moment] == pytest.approx(lowest, abs=1e-6)
        assert predictions.below[moment] == below
    assert predictions.count == len(ratios) == int(predictions.expected.sum())
    assert predictions.total == pytest.approx(sum(ratios))
    assert np.flatnonzero(predictions.expected).min() == pytest.approx(min(ratios) / BIN, abs=1.0)


def test_an_instance_faster_than_alone_is_not_called_slower() -> None:
    """A learned model may say so of every instance; where no instance is, none is slowed."""
    no_instance = ReplayPredictions(
        np.zeros(2, dtype=np.int64), np.full(2, np.inf), *(np.zeros(BINS, dtype=np.int64),) * 2, 0, 0.0
    )
    faster = replace(no_instance, worst=np.array([1.02, np.inf]), count=1, total=1.02)
    ran = [SimulationResult("random", 1, np.ones(2, dtype=np.int64), one) for one in (faster, no_instance)]
    for seen, worst, over_time in ((ran, 1.02, (1.02, 1.0)), (ran[1:], 1.0, (1.0, 1.0))):
        found = simulation.replayed(seen, (1,))
        assert (found.worst, found.worst_over_time) == (worst, over_time)


def test_how_many_moments_are_predicted_together_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a host's memory can do is guessed by all profiles, also while no instance runs the greediest."""
    trace = replace(made_trace(net=True), workloads=("hungry", *("modest",) * 11), vcpus=np.ones(12, dtype=np.int64))
    profiles = tuple(
        WorkloadProfile(name, {"cpu": 100.0, "mem_bw_mb_s": most}, origin="given")
        for name, most in (("hungry", 9000.0), ("modest", 900.0))
    )
    demand = demand_of(trace, (), replace(HOST, labels={}), profiles, 1)
    assert any("memory bandwidth is taken to be 9,000.0 MB/s" in one for one in demand.assumptions)
    where = np.where(trace.present, 0, -1)
    assert (where[:, 0] < 0).any()
    together, apart = (
        predict_replay(demand, where, 0, PriorPredictor(), 0.8)
        for cells in (simulation.MAX_CELLS, 1)
        if not monkeypatch.setattr(simulation, "MAX_CELLS", cells)
    )
    np.testing.assert_array_equal(together.below, apart.below)
    np.testing.assert_allclose(together.worst, apart.worst, rtol=1e-9)


@pytest.mark.parametrize("policy", PLACING)
def test_no_policy_promises_more_than_there_is_room_for(policy: str) -> None:
    one = work(policy, hosts=1)
    placed = PlacementLog.by(one)
    trace, (vcpus, memory_mb) = one.demand.trace, room(HOST)
    for moment, places in enumerate(placed.where):
        present = trace.present[one.first + moment]
        assert (places[~present] == -1).all()
        for host in range(one.hosts):
            assert trace.vcpus[places == host].sum() <= vcpus
            assert trace.memory_mb[places == host].sum() <= memory_mb
    nowhere = (placed.where.max(axis=0) < 0) & trace.present[one.first :].any(axis=0)
    assert nowhere.sum() == placed.refused > 0


@pytest.mark.parametrize(
    ("policy", "plan_for"), [("cotenant", "hours"), ("cotenant", "mean"), ("cotenant", "p95"), ("best fit", "p95")]
)
def test_a_policy_knows_nothing_of_what_is_still_to_come(policy: str, plan_for: PlanFor) -> None:
    one = work(policy, hosts=6, plan_for=plan_for)
    half = one.demand.trace.steps // 2
    other = one.demand.trace.cpu.copy()
    other[half:] = np.where(np.isnan(other[half:]), np.nan, 1.0)
    changed = replace(one, demand=replace(one.demand, trace=replace(one.demand.trace, cpu=other)))
    before, after = (PlacementLog.by(it).where[: half - one.first + 1] for it in (one, changed))
    np.testing.assert_array_equal(before, after)


def test_web_by_day_shares_a_host_with_batch_by_night_where_hours_count_and_not_where_percentiles_do() -> None:
    """How many of six the first host of four CPUs takes: three of each, and six that are busy in the same hours."""
    hour = np.arange(4 * 288) // 12 % 24
    by_day = ((hour >= 8) & (hour < 20))[:, None]
    web, batch = (np.where(busy, 0.9, 0.05).repeat(3, axis=1) for busy in (by_day, ~by_day))
    first: dict[PlanFor, tuple[int, ...]] = {}
    for plan_for in PLAN_FOR:
        found = []
        for columns in ((web, batch), (web, web)):
            cpu = np.hstack(columns).astype(np.float32)
            trace = replace(made_trace(6), vcpus=np.ones(6, dtype=np.int64), cpu=cpu)
            demand = demand_of(trace, (), replace(HOST, labels={}), (), 1)
            one = work("cotenant", demand=demand, hosts=3, first=3 * 288, keep_ratio=0.93, plan_for=plan_for)
            found.append(int((PlacementLog.by(one).where[0] == 0).sum()))
        first[plan_for] = tuple(found)
    assert first == {"hours": (5, 4), "mean": (5, 5), "p50": (5, 5), "p95": (4, 4), "p99": (4, 4)}


def test_first_fit_takes_the_first_best_fit_the_fullest_and_nova_the_emptiest_host() -> None:
    trace = made_trace()
    cloud = PackedCloud(HOST, 3, trace)
    demand = demand_of(trace, (), replace(HOST, labels={}), (), 1)
    for who, host in enumerate((0, 1, 1, 1)):
        cloud.put(who, host)
    rules = [RULES[name] for name in ("first fit", "best fit", "fewest vCPUs", "Nova's weighers")]
    assert [RulePolicy(rule, demand, 3, seed=1)(cloud, 5, 0) for rule in rules] == [0, 1, 2, 2]


def test_a_policy_that_knows_the_future_contends_no_instance_where_possible_on_as_few_hosts_as_it_can() -> None:
    """Two that are busy by day and two by night fill two hosts: one of each on each."""
    day, night = np.tile([0.9, 0.1], 10), np.tile([0.1, 0.9], 10)
    cpu = np.stack([day, day, night, night], axis=1).astype(np.float32)
    sizes = np.full(4, HOST.pcpus), np.full(4, 512.0)
    trace = replace(made_trace(4), vcpus=sizes[0], memory_mb=sizes[1], cpu=cpu)
    host = replace(HOST, cpu_overcommit=4.0)
    found = replayed(trace, ReplayRequest(("best fit", "peak oracle"), hosts=4, history_s=0, keep_ratio=0.9), host=host)
    best_fit, oracle = found.policies
    assert (best_fit.hosts_mean, oracle.hosts_mean) == (1.0, 2.0)
    assert best_fit.violation_share == 0.5
    assert oracle.worst == pytest.approx(1.0, abs=1e-3)


@given(st.integers(1, 6), st.integers(0, 10_000))
@settings(max_examples=examples(40), deadline=None)
def test_a_fair_share_gives_each_its_demand_or_as_much_as_any_other_has(count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    vcpus = random.integers(1, 5, count)
    load = random.uniform(0.05, 1.0, count)
    host = Host("h", "kvm", pcpus=4, memory_mb=4096.0, nic_mbit=1000.0)
    nets = random.uniform(0.0, 800.0, count)
    profiles = [WorkloadProfile(f"w{at}", {"cpu": 100.0 * vcpus[at], "net_mbit": nets[at]}) for at in range(count)]
    there = [Instance(f"i{at}", int(vcpus[at]), workload=f"w{at}", load=float(load[at])) for at in range(count)]
    found = FairShares().predict(build_batch([(host, there)], ProfileTable.build(profiles))).throughput.expected[0]
    expected = np.ones(count)
    for most, asked in ((4.0, vcpus * load), (1000.0 * GOODPUT, nets * load)):
        got = np.minimum(asked, _water_level(asked, most)) if asked.sum() > most else asked
        expected = np.minimum(expected, np.divide(got, asked, out=np.ones(count), where=asked > 0))
    assert found == pytest.approx(expected, abs=1e-9)


def _water_level(asked: Any, room: float) -> float:
    """By halving: up to which level all can be filled."""
    low, high = 0.0, float(asked.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(asked, middle).sum() <= room else (low, middle)
    return low


def test_where_demand_is_high_the_advisor_breaks_fewer_limits_than_rules_that_only_count() -> None:
    busy = made_trace(instances=12)
    busy = replace(busy, cpu=np.where(np.isnan(busy.cpu), np.nan, 0.9).astype(np.float32))
    result = {one.policy: one for one in replayed(busy, ReplayRequest(hosts=6, history_s=1200)).policies}
    assert result["cotenant"].violation_share < result["first fit"].violation_share
    assert result["cotenant"].hosts_mean > result["first fit"].hosts_mean


def test_a_replay_in_another_process_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = executor.Processes
    # One does all the work: a second takes as long again to start, and that results come in order is tested beside.
    monkeypatch.setattr(executor, "Processes", lambda _count: processes(1))
    host = replace(HOST, labels={"rack": "r1"}, probed={"cpu_share": 0.6})
    request = ReplayRequest(("cotenant", "first fit", "lower bound"), hosts=5, history_s=1200)
    here, there = (replayed(made_trace(), request, host=host, processes=count) for count in (1, 2))
    for one, other in zip(here.policies, there.policies, strict=True):
        assert (one.hosts_used, one.ratios, one.refused) == (other.hosts_used, other.ratios, other.refused)


def test_figures_add_up(found: Replay) -> None:
    assert [one.policy for one in found.policies] == [*PLACING, "lower bound"]
    assert set(AMONG_THEM) <= set(PLACING)
    present = made_trace().present[4:]
    bound = found.policies[-1]
    assert (bound.mean, bound.below, bound.instance_moments) == (None, (), 0)
    for one in found.policies[:-1]:
        assert len(one.hosts_used) == len(one.below) == len(one.worst_over_time) == len(found.times_s) == found.steps
        assert one.instance_moments == present.sum() or one.refused
        assert one.violations == sum(one.below)
        assert one.worst == pytest.approx(min(one.worst_over_time), abs=1e-4)
        assert one.hosts_mean == pytest.approx(np.mean(one.hosts_used))
        assert one.ratios is not None
        assert list(one.ratios.expected) == sorted(one.ratios.expected)
        assert all(low <= mid for low, mid in zip(one.ratios.lower, one.ratios.expected, strict=True))
        assert [it.seed for it in one.repeats] == [1, 2]
        if not one.violations:  # a plan that keeps every instance at the limit cannot do with fewer than the bound
            assert all(used >= least for used, least in zip(one.hosts_used, bound.hosts_used, strict=True))
    assert found.times_s[0] == 1200
    said = ("no model has a part", "nothing was measured on hosts", "Against first fit", "of the first of 2 seeds")
    assert all(words in found.conclusion for words in said)
    assert "cotenant may move residents every 0.5 hours; the others move none." in found.assumptions


def test_the_same_question_has_the_same_answer_and_shards_are_clouds_of_their_own(found: Replay) -> None:
    assert timeless(replayed(made_trace(), REQUEST).policies) == timeless(found.policies)
    request = ReplayRequest(("first fit", "lower bound"), hosts=5, history_s=1200)
    whole, dealt = (replayed(made_trace(), replace(request, shards=shards)) for shards in (1, 3))
    assert dealt.policies[0].instance_moments == whole.policies[0].instance_moments
    assert dealt.policies[1].hosts_mean >= whole.policies[1].hosts_mean


def test_what_is_assumed_is_what_was_done() -> None:
    request = ReplayRequest(("first fit", "cotenant"), hosts=5, history_s=1200, rebalance_s=36)
    assumed = " ".join(replayed(made_trace(), request).assumptions)
    assert "move residents every 0.0833 hours" in assumed  # a step: it cannot be more often
    alone = " ".join(replayed(made_trace(), replace(request, policies=("first fit",))).assumptions)
    assert "cotenant" not in alone


def test_at_most_a_quarter_of_a_trace_is_only_watched_unless_more_is_asked_for() -> None:
    request = ReplayRequest(("first fit",), hosts=5)
    for steps, watched in ((1, 0), (3, 0), (9, 2), (24, 6)):
        trace = made_trace(steps=24)
        found = replayed(replace(trace, cpu=np.full((steps, len(trace)), 0.5, dtype=np.float32)), request)
        assert found.steps == steps - watched
        assert any("Nothing is watched before" in one for one in found.assumptions) == (not watched)


def test_the_bound_of_a_step_looks_at_that_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the bounds of a long trace cost the square of its steps."""
    trace = made_trace()
    expected = [fewest_kept(trace, HOST, step, 0.8) for step in range(trace.steps)]
    monkeypatch.setattr(Trace, "present", property(lambda _: pytest.fail("all steps were looked at")))
    assert [fewest_kept(trace, HOST, step, 0.8) for step in range(trace.steps)] == expected
    assert max(expected) > 1


def test_what_the_trace_says_of_network_and_disk_is_not_said_to_be_left_out() -> None:
    still = made_trace(net=True)
    still = replace(still, disk_mb_s=np.where(np.isnan(still.cpu), np.nan, 0).astype(np.float32))
    said = demand_of(still, (), HOST, (), 1)
    assert "need no more than CPU and the network and disk of the trace" in " ".join(said.assumptions)
    assert "disk is taken" not in " ".join(said.assumptions)  # no instance used it: nothing is known of what it can do
    assert said.host.disk_mb_s is None
    assert "need CPU only" in " ".join(demand_of(made_trace(), (), HOST, (), 1).assumptions)


def test_no_adviser_is_named_where_there_was_none() -> None:
    alone = [Replayed("first fit", (3,), 3.0, worst=0.7, mean=1.0)]
    assert "All ratios are predicted, from the trace's demand" in conclusion(alone, 0.8, judge="model")


def test_figures_that_differ_by_less_than_is_shown_are_not_called_the_same() -> None:
    mine = Replayed("cotenant", (3,), 3.0, violation_share=0.0, worst=0.9, mean=1.0)
    other = Replayed("first fit", (3,), 3.001, violation_share=1e-6, worst=0.7, mean=1.0)
    assert "about as many hosts and about as many violations (0.00 %)" in conclusion([mine, other], 0.8, judge="model")
    same = conclusion([mine, replace(mine, policy="first fit")], 0.8, judge="model")
    assert ": as many hosts and as many violations (0.00 %)" in same


def test_a_host_of_a_replay_takes_all_that_its_overcommit_gives_in_decimals() -> None:
    """45 x 1.4 is 63, a little less in binary fractions."""
    there = replace(HOST, pcpus=45, cpu_overcommit=1.4)
    trace = replace(made_trace(3), vcpus=np.array([21, 21, 21]), memory_mb=np.ones(3), cpu=np.ones((1, 3), np.float32))
    one = PackedCloud(there, 1, trace)
    for who in range(3):
        assert one.fits(who).tolist() == [True]
        one.put(who, 0)
    assert fewest_kept(trace, there, 0, 0.1) == 1


@given(sizes=st.lists(st.integers(1, 12), max_size=8), keep=st.floats(0.1, 1.0))
@settings(max_examples=examples(40))
def test_no_packing_needs_fewer_bins_than_the_bound(sizes: list[int], keep: float) -> None:
    def packs(left: list[int], bins: list[int]) -> bool:
        if not left:
            return True
        return any(
            packs(left[1:], [*bins[:at], free - left[0], *bins[at + 1 :]])
            for at, free in enumerate(bins)
            if free >= left[0] and free not in bins[:at]
        )

    def plain(room: int) -> int:
        """As Martello and Toth write it, one small size after the other."""
        found = [-(-sum(sizes) // room), sum(1 for size in sizes if size > room / 2)]
        for a in {size for size in sizes if size <= room / 2}:
            large = [size for size in sizes if size > room - a]
            middle = [size for size in sizes if room - a >= size > room / 2]
            small = [size for size in sizes if room / 2 >= size >= a]
            left = sum(small) - (len(middle) * room - sum(middle))
            found.append(len(large) + len(middle) + max(0, -(-left // room)))
        return max(found)

    bound = bin_bound(np.array(sizes, dtype=float), 12.0)
    assert bound == plain(12)
    assert bound == 0 or not packs(sorted(sizes, reverse=True), [12] * (bound - 1))
    trace = made_trace()
    assert fewest_kept(trace, HOST, 10, keep) <= fewest_kept(trace, HOST, 10, 1.0) <= len(trace)


def test_a_workload_is_scaled_to_the_size_of_its_instance_and_an_unknown_one_is_refused() -> None:
    trace = made_trace()
    demand = demand_of(trace, (), HOST, (WEB,), 1)
    by_name = {one.name: one.metrics for one in demand.profiles}
    assert by_name["web x 2"] == pytest.approx({"cpu": 200.0, "net_mbit": 500.0, "ipc": 1.2})
    named = replace(trace, workloads=("web", "database", *trace.workloads[2:]))
    with pytest.raises(InvalidInput, match="vm1 of made runs 'database', of which the host type's file has no"):
        demand_of(named, (), HOST, (WEB,), 1)
    with pytest.raises(InvalidInput, match="workload web: its profile says nothing of cpu"):
        demand_of(trace, (), HOST, (WorkloadProfile("web", {"net_mbit": 1.0}),), 1)


@pytest.mark.parametrize(
    ("request_", "host", "field"),
    [
        (ReplayRequest(keep_ratio=0.0), HOST, "keep_ratio"),
        (ReplayRequest(policies=("worst fit",)), HOST, "policies"),
        (ReplayRequest(policies=()), HOST, "policies"),
        (ReplayRequest(policies=("random", "random")), HOST, "policy"),
        (ReplayRequest(seeds=()), HOST, "seeds"),
        (ReplayRequest(hosts=0), HOST, "hosts"),
        (ReplayRequest(hosts=2, shards=3), HOST, "shards"),
        (ReplayRequest(history_s=1e6), HOST, "history"),
        (ReplayRequest(objective="cheap"), HOST, "objective"),  # type: ignore[arg-type]
        (ReplayRequest(judge="me"), HOST, "judge"),  # type: ignore[arg-type]
        (ReplayRequest(plan_for="p42"), HOST, "plan_for"),  # type: ignore[arg-type]
        (ReplayRequest(), Host("h", "kvm", pcpus=1, memory_mb=4096.0), "host_type"),
    ],
)
def test_an_impossible_question_is_refused_with_its_field(request_: ReplayRequest, host: Host, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        replayed(made_trace(), request_, host=host)
    assert refused.value.field == field
