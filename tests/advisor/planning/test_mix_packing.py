"""Filling a cloud with a mix: as many as trying everything finds, a bound that holds, and a plan whenever it ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Instance
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.assignment.mix_packing import hosts_in_turn, pack_mix
from advisor.planning.assignment.packing_problem import Goal, Kinds, build_problem
from advisor.planning.assignment.search_state import PatternEvaluator, SearchState
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_cases import host, snapshot, vm
from tests.examples import examples

MOST = 100
HOSTS = (host("h1", 6000), host("h2", 4000, pcpus=3))


def filled(there: list[Instance], mix: list[Instance]) -> SearchState:
    goal = Goal("admit", tuple(mix), keep_ratio=0.8)
    problem = build_problem(snapshot(HOSTS, *there), goal, math.inf)
    return SearchState.of(PatternEvaluator.of(problem, PriorPredictor()), "worst")


def held(state: SearchState, several: Iterable[tuple[int, Kinds]]) -> list[tuple[int, Kinds]]:
    """Those of several hosts with movers on which no limit breaks."""
    fitting = [one for one in several if state.problem.fits(*one)]
    state.evaluator.evaluate(fitting)
    return [one for one in fitting if state.feasible(*one)]


def most_of_all(state: SearchState, mix: tuple[int, ...]) -> int:
    """How many of the mix in turn fit, by every choice of a host for each."""
    no_instance: tuple[int, ...] = ()
    best, clouds = 0, {(no_instance,) * len(HOSTS)}
    while clouds and best < MOST:
        kind = mix[best % len(mix)]
        more = {(at, cloud): tuple(sorted((*cloud[at], kind))) for cloud in clouds for at in range(len(HOSTS))}
        good = set(held(state, {(at, movers) for (at, _), movers in more.items()}))
        clouds = {
            (*cloud[:at], movers, *cloud[at + 1 :]) for (at, cloud), movers in more.items() if (at, movers) in good
        }
        best += bool(clouds)
    return best


SIZES = st.builds(
    vm,
    st.just("x"),
    st.sampled_from(["cpu", "web", "bulk"]),
    memory_mb=st.sampled_from([900.0, 1300.0, 2100.0]),
    load=st.sampled_from([0.2, 0.6]),
    min_throughput_ratio=st.sampled_from([None, 0.95]),
)


@given(st.lists(SIZES, max_size=2), st.lists(SIZES, min_size=1, max_size=3))
@settings(max_examples=examples(25), deadline=None)
def test_as_many_of_a_mix_fit_as_trying_every_host_for_each_finds_and_that_is_proven(
    residents: list[Instance], members: list[Instance]
) -> None:
    there = [
        replace(one, id=f"r{at}", host=f"h{at + 1}", min_throughput_ratio=None) for at, one in enumerate(residents)
    ]
    mix = [replace(one, id=f"m{at}") for at, one in enumerate(members)]
    state = filled(there, mix)
    found = pack_mix(state, state.problem.waiting, MOST, SearchClock.of(60.0))
    assert (found.fit, found.bound, found.in_time) == (best := most_of_all(state, state.problem.waiting), best, True)
    assert len(held(state, enumerate(found.movers))) == len(HOSTS)
    hosts = hosts_in_turn(found.movers, state.problem.waiting, found.fit)
    assert sum(map(len, found.movers)) == len(hosts) == found.fit


def test_whenever_the_time_ends_there_is_a_plan_and_a_bound() -> None:
    state = filled([vm("r", on="h1")], [vm("a", memory_mb=300), vm("b", "web", memory_mb=500)])
    late = pack_mix(state, state.problem.waiting, MOST, SearchClock.of(0.0))
    whole = pack_mix(state, state.problem.waiting, MOST, SearchClock.of(60.0))
    assert not late.in_time
    assert 0 <= late.fit <= whole.fit == whole.bound <= late.bound
