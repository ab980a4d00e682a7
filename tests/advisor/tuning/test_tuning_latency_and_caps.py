"""Latency counts where an instance is sensitive to it, and caps are lifted only where that is allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance
from advisor.tuning.host import tune_host
from advisor.tuning.layouts import felt
from models.physics.prior import PriorPredictor
from tests.advisor.tuning.tuning_hosts import carried_out, expected, snapshot, tuned, vm
from tests.examples import examples

KVM = Host("h", "kvm", 4, 8192)


def capped(instance: Instance, percent: float) -> Instance:
    return replace(instance, settings=replace(instance.settings, cap_percent=percent))


def latency(host: Host, *residents: Instance) -> dict[str, float]:
    """Expected latency ratio of each instance."""
    there = snapshot(host, *residents)
    expected = PriorPredictor().predict(there.scenes).latency.expected[0]
    return dict(zip([one.id for one in there.residents[0]], expected.tolist(), strict=False))


def test_an_instance_that_answers_late_is_freed_though_its_throughput_is_kept() -> None:
    quick = vm("quick", 0.2, (0,), service="latency")
    residents = (quick, vm("b", 0.3, (0,)), vm("c", 0.3, (0,)))
    found = tuned(KVM, *residents)
    host, there = carried_out(found, residents)[-1]
    before, after = latency(KVM, *residents)["quick"], latency(host, *there)["quick"]
    assert before > 1.3
    assert after < 1.05
    indifferent = tuned(KVM, replace(quick, service="throughput"), *residents[1:])
    assert found.found.value - found.found.before > indifferent.found.value - indifferent.found.before


def test_a_limit_of_latency_comes_before_what_all_gain() -> None:
    residents = (
        vm("quick", 0.3, (0,), max_latency_ratio=1.1),
        *(vm(f"b{at}", 0.6, (0, 1), vcpus=2) for at in range(3)),
    )
    found = tuned(KVM, *residents)
    host, there = carried_out(found, residents)[-1]
    assert latency(KVM, *residents)["quick"] > 1.1 >= latency(host, *there)["quick"] - 1e-6


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3), st.lists(st.floats(0.9, 50.0), min_size=3, max_size=3))
@settings(max_examples=examples(100))
def test_what_counts_of_a_sensitive_instance_lies_between_its_throughput_and_its_speed(
    kept: list[float], waits: list[float]
) -> None:
    sensitive = np.array([True, False, True])
    counts = felt(np.array(kept), np.array(waits), sensitive)
    assert counts[1] == kept[1]
    for at in (0, 2):
        low, high = sorted((kept[at], 1 / max(waits[at], 1.0)))
        assert low - 1e-12 <= counts[at] <= high + 1e-12


ROOM = (capped(vm("held", 0.9), 40.0), vm("calm", 0.2))


def test_a_cap_that_hurts_though_the_host_has_room_stays_and_a_note_says_so() -> None:
    found = tuned(KVM, *ROOM)
    assert found.changes == ()
    (note,) = found.notes
    assert "held" in note
    assert "lift_cap" in note
    assert tuned(KVM, vm("free", 0.9), vm("calm", 0.2)).notes == ()
    assert tuned(KVM, capped(vm("held", 0.2), 100.0), vm("calm", 0.2)).notes == ()


def test_a_cap_is_raised_where_that_is_allowed_and_goes_back_with_undo() -> None:
    found = tune_host(snapshot(KVM, *ROOM), 0, PriorPredictor(), allow="lift_cap")
    (change,) = found.changes
    assert change.then is not None
    assert change.former is not None
    assert (change.then.id, change.former.settings.cap_percent) == ("held", 40.0)
    assert 40 < (change.then.settings.cap_percent or 0) <= 100
    (effect,) = change.effects
    assert effect.before is not None
    assert effect.throughput_ratio.expected > effect.before.expected + 0.3
    assert found.notes == ()


def test_a_raised_cap_breaks_no_limit_of_others() -> None:
    host = Host("h", "kvm", 1, 8192)
    residents = (capped(vm("hog", 0.97), 30.0), vm("a", 0.6, min_throughput_ratio=0.9))
    found = tune_host(snapshot(host, *residents), 0, PriorPredictor(), allow="lift_cap")
    states = carried_out(found, residents)
    before, after = (expected(on, *there)["a"] for on, there in (states[0], states[-1]))
    assert after >= min(before, 0.9) - 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_without_being_allowed_no_cap_is_looser(seed: int) -> None:
    random = np.random.default_rng(seed)
    residents = tuple(
        capped(vm(f"v{at}", float(random.uniform(0.2, 1.0)), (0,) if at % 2 else ()), float(random.uniform(20, 120)))
        for at in range(3)
    )
    for change in tuned(Host("h", "lxc", 3, 8192), *residents).changes:
        if change.then and change.former:
            assert (change.then.settings.cap_percent or 1e9) <= (change.former.settings.cap_percent or 1e9)
