"""Folds that do not leak: a pair or a workload is never on both sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.examples import elsewhere_folds, family, pair_folds, workload_folds
from tests.examples import examples
from tests.models.made_examples import PAIRS, Group, made_up


@settings(max_examples=examples(60), deadline=None)
@given(PAIRS, st.integers(0, 5), st.integers(2, 8))
def test_folds_by_pair_never_put_one_set_of_workloads_on_both_sides(pairs: list[Group], seed: int, count: int) -> None:
    examples = made_up(pairs)
    folds = pair_folds(examples, seed, count)
    for trained, judged in folds:
        assert not {examples.pair[row] for row in trained} & {examples.pair[row] for row in judged}
        assert sorted([*trained, *judged]) == list(range(len(pairs)))
    if folds:
        assert sorted(row for _, judged in folds for row in judged) == list(range(len(pairs)))


@settings(max_examples=examples(60), deadline=None)
@given(PAIRS, st.integers(2, 8))
def test_folds_by_workload_train_on_no_run_that_contains_a_left_out_workload(pairs: list[Group], most: int) -> None:
    examples = made_up(pairs)
    for trained, judged in workload_folds(examples, most):
        left_out = set(examples.take(judged).workloads) - set(examples.take(trained).workloads)
        assert left_out
        for row in trained:
            assert not left_out & set(examples.pair[row].split("+"))
        assert all(left_out & set(examples.pair[row].split("+")) for row in judged)


@settings(max_examples=examples(40), deadline=None)
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_workloads_within_a_pair_does_not_matter_to_folds(pairs: list[Group], random: object) -> None:
    mixed = [tuple(random.sample(pair, len(pair))) for pair in pairs]  # type: ignore[attr-defined]
    for make in (pair_folds, workload_folds):
        one, other = make(made_up(pairs)), make(made_up(mixed))
        assert [judged.tolist() for _, judged in one] == [judged.tolist() for _, judged in other]


def test_every_workload_is_left_out_once_where_there_are_few() -> None:
    examples = made_up([("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")])
    assert [len(judged) for _, judged in workload_folds(examples)] == [2, 2, 2, 1]


def test_many_workloads_are_left_out_in_groups_that_together_are_all() -> None:
    examples = made_up([(f"w{at}", f"w{at}") for at in range(40)])
    folds = workload_folds(examples, 6)
    assert len(folds) == 6
    assert sorted(row for _, judged in folds for row in judged) == list(range(40))


def test_folds_are_the_same_for_the_same_seed() -> None:
    examples = made_up([(one, other) for one in "abcdef" for other in "abcdef"])
    first, again, other = (pair_folds(examples, seed) for seed in (0, 0, 1))
    assert all((one[1] == two[1]).all() for one, two in zip(first, again, strict=True))
    assert any(len(one[1]) != len(two[1]) or (one[1] != two[1]).any() for one, two in zip(first, other, strict=True))


def test_a_single_pair_or_workload_cannot_be_left_out() -> None:
    assert pair_folds(made_up([("a", "b")] * 9)) == []
    assert workload_folds(made_up([("a", "a")] * 9)) == []
    assert pair_folds(made_up([])) == workload_folds(made_up([])) == []


def test_all_settings_and_repeats_of_a_pair_lie_in_one_fold() -> None:
    pairs: list[Group] = [("a", "b"), ("b", "a"), ("c", "d"), ("a", "c")] * 5
    examples = made_up(pairs, setting=[f"s{at}" for at in range(20)])
    folds = pair_folds(examples)
    assert len(folds) == 3
    for _, judged in folds:
        assert len(np.unique([examples.pair[row] for row in judged])) == 1


def test_variants_of_one_program_are_left_out_together_where_there_are_several_programs() -> None:
    pairs: list[Group] = [("web-1k", "cpu"), ("web-10k", "disk"), ("log", "web-1k"), ("sort", "cpu"), ("log", "disk")]
    examples = made_up(pairs)
    for trained, judged in workload_folds(examples):
        programs = [{family(name) for name in examples.take(rows).workloads} for rows in (trained, judged)]
        assert programs[1] - programs[0]
    assert sorted(map(len, (judged for _, judged in workload_folds(examples)))) == [1, 2, 2, 2, 3]


def test_whole_campaigns_are_left_out_and_platforms_where_there_is_one_campaign() -> None:
    examples = made_up([("a", "b")] * 4, platform=["d/p", "d/q", "e/p", "e/p"])
    several = replace(examples, campaign=("d", "d", "e", "e"))
    assert [judged.tolist() for _, judged in elsewhere_folds(several)] == [[0, 1], [2, 3]]
    assert [judged.tolist() for _, judged in elsewhere_folds(examples)] == [[2, 3], [0], [1]]
    assert elsewhere_folds(examples.take(np.array([2, 3]))) == []
