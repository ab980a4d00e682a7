"""The order of changes: no instance is worse off on the way than before and after, where there is such an order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Inventory, IsolationSettings, Pinning
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import FELT, tune_host
from models.physics.prior import PriorPredictor
from profiler.host_kinds import HOST_KINDS
from research.benchmarks.tuning import small
from tests.advisor.tuning.tuning_hosts import NOW, carried_out, expected, server, tuned, vm
from tests.examples import examples


def dips(found: object, residents: tuple[object, ...]) -> float:
    """The most that an instance lacks on the way against the worse of both ends, predicted of each state built anew."""
    states = [expected(host, *there) for host, there in carried_out(found, residents)]  # type: ignore[arg-type]
    floor = {name: min(states[0][name], states[-1][name]) for name in states[0]}
    return max((floor[name] - state[name] for state in states for name in floor), default=0.0)


@given(st.integers(0, 2**31), st.sampled_from(HOST_KINDS))
@settings(max_examples=examples(60), deadline=None)
def test_a_dip_on_the_way_is_none_or_is_noted(seed: int, kind: str) -> None:
    case = small(kind, np.random.default_rng(seed))  # type: ignore[arg-type]
    residents = tuple(
        replace(one, host="h", workload="sender" if one.workload else None) for one in case.residents
    )  # fmt: skip
    found = tuned(replace(case.host, id="h"), *residents)
    dip = dips(found, residents)
    assert dip <= FELT + 1e-9 or any("between two of the changes" in note for note in found.notes)


def test_those_who_change_places_do_not_meet() -> None:
    """Ten times: each of two pairs on one CPU, with two idle; whatever is changed, no pair meets three to a CPU."""
    for busy in np.linspace(0.5, 0.95, 10):
        residents = tuple(vm(f"v{at}", float(busy), (at // 2,)) for at in range(4))
        found = tuned(Host("h", "kvm", 4, 8192), *residents)
        assert found.changes
        assert dips(found, residents) <= FELT


def test_effects_of_changes_join_without_a_gap() -> None:
    residents = tuple(vm(f"v{at}", 0.8, (at // 3,)) for at in range(6))
    found = tuned(Host("h", "kvm", 6, 8192), *residents)
    states = [expected(host, *there) for host, there in carried_out(found, residents)]
    for number, change in enumerate(found.changes):
        for effect in change.effects:
            assert effect.before is not None
            assert abs(effect.before.expected - states[number][effect.instance]) < 1e-6
            assert abs(effect.throughput_ratio.expected - states[number + 1][effect.instance]) < 1e-6
            assert effect.throughput_ratio.lower <= effect.throughput_ratio.expected <= effect.throughput_ratio.upper
    assert len(found.changes) > 1


def test_a_host_among_wider_ones_is_tuned_as_by_itself() -> None:
    there = Host("h", "kvm", 4, 8192, siblings=((0, 1),))
    residents = tuple(vm(f"v{at}", 0.8, (0,)) for at in range(3))
    cloud = Inventory((there, replace(there, id="wide", pcpus=8)), residents)
    wide = ClusterSnapshot.build(cloud, seen={"h": NOW, "wide": NOW}, pending=(), taken_at=NOW)
    assert tune_host(wide, 0, PriorPredictor()).changes == tuned(there, *residents).changes != ()


def test_settings_that_do_not_change_stay_as_they_are_written() -> None:
    pinned = vm("a", 0.6, (0,))
    weighed = replace(pinned, settings=IsolationSettings(Pinning(((0,),)), cap_percent=90, weight=300))
    found = tuned(Host("h", "kvm", 4, 8192), weighed, vm("b", 0.6, (0,)), vm("c", 0.6, (1,)))
    for change in found.changes:
        if change.then is not None and change.then.id == "a":
            assert (change.then.settings.cap_percent, change.then.settings.weight) == (90, 300)


def test_on_kvm_the_driver_domain_comes_last_because_pins_take_emulator_threads_along() -> None:
    host = Host("h", "kvm", 4, 8192, driver_cpus=(0,))
    residents = (server("a", (), "sender"), server("b", (1,), "sender"), vm("c", 0.9, (1,)), vm("d", 0.9, (1,)))
    found = tuned(host, *residents)
    of_driver = [number for number, change in enumerate(found.changes) if change.then is None]
    assert of_driver == [len(found.changes) - 1]
    assert len(found.changes) > 1
