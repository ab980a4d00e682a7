"""Bursts placed jointly: never worse than in turn, as good as trying all hosts on tiny clouds, within all rules."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, permutations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from advisor.domain import BurstFigures, Objective, PlacementRequest, Recommendation
from advisor.placement import sequential
from advisor.planning.joint_placement import JointAnswer, figures, place_jointly
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from tests.advisor.core.core_clouds import WORKLOADS, Failing, cloud, context, host, request, vm
from tests.examples import examples

FEW = settings(
    max_examples=examples(14, least=5), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
CONTEXT = context()
NAMES = [one.name for one in WORKLOADS]

sizes = st.sampled_from([512.0, 1024.0, 2048.0])
new_vms: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    workload=st.sampled_from(NAMES),
    vcpus=st.sampled_from([1, 2]),
    memory_mb=sizes,
    min_throughput_ratio=st.sampled_from([None, None, 0.7]),
)
hosts: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, pcpus=st.sampled_from([1, 2]), memory_mb=st.sampled_from([2048.0, 3072.0])
)


@st.composite
def bursts(draw: st.DrawFn) -> tuple[ClusterSnapshot, list[PlacementRequest]]:
    """Two or three hosts with up to three residents, and a burst of two or three, often more than fit well."""
    drawn = draw(st.lists(hosts, min_size=2, max_size=3))
    there = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, len(drawn) - 1)), max_size=3))
    asked = draw(st.lists(new_vms, min_size=2, max_size=3))
    objective: Objective = draw(st.sampled_from(["worst", "total", "limits", "pack"]))
    snapshot = cloud(
        [host(f"h{at}", **one) for at, one in enumerate(drawn)],
        [vm(f"r{at}", workload, on=f"h{on}", memory_mb=256.0) for at, (workload, on) in enumerate(there)],
    )
    return snapshot, [question(f"n{at}", objective, **one) for at, one in enumerate(asked)]


def question(name: str, objective: Objective = "worst", **more: Any) -> PlacementRequest:
    return request(vm(name, **more), limit=1, explain=False, objective=objective)


BIG_AND_SMALL = [host("big", memory_mb=2000.0), host("small", pcpus=1, memory_mb=1000.0)]
FIRST_AND_LATER = question("first", memory_mb=900.0), question("later", memory_mb=1900.0)


def jointly(
    snapshot: ClusterSnapshot, *requests: PlacementRequest, limit_s: float = 60.0, predictor: Predictor | None = None
) -> JointAnswer:
    return place_jointly(snapshot, context(predictor), requests, until=time.monotonic() + limit_s)


def rank(its: BurstFigures, objective: Objective) -> tuple[float, ...]:
    """Lower is better."""
    packed = (its.not_kept, its.hosts_used) if objective == "pack" else ()
    return (-its.placed, *packed, round(its.harm, 6))


def of(snapshot: ClusterSnapshot, answers: Sequence[Recommendation], objective: Objective = "worst") -> BurstFigures:
    after = snapshot
    for one in answers:
        if one.candidates:
            after = sequential.after(after, sequential.there(one))
    return figures(after, answers, PriorPredictor(), objective)


def on(answer: JointAnswer) -> list[str | None]:
    return [one.candidates[0].host if one.candidates else None for one in answer.answers]


def by_brute_force(snapshot: ClusterSnapshot, requests: Sequence[PlacementRequest]) -> tuple[float, ...]:
    """The best of all choices of hosts that can be answered in turn in some order, by rank."""
    objective, names = requests[0].objective, [one.id for one in snapshot.hosts]

    @cache  # many orders begin alike
    def in_turn(order: tuple[tuple[int, str], ...]) -> tuple[ClusterSnapshot, list[Recommendation]] | None:
        """The cloud after these were placed on these hosts, and their answers; None where one of them was refused."""
        if not order:
            return snapshot, []
        before = in_turn(order[:-1])
        if before is None:
            return None
        number, name = order[-1]
        (answer,) = sequential.in_turn(before[0], CONTEXT, [replace(requests[number], hosts=(name,))])
        if not answer.candidates:
            return None
        return sequential.after(before[0], sequential.there(answer)), [*before[1], answer]

    def ranks(count: int) -> Iterator[tuple[float, ...]]:
        for numbers in combinations(range(len(requests)), count):
            for hosts in product(names, repeat=count):
                orders = permutations(zip(numbers, hosts, strict=True))
                placed = next(filter(None, map(in_turn, orders)), None)
                if placed is not None:
                    yield rank(figures(*placed, PriorPredictor(), objective), objective)

    # Who places more is better, whatever the harm.
    return next(min(found) for count in range(len(requests), -1, -1) if (found := list(ranks(count))))


@FEW
@given(bursts())
@example((cloud(BIG_AND_SMALL), list(FIRST_AND_LATER)))  # here the given order is not the best
def test_a_joint_answer_is_never_worse_than_the_given_order_and_on_tiny_clouds_as_good_as_trying_all_hosts(
    asked: tuple[ClusterSnapshot, list[PlacementRequest]],
) -> None:
    snapshot, requests = asked
    objective = requests[0].objective
    joint = jointly(snapshot, *requests)
    given_order = of(snapshot, sequential.in_turn(snapshot, CONTEXT, requests), objective)
    assert rank(joint.search.given, objective) == rank(given_order, objective)
    assert rank(of(snapshot, joint.answers, objective), objective) == rank(joint.search.found, objective)
    assert rank(joint.search.found, objective) <= rank(given_order, objective)
    assert rank(joint.search.found, objective) <= by_brute_force(snapshot, requests)
    assert [one.request.instance.id for one in joint.answers] == [one.instance.id for one in requests]


@pytest.mark.parametrize("objective", ["worst", "total", "limits"])
def test_the_harm_of_one_is_what_its_score_lacks(objective: Objective) -> None:
    snapshot = cloud([host("a", pcpus=1)], [vm("r", "web", on="a"), vm("s", "spin", on="a")])
    joint = jointly(snapshot, question("n", objective))
    assert joint.search.found.harm == pytest.approx(1 - joint.answers[0].candidates[0].score)
    assert joint.search.tried == ("given",)


def test_who_comes_first_leaves_the_only_host_for_who_comes_later() -> None:
    joint = jointly(cloud(BIG_AND_SMALL), *FIRST_AND_LATER)
    assert on(joint) == ["small", "big"]
    assert (joint.search.chosen, joint.search.found.placed, joint.search.given.placed) == ("largest_first", 2, 1)


def test_the_same_burst_has_the_same_answer() -> None:
    snapshot = cloud([host("a", pcpus=2), host("b", pcpus=1), host("c", pcpus=1)], [vm("r", "bulk", on="a")])
    requests = [question(f"n{at}", workload=name) for at, name in enumerate(("spin", "bulk", "web"))]
    first, second = (jointly(snapshot, *requests) for _ in range(2))
    assert (first.search, on(first)) == (second.search, on(second))


def test_without_time_the_given_order_is_answered_and_says_so() -> None:
    joint = jointly(cloud(BIG_AND_SMALL), *FIRST_AND_LATER, limit_s=-math.inf)
    assert (joint.search.chosen, joint.search.tried, joint.search.ended) == ("given", ("given",), "time")
    assert on(joint) == ["big", None]


def test_whoever_is_to_be_apart_from_others_of_the_burst_is() -> None:
    snapshot = cloud([host("big", memory_mb=4000.0), host("small", pcpus=1, memory_mb=1000.0)])
    asked = [vm("lone", memory_mb=900.0), vm("b", memory_mb=1900.0), vm("c", memory_mb=1900.0)]
    joint = jointly(snapshot, *(request(one, limit=1, explain=False, anti_affinity=["lone"]) for one in asked))
    assert on(joint) == ["small", "big", "big"]
    assert joint.search.given.placed < 3


def test_own_profiles_are_planned_and_answered_as_if_they_were_known_by_name() -> None:
    snapshot = cloud([host("a", pcpus=2), host("b", pcpus=1)], [vm("r", "calm", on="b")])
    named = [question(name, workload="spin") for name in ("m", "n")]
    described = [replace(one, instance=replace(one.instance, workload=None), profile=WORKLOADS[0]) for one in named]
    own, by_name = jointly(snapshot, *described), jointly(snapshot, *named)
    assert (on(own), own.search) == (on(by_name), by_name.search)


def test_hosts_without_fresh_data_are_planned_where_they_may_answer() -> None:
    snapshot = cloud(BIG_AND_SMALL, age_s={"big": None, "small": None})
    for allowed, hosts in ((True, ["small", "big"]), (False, [None, None])):
        asked = (request(one.instance, limit=1, allow_stale=allowed) for one in FIRST_AND_LATER)
        assert on(jointly(snapshot, *asked)) == hosts


def test_who_runs_already_may_be_asked_about_in_a_burst() -> None:
    running = vm("first", on="big", memory_mb=900.0)
    assert on(jointly(cloud(BIG_AND_SMALL, [running]), *FIRST_AND_LATER)) == ["small", "big"]


def test_where_the_model_fails_the_prior_answers_all_of_a_burst() -> None:
    snapshot = cloud([host("a"), host("b")])
    joint = jointly(snapshot, question("m"), question("n"), predictor=Failing())
    assert [one.degraded for one in joint.answers] == [True, True]
    assert sorted(str(name) for name in on(joint)) == ["a", "b"]
