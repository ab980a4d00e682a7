"""No row is judged by a model that saw its pair or its workload: a leak that is planted is caught."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.features.folds import Fold
from models.features.repeats import GroupedExamples
from models.learning import cross_validation
from models.learning.boosting import SEEDS_OF_MANY
from models.learning.cross_validation import OutOfFoldPredictions, cross_val_predict, expanded, with_effects
from models.learning.effects import PENALTIES, Regularisation, terms_of
from models.learning.residual_model import BASE_LEARNERS, LEAST_ROWS, StackingWeights
from tests.examples import examples
from tests.models.made_examples import Group, grouped

PROTOCOLS = ("unseen_pair", "unseen_workload")
GROUPS = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3).map(tuple), min_size=10, max_size=40)


def silent(_done: float) -> None:
    """Nobody wants to know how far it is."""


class Memory:
    """Members that say which rows they were fitted on: 1 for what they saw, 0 for what they did not."""

    def __init__(self, rows: GroupedExamples, which: np.ndarray, boosters: int) -> None:
        self.boosters = boosters
        self.seen = {float(one) for one in rows.examples.x[which, 0]}
        self.workloads = set(rows.examples.take(which).workloads)
        self.pairs = {rows.examples.pair[row] for row in which}

    def predict(self, x: Floats, _base: Floats) -> Floats:
        found = np.array([float(one) in self.seen for one in x[:, 0]])
        return np.repeat(found[:, None] * 1.0, len(BASE_LEARNERS), axis=1)


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[Memory]:
    """Members that remember; those that were made, in order."""
    made: list[Memory] = []

    def fit(rows: GroupedExamples, which: np.ndarray, *, boosters: int, **_: object) -> Memory:
        made.append(Memory(rows, which, boosters))
        return made[-1]

    monkeypatch.setattr(cross_validation, "fit_base_learners", fit)
    return made


@pytest.mark.hypothesis
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_row_is_judged_by_members_that_saw_its_pair_or_workload(protocol: str, memories: list[Memory]) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(GROUPS, st.integers(0, 3))
    def check(groups: list[Group], seed: int) -> None:
        memories.clear()
        rows = grouped(groups)
        found = cross_val_predict(rows, protocol, seed=seed, say=silent)
        assert not found.parts.any()
        for row, fold, known in zip(found.row, found.fold, found.known, strict=True):
            saw, workloads = memories[fold], set(rows.examples.pair[row].split("+"))
            assert rows.examples.pair[row] not in saw.pairs
            assert known == (workloads <= saw.workloads)
            if protocol == "unseen_workload":
                assert not known
        if protocol == "unseen_pair" and len(found.folds) > 1:
            assert len(found.row) == len(set(found.row.tolist()))

    check()


def random_rows(examples: object, _protocol: str, seed: int) -> list[Fold]:
    """What `folds_for` must not do."""
    number = np.random.default_rng(seed).integers(0, 5, len(examples))  # type: ignore[arg-type]
    return [(np.flatnonzero(number != fold), np.flatnonzero(number == fold)) for fold in range(5)]


def chance(seed: int) -> GroupedExamples:
    """Every pair of workloads has a residual by chance, which six settings of it share and one feature names."""
    names = [f"w{at}" for at in range(9)]
    pairs: list[Group] = [(one, other) for at, one in enumerate(names) for other in names[at + 1 :]]
    random = np.random.default_rng(seed)
    residual = np.repeat(random.normal(0, 0.4, len(pairs)), 6)
    label = np.repeat(random.permutation(len(pairs)) * 10.0, 6) + np.tile(np.arange(6), len(pairs))
    groups = [pair for pair in pairs for _ in range(6)]
    return grouped(groups, ratio=0.6 * np.exp(residual), base=0.6, x=label[:, None], names=("own cpu",))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_target_that_is_chance_cannot_be_foretold_for_what_was_left_out(protocol: str) -> None:
    found = cross_val_predict(chance(0), protocol, seed=0, say=silent)
    agreement = [np.corrcoef(found.parts[:, one], chance(0).residual[found.row])[0, 1] for one in range(2)]
    assert max(agreement) < 0.35


def test_the_same_target_can_be_foretold_where_folds_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    monkeypatch.setattr(cross_validation, "folds_for", random_rows)
    found = cross_val_predict(chance(0), "unseen_pair", seed=0, say=silent)
    agreement = [np.corrcoef(found.parts[:, one], chance(0).residual[found.row])[0, 1] for one in range(2)]
    assert min(agreement) > 0.6


def test_effects_come_from_the_rows_that_were_not_left_out(memories: list[Memory]) -> None:
    """A victim that alone is off by much has no effect where it is left out."""
    names = "abcdefgh"
    groups: list[Group] = [(one, other) for one in names for other in names if one != other]
    rows = grouped(groups, ratio=np.array([0.2 if one == "a" else 0.8 for one, _ in groups]))
    terms = terms_of(rows.examples.victim, rows.examples.neighbours)
    off = np.array([one == "a" for one, _ in groups])
    judged = {protocol: cross_val_predict(rows, protocol, seed=0, say=silent) for protocol in PROTOCOLS}
    said = {
        protocol: with_effects(one, terms, rows.residual, [Regularisation(PENALTIES[0])] * len(one.folds))
        for protocol, one in judged.items()
    }
    by_pair = said["unseen_pair"]
    assert (by_pair.effects[off[by_pair.row]] < -0.7).all()
    left_out = said["unseen_workload"]
    without_a = np.array(["a" not in memories[-len(left_out.folds) :][fold].workloads for fold in left_out.fold])
    assert without_a.any()
    assert np.abs(left_out.effects[without_a]).max() < 0.05
    assert not with_effects(by_pair, terms, rows.residual, [Regularisation()] * len(by_pair.folds)).effects.any()


def test_factors_come_from_the_rows_that_were_not_left_out(memories: list[Memory]) -> None:
    """What a pair adds is a product of two numbers: found where only the pair is left out, 0 where a workload is."""
    names = "abcdefgh"
    groups: list[Group] = [(one, other) for one in names for other in names if one != other]
    product = np.array([names.index(one) * names.index(other) for one, other in groups]) / 40
    rows = grouped(groups, ratio=0.8 * np.exp(-product))
    terms = terms_of(rows.examples.victim, rows.examples.neighbours)
    judged = [cross_val_predict(rows, protocol, seed=0, say=silent) for protocol in PROTOCOLS]
    by_pair, by_workload = (
        with_effects(one, terms, rows.residual, [Regularisation(None, 2, 0.1)] * len(one.folds)) for one in judged
    )
    assert memories
    assert np.corrcoef(by_pair.effects, -product[by_pair.row])[0, 1] > 0.9
    assert not by_workload.effects.any()


def test_many_rows_are_judged_by_as_many_boosters_as_answer(memories: list[Memory]) -> None:
    names = [f"w{at}" for at in range(8)]
    cross_val_predict(grouped([(one, other) for one in names for other in names]), "unseen_pair", seed=0, say=silent)
    assert {memory.boosters for memory in memories} == {SEEDS_OF_MANY}


def test_too_few_rows_to_train_on_are_not_judged(memories: list[Memory]) -> None:
    rows = grouped([("a", "b"), ("b", "c")] * (LEAST_ROWS // 2))
    for protocol in PROTOCOLS:
        found = cross_val_predict(rows, protocol, seed=0, say=silent)
        assert len(found.row) == len(found.known) == len(found.fold) == 0
        assert found.parts.shape == (0, len(BASE_LEARNERS))
        assert expanded(found, rows.group)[0].shape == (0,)
    assert memories == []


def test_judgements_of_groups_become_judgements_of_every_repeat() -> None:
    group = np.array([1, 0, 1, 2, 1])
    found = OutOfFoldPredictions(
        "unseen_workload",
        row=np.array([1, 0, 1]),  # the second one is left out with either of its workloads
        parts=np.zeros((3, 4)),
        effects=np.zeros(3),
        known=np.zeros(3, dtype=bool),
        fold=np.array([0, 0, 1]),
        folds=(),
    )
    rows, judgement = expanded(found, group)
    assert rows.tolist() == [0, 2, 4, 1, 0, 2, 4]
    assert judgement.tolist() == [0, 0, 0, 1, 2, 2, 2]


def test_a_blend_is_taken_by_what_is_known() -> None:
    parts = np.array([[0.4, 0.0, 0.0], [0.4, 0.0, 0.0]])
    none = np.zeros(2, dtype=np.int64)
    found = OutOfFoldPredictions("unseen_pair", none, parts, np.array([0.1, 0.1]), np.array([True, False]), none, ())
    said = found.correction(StackingWeights((1.0, 0.0, 0.0), 1.0), StackingWeights((0.5, 0.0, 0.0), 0.0))
    np.testing.assert_allclose(said, [0.5, 0.2])


def test_no_row_is_judged_by_members_that_saw_its_platform_and_nobody_is_known_there(memories: list[Memory]) -> None:
    names = "abcdef"
    groups = [(one, other) for one in names for other in names]
    rows = grouped(groups, platform=[f"d/p{at % 3}" for at in range(len(groups))])
    found = cross_val_predict(rows, "unseen_platform", seed=0, say=silent)
    assert len(found.folds) == 3
    assert sorted(found.row.tolist()) == list(range(len(groups)))
    assert not found.parts.any()
    assert not found.known.any()


def test_on_one_platform_none_is_left_out() -> None:
    found = cross_val_predict(grouped([("a", "b")] * 20), "unseen_platform", seed=0, say=silent)
    assert len(found.row) == 0
