"""Effects of known workloads: shrunken sums, and a fast path that gives the same sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import NAMES, TABLE, Floats, Scene, batch, host, instance, scenes

from models.effects import PAIR_PENALTY, PENALTIES, Effects, choose_penalty, designs, fit_effects
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


def learned(
    victims: list[str], around: list[list[Neighbour]], residual: Floats, penalty: float | None = None
) -> Effects:
    return fit_effects(*designs(victims, around), residual, penalty)


def test_pair_effects_are_learned_and_shrunk() -> None:
    victims, around = ["a", "b"] * 10, [[Neighbour("b", 1.0)], [Neighbour("a", 1.0)]] * 10
    residual = np.array([0.5, -0.5] * 10)
    few, many = learned(victims[:2], around[:2], residual[:2]), learned(victims, around, residual)
    assert few.values["pair|near|a|b"] == pytest.approx(0.5 / (1 + PAIR_PENALTY), abs=1e-3)
    assert many.values["pair|near|a|b"] == pytest.approx(0.5 * 10 / (10 + PAIR_PENALTY), abs=1e-3)


def test_pairs_are_learned_from_what_main_effects_leave() -> None:
    names = "abcdef"
    victims = [one for one in names for _ in names]
    around = [[Neighbour(other, 1.0)] for _ in names for other in names]
    residual = np.array([0.4 if one == "a" else 0.0 for one in victims])
    found = learned(victims, around, residual, PENALTIES[0])
    assert found.values["victim|near|a"] == pytest.approx(0.4, abs=0.1)
    assert abs(found.values["pair|near|a|b"]) < 0.05
    assert learned(victims, around, residual).values.keys() == {key for key in found.values if key.startswith("pair|")}


def test_main_effects_are_dropped_where_they_do_not_help_on_left_out_rows() -> None:
    victims = [f"w{at}" for at in range(12)]
    around = [[Neighbour(f"w{(at + 1) % 12}", 1.0)] for at in range(12)]
    noise = np.random.default_rng(0).normal(0, 0.1, 12)
    half = np.arange(12) < 6
    folds = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    assert choose_penalty(designs(victims, around)[0], noise, folds) is None
    assert choose_penalty(designs(victims, around)[0], noise, []) is None


def test_rows_that_were_not_judged_teach_nothing() -> None:
    victims, around = ["a", "b"] * 10, [[Neighbour("b", 1.0)], [Neighbour("a", 1.0)]] * 10
    residual = np.array([0.5, -0.5] * 10)
    some = np.concatenate([residual[:8], np.full(12, np.nan)])
    main, pairs = designs(victims, around)
    kept = fit_effects(*designs(victims[:8], around[:8]), residual[:8], 2.0)
    assert fit_effects(main, pairs, some, 2.0).values == pytest.approx(kept.values, abs=1e-6)
    assert fit_effects(main, pairs, np.full(20, np.nan), 2.0).values == {}
    folds = [(np.arange(0, 20, 2), np.arange(1, 20, 2)), (np.arange(4), np.arange(4, 20))]
    assert choose_penalty(main, some, folds) in {None, *PENALTIES}


def test_rows_without_neighbours_have_no_effects_to_learn() -> None:
    assert learned(["a", "b"], [[], []], np.array([0.1, 0.2]), 2.0).values == {}
    assert learned([], [], np.zeros(0), 2.0).values == {}


def error_of_a_new_workload(pairs: int, seed: int) -> float:
    """Mean |error| on pairs of a new workload that were not measured, `pairs` of it were. Effects on the log ratio are
    known: each workload has one as victim and one as neighbour, each pair one of its own, each row noise."""
    random = np.random.default_rng(seed)
    count = 16
    names = [f"w{at}" for at in range(count)]
    victim, neighbour = random.normal(0, 0.3, (2, count))
    own = random.normal(0, 0.05, (count, count))
    new = count - 1
    order = random.permutation(new)
    measured = [(one, other) for one in range(new) for other in range(new) if one != other]
    measured += [pair for other in order[:pairs] for pair in ((new, int(other)), (int(other), new))]
    asked = [pair for other in order[8:] for pair in ((new, int(other)), (int(other), new))]

    def rows(which: list[tuple[int, int]]) -> tuple[list[str], list[list[Neighbour]], Floats]:
        truth = np.array([victim[one] + neighbour[other] + own[one, other] for one, other in which])
        return [names[one] for one, _ in which], [[Neighbour(names[other], 1.0)] for _, other in which], truth

    victims, around, truth = rows(measured)
    main, of_pairs = designs(victims, around)
    effects = fit_effects(main, of_pairs, truth + random.normal(0, 0.02, len(truth)), PENALTIES[0])
    victims, around, truth = rows(asked)
    return float(np.abs(effects.predict(victims, around) - truth).mean())


def test_a_new_workload_gets_steadily_better_with_each_pair_that_is_measured() -> None:
    errors = [np.mean([error_of_a_new_workload(pairs, seed) for seed in range(12)]) for pairs in (0, 1, 2, 4, 8)]
    assert (np.diff(errors) < 0).all(), errors
    assert errors[1] < 0.75 * errors[0]
    assert errors[-1] < 0.35 * errors[0]


def test_effects_as_json_lose_nothing() -> None:
    effects = random_effects(3)
    assert effects.to_json() == effects.values
    assert list(effects.to_json()) == sorted(effects.values)
