"""Effects of known workloads: shrunken sums, and a fast path that gives the same sums."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.topology import cpu_overlap
from models.features.examples import Neighbour
from models.learning.effects import (
    PAIR_PENALTY,
    PENALTIES,
    RANKS,
    Effects,
    Regularisation,
    choose_regularisation,
    fit_effects,
    terms_of,
)
from models.learning.learned_predictor import scene_effects
from tests.examples import examples
from tests.models.synthetic import NAMES, TABLE, Scene, batch, host, instance, scenes

KEYS = [
    *(f"{kind}|{domain}|{name}" for kind in ("victim", "neighbour") for domain in ("near", "far") for name in NAMES),
    *(f"pair|{domain}|{one}|{other}" for domain in ("near", "far") for one in NAMES for other in NAMES),
]


def random_effects(seed: int) -> Effects:
    random = np.random.default_rng(seed)
    kept = random.random(len(KEYS)) < 0.7
    values = {key: float(random.normal()) for key, keep in zip(KEYS, kept, strict=True) if keep}
    sides = [key for key in values if not key.startswith("pair|")]
    return Effects(values, {key: tuple(random.normal(size=2).tolist()) for key in sides if random.random() < 0.7})


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


@settings(max_examples=examples(80), deadline=None)
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


def learned(
    victims: list[str], around: list[list[Neighbour]], residual: Floats, penalty: float | None = None
) -> Effects:
    return fit_effects(terms_of(victims, around), residual, Regularisation(penalty))


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


def pairs_of(victims: list[str], around: list[list[Neighbour]]) -> list[str]:
    return [
        "+".join(sorted([one, *(other.workload for other in beside)]))
        for one, beside in zip(victims, around, strict=True)
    ]


def test_main_effects_are_dropped_where_they_do_not_help_on_left_out_rows() -> None:
    victims = [f"w{at}" for at in range(12)]
    around = [[Neighbour(f"w{(at + 1) % 12}", 1.0)] for at in range(12)]
    noise = np.random.default_rng(0).normal(0, 0.1, 12)
    half = np.arange(12) < 6
    folds = [(np.flatnonzero(half), np.flatnonzero(~half)), (np.flatnonzero(~half), np.flatnonzero(half))]
    terms, pairs = terms_of(victims, around), pairs_of(victims, around)
    assert choose_regularisation(terms, noise, folds, pairs)[0] == Regularisation()
    assert choose_regularisation(terms, noise, [], pairs) == (Regularisation(), ())


def test_rows_that_were_not_judged_teach_nothing() -> None:
    victims, around = ["a", "b"] * 10, [[Neighbour("b", 1.0)], [Neighbour("a", 1.0)]] * 10
    residual = np.array([0.5, -0.5] * 10)
    some = np.concatenate([residual[:8], np.full(12, np.nan)])
    terms, strong = terms_of(victims, around), Regularisation(2.0, 2, 1.0)
    kept = fit_effects(terms_of(victims[:8], around[:8]), residual[:8], strong)
    found = fit_effects(terms, some, strong)
    assert found.values == pytest.approx(kept.values, abs=1e-6)
    assert found.predict(victims, around) == pytest.approx(kept.predict(victims, around), abs=1e-6)
    assert fit_effects(terms, np.full(20, np.nan), strong) == Effects()
    folds = [(np.arange(0, 20, 2), np.arange(1, 20, 2)), (np.arange(4), np.arange(4, 20))]
    assert choose_regularisation(terms, some, folds, pairs_of(victims, around))[0].main in {None, *PENALTIES}


def test_rows_without_neighbours_have_no_effects_to_learn() -> None:
    assert learned(["a", "b"], [[], []], np.array([0.1, 0.2]), 2.0).values == {}
    assert learned([], [], np.zeros(0), 2.0).values == {}


PLANTED = 12  # workloads of the made-up clouds below: 132 ordered pairs of two


def cloud(seed: int, scale: float = 0.3) -> tuple[list[str], list[list[Neighbour]], Floats]:
    """Every ordered pair of workloads with a log ratio that is the product of two numbers of the victim with two of the
    neighbour, and none of either alone."""
    left, right = np.random.default_rng(seed).normal(0, 1, (2, PLANTED, 2))
    pairs = [(one, other) for one in range(PLANTED) for other in range(PLANTED) if one != other]
    truth = np.array([scale * left[one] @ right[other] for one, other in pairs])
    return [f"w{one}" for one, _ in pairs], [[Neighbour(f"w{other}", 1.0)] for _, other in pairs], truth


def folds_by_pair(pairs: list[str], seed: int, count: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    names = sorted(set(pairs))
    number = dict(zip(names, np.random.default_rng(seed).permutation(len(names)) % count, strict=True))
    fold = np.array([number[pair] for pair in pairs])
    return [(np.flatnonzero(fold != one), np.flatnonzero(fold == one)) for one in range(count)]


@pytest.mark.parametrize("seed", range(4))
def test_products_of_two_numbers_each_are_found_for_pairs_that_were_left_out(seed: int) -> None:
    victims, around, truth = cloud(seed)
    residual = truth + np.random.default_rng(seed).normal(0, 0.03, len(truth))
    terms, pairs = terms_of(victims, around), pairs_of(victims, around)
    trained, asked = folds_by_pair(pairs, seed)[0]
    residual[asked] = np.nan
    strength, _ = choose_regularisation(terms, residual, folds_by_pair(pairs, seed + 9), pairs)
    assert strength.rank in RANKS
    said = {one: fit_effects(terms, residual, one).predict(victims, around) for one in (strength, Regularisation(2.0))}
    errors = {one: np.abs(guess - truth)[asked].mean() for one, guess in said.items()}
    assert errors[strength] < 0.5 * min(errors[Regularisation(2.0)], np.abs(truth[asked]).mean())
    assert len(trained)


def test_rows_have_no_say_in_the_strength_by_which_they_are_judged() -> None:
    victims, around, truth = cloud(2)
    terms, pairs = terms_of(victims, around), pairs_of(victims, around)
    folds = folds_by_pair(pairs, 3)
    _, before = choose_regularisation(terms, truth, folds, pairs)
    changed = truth.copy()
    changed[folds[0][1]] = np.random.default_rng(0).normal(0, 5.0, len(folds[0][1]))
    others = [(np.setdiff1d(trained, folds[0][1]), rows) for trained, rows in folds[1:]]
    alone = choose_regularisation(terms, truth, [(folds[0][0], folds[0][1]), *others], pairs)[1]
    _, after = choose_regularisation(terms, changed, [(folds[0][0], folds[0][1]), *others], pairs)
    assert after[0] == alone[0]
    assert before[0].rank
    assert after[1] != alone[1]


def test_factors_are_not_taken_from_noise() -> None:
    victims, around, truth = cloud(0)
    terms, pairs = terms_of(victims, around), pairs_of(victims, around)
    taken = 0
    for seed in range(10):
        noise = np.random.default_rng(seed).normal(0, 0.1, len(truth))
        taken += choose_regularisation(terms, noise, folds_by_pair(pairs, seed), pairs)[0].rank > 0
    assert taken <= 2


def test_the_same_rows_give_the_same_factors() -> None:
    victims, around, truth = cloud(1)
    one, other = (fit_effects(terms_of(victims, around), truth, Regularisation(2.0, 2, 1.0)) for _ in range(2))
    assert one == other


def test_factors_of_several_neighbours_add_up_by_their_shares() -> None:
    effects = Effects(
        {}, {"victim|near|a": (1.0, 2.0), "neighbour|near|b": (3.0, 0.5), "victim|far|a": (1.0, 0.0),
             "neighbour|far|b": (10.0, 7.0), "neighbour|near|c": (0.0, -1.0)},
    )  # fmt: skip
    around = [Neighbour("b", 0.25), Neighbour("c", 1.0), Neighbour("d", 1.0)]
    for order in (around, around[::-1]):
        assert effects.predict(["a"], [order])[0] == pytest.approx(0.25 * 4.0 + 0.75 * 10.0 - 2.0)
    assert effects.predict(["b"], [[Neighbour("a", 1.0)]]).tolist() == [0.0]


def test_factors_are_learned_from_runs_of_three_too() -> None:
    """As from pairs, where what neighbours do adds up."""
    victims, around, truth = cloud(2)
    told = {(one, beside[0].workload): value for one, beside, value in zip(victims, around, truth, strict=True)}
    random = np.random.default_rng(0)
    names = sorted(set(victims))
    runs = [random.choice(names, 3, replace=False).tolist() for _ in range(400)]
    beside = [[Neighbour(other, 1.0) for other in run[1:]] for run in runs]
    residual = np.array([told[run[0], run[1]] + told[run[0], run[2]] for run in runs])
    found = fit_effects(terms_of([run[0] for run in runs], beside), residual, Regularisation(None, 2, 0.1))
    only = Effects({}, found.factors)
    assert np.abs(only.predict(victims, around) - truth).mean() < 0.25 * np.abs(truth).mean()


def error_of_a_new_workload(pairs: int, seed: int, *, products: bool) -> float:
    """Mean |error| on pairs of a new workload that were not measured, `pairs` of it were. Effects on the log ratio are
    known: each workload has one as victim and one as neighbour, or a product of both, each pair one of its own, each
    row noise."""
    random = np.random.default_rng(seed)
    count = 16
    names = [f"w{at}" for at in range(count)]
    victim, neighbour = random.normal(0, 0.3, (2, count))
    own = random.normal(0, 0.05, (count, count))
    left, right = random.normal(0, 0.5, (2, count, 2)) if products else np.zeros((2, count, 2))
    new = count - 1
    order = random.permutation(new)
    measured = [(one, other) for one in range(new) for other in range(new) if one != other]
    measured += [pair for other in order[:pairs] for pair in ((new, int(other)), (int(other), new))]
    asked = [pair for other in order[8:] for pair in ((new, int(other)), (int(other), new))]

    def rows(which: list[tuple[int, int]]) -> tuple[list[str], list[list[Neighbour]], Floats]:
        truth = np.array([victim[one] + neighbour[other] + own[one, other] + left[one] @ right[other]
                          for one, other in which])  # fmt: skip
        return [names[one] for one, _ in which], [[Neighbour(names[other], 1.0)] for _, other in which], truth

    victims, around, truth = rows(measured)
    strength = Regularisation(PENALTIES[0], 2, 1.0) if products else Regularisation(PENALTIES[0])
    effects = fit_effects(terms_of(victims, around), truth + random.normal(0, 0.02, len(truth)), strength)
    victims, around, truth = rows(asked)
    return float(np.abs(effects.predict(victims, around) - truth).mean())


@pytest.mark.parametrize("products", [False, True])
def test_a_new_workload_gets_steadily_better_with_each_pair_that_is_measured(products: bool) -> None:
    errors = [
        np.mean([error_of_a_new_workload(pairs, seed, products=products) for seed in range(12)])
        for pairs in (0, 1, 2, 4, 8)
    ]
    assert (np.diff(errors) < 0).all(), errors
    assert errors[1] < (0.99 if products else 0.75) * errors[0]
    assert errors[-1] < (0.5 if products else 0.35) * errors[0]


def test_effects_as_json_lose_nothing() -> None:
    effects = replace(random_effects(3), factors={"victim|near|b": (1.5, -0.25), "neighbour|far|a": (0.0, 1e-300)})
    told = effects.to_json()
    assert Effects.from_json(json.loads(json.dumps(told))) == effects
    assert list(told["values"]) == sorted(effects.values)
    assert list(told["factors"]) == ["neighbour|far|a", "victim|near|b"]


def test_factors_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in number"):
        Effects.from_json({"values": {}, "factors": {"victim|near|a": [1.0], "neighbour|near|a": [1.0, 2.0]}})
