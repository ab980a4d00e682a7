"""Effects of known workloads: shrunken sums, and a fast path that gives the same sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import NAMES, TABLE, Scene, batch, scenes

from models.effects import Effects, fit_main, fit_pairs, joined
from models.examples import Neighbour
from models.features import cpu_overlap
from models.learned import scene_effects

KEYS = [
    *(f"{kind}|{domain}|{name}" for kind in ("victim", "neighbour") for domain in ("near", "far") for name in NAMES),
    *(f"pair|{domain}|{one}|{other}" for domain in ("near", "far") for one in NAMES for other in NAMES),
]


def random_effects(seed: int) -> Effects:
    random = np.random.default_rng(seed)
    kept = random.random(len(KEYS)) < 0.7
    return Effects({key: float(random.normal()) for key, keep in zip(KEYS, kept, strict=True) if keep})


def slow(effects: Effects, scene: Scene, known: set[str]) -> list[float]:
    """The effects of one scene by `Effects.predict`, workloads that are not known left nameless."""
    instances = scene[1]
    overlap = cpu_overlap(batch(scene))[0]
    names = [one.workload if one.workload in known else "" for one in instances]
    around = [
        [Neighbour(str(names[other]), float(overlap[slot, other])) for other in range(len(instances)) if other != slot]
        for slot in range(len(instances))
    ]
    return [float(value) for value in effects.predict([str(name) for name in names], around)]


@settings(max_examples=80, deadline=None)
@given(st.lists(scenes(), min_size=1, max_size=3), st.sets(st.sampled_from(NAMES)), st.integers(0, 5))
def test_the_fast_path_gives_the_same_sums(many: list[Scene], known: set[str], seed: int) -> None:
    effects = random_effects(seed)
    rows = np.array([row if name in known else 0 for row, name in enumerate(TABLE.names)])
    fast = scene_effects(effects, batch(*many), rows)
    for at, scene in enumerate(many):
        count = len(scene[1])
        np.testing.assert_allclose(fast[at, :count], slow(effects, scene, known), atol=1e-9)
        assert not fast[at, count:].any()


def test_an_empty_slot_has_no_effect_and_makes_none() -> None:
    effects = random_effects(1)
    from synthetic import host, instance

    full = batch((host(), [instance("a", "spin"), instance("b", "web")]))
    rows = np.arange(len(TABLE.names))
    present = np.array([[True, False]])
    assert not scene_effects(effects, replace(full, present=present), rows).any()


def test_names_without_an_effect_count_nothing() -> None:
    effects = Effects({"victim|near|a": 1.0})
    assert effects.predict(["b", "a"], [[Neighbour("a", 1.0)], [Neighbour("b", 1.0)]]).tolist() == [0.0, 1.0]
    assert effects.predict(["a"], [[]]).tolist() == [0.0]
    assert Effects().predict([], []).tolist() == []


def test_near_and_far_effects_count_by_the_overlap() -> None:
    effects = Effects({"neighbour|near|b": 1.0, "neighbour|far|b": 10.0, "pair|near|a|b": 100.0})
    assert effects.predict(["a"], [[Neighbour("b", 0.25)]])[0] == pytest.approx(0.25 + 7.5 + 25.0)


def test_the_order_of_neighbours_does_not_matter() -> None:
    around = [Neighbour("a", 0.5), Neighbour("b", 1.0), Neighbour("b", 0.0)]
    effects = random_effects(2)
    renamed = Effects({key.replace("spin", "a").replace("web", "b"): value for key, value in effects.values.items()})
    one, other = renamed.predict(["a"], [around])[0], renamed.predict(["a"], [around[::-1]])[0]
    assert one == pytest.approx(other)


def test_pair_effects_are_learned_and_shrunk() -> None:
    victims, around = ["a", "b"] * 10, [[Neighbour("b", 1.0)], [Neighbour("a", 1.0)]] * 10
    residual = np.array([0.5, -0.5] * 10)
    few, many = fit_pairs(victims[:2], around[:2], residual[:2]), fit_pairs(victims, around, residual)
    assert few.values["pair|near|a|b"] == pytest.approx(0.25, abs=1e-3)
    assert many.values["pair|near|a|b"] == pytest.approx(0.5 * 10 / 11, abs=1e-3)


def test_main_effects_are_dropped_where_they_do_not_help_on_left_out_rows() -> None:
    victims = [f"w{at}" for at in range(12)]
    around = [[Neighbour(f"w{(at + 1) % 12}", 1.0)] for at in range(12)]
    noise = np.random.default_rng(0).normal(0, 0.1, 12)
    half = np.arange(12) < 6
    folds = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    assert fit_main(victims, around, noise, folds).values == {}
    assert fit_main(victims, around, noise, []).values == {}


def test_rows_without_neighbours_have_no_effects_to_learn() -> None:
    assert fit_pairs(["a", "b"], [[], []], np.array([0.1, 0.2])).values == {}


def test_joined_effects_are_both() -> None:
    assert joined(Effects({"a": 1.0}), Effects({"b": 2.0})).values == {"a": 1.0, "b": 2.0}


def test_effects_as_json_lose_nothing() -> None:
    effects = random_effects(3)
    assert effects.to_json() == effects.values
    assert list(effects.to_json()) == sorted(effects.values)
