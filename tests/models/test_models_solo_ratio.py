"""Solo ratios: each instance alone under its own limits, whichever slot it has and whoever is beside it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.scene import SCENE_FIELDS, SLOT_FIELDS, slot_values
from models.features.feature_matrix import solo_ratio
from models.physics.prior import solve
from profiler.observed import PROBED_VALUES, Instance
from tests.examples import examples
from tests.models.synthetic import Scene, batch, host, instance, scenes

PROBED = st.dictionaries(st.sampled_from(sorted(PROBED_VALUES)), st.sampled_from([50.0, 1000.0, 20_000.0]), max_size=3)


@st.composite
def probed_scenes(draw: st.DrawFn) -> Scene:
    """A host on which probes may have found something, with up to 14 residents, of which any may have limits."""
    there, residents = draw(scenes(most=14))
    return replace(there, probed=draw(PROBED)), residents


@settings(max_examples=examples(60))
@given(many=st.lists(probed_scenes(), min_size=1, max_size=3), target=st.sampled_from(["throughput", "latency"]))
def test_each_instance_has_the_ratio_that_it_has_as_the_only_one_of_its_host(many: list[Scene], target: str) -> None:
    found = solo_ratio(batch(*many), target)
    for at, (there, residents) in enumerate(many):
        for slot, one in enumerate(residents):
            limits = one.settings.cap_percent, one.settings.network, one.settings.disk_limit_mb_s
            alone = 1.0 if limits == (None, None, None) else getattr(solve(batch((there, [one]))), target)[0, 0]
            assert found[at, slot] == pytest.approx(alone, rel=1e-12)
        assert (found[at, len(residents) :] == 1.0).all()


def test_what_probes_found_on_a_host_counts_for_each_of_its_residents() -> None:
    there = host("kvm", 8, probed={"disk_mb_s": 100.0})
    residents = [instance(f"i{at}", "disk", disk_limit_mb_s=50.0) for at in range(12)]
    found = solo_ratio(batch((there, residents)), "throughput")[0]
    assert found == pytest.approx(np.full(12, solo_ratio(batch((there, residents[:1])), "throughput")[0, 0]))


def test_a_batch_refuses_an_array_that_is_not_over_its_scenes_and_slots() -> None:
    good = batch((host("kvm", 2), [instance("a"), instance("b")]), (host("kvm", 2), [instance("c")]))
    for name in SCENE_FIELDS:
        with pytest.raises(ValueError, match=name):
            replace(good, **{name: getattr(good, name)[:1]})
    for name in SLOT_FIELDS[1:]:
        with pytest.raises(ValueError, match=name):
            replace(good, **{name: getattr(good, name)[:, :1]})


def test_every_field_of_a_slot_comes_from_an_instance() -> None:
    assert set(slot_values(Instance("any"), 0, np.ones(1, dtype=bool))) == set(SLOT_FIELDS)
