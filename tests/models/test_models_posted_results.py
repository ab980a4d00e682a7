"""Posted results move answers: by how much was posted, in any order, and no sender by more than its weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.scene import INSTANCE, ProfileTable, SceneBatch, build_batch
from models.learning.posted_results import FURTHEST, PostedResults, number_of, posted_row
from models.prediction import BandArrays
from profiler.observed import Host, Instance
from tests.examples import examples

EXPECTED, HALF = 0.53, 0.35  # what the model says, and half of its range on the log scale
SUBJECTS = {INSTANCE + name: number_of(INSTANCE + name) for name in ("web-9", "db-3", "log-1")}


def scene(*names: str) -> SceneBatch:
    table = replace(ProfileTable.build(()), subjects=SUBJECTS)
    return build_batch([(Host("h", "kvm", 4, 1024), [Instance(name) for name in names])], table)


def band(scenes: SceneBatch, expected: float = EXPECTED) -> BandArrays:
    mean = np.where(scenes.present, expected, np.nan)
    return BandArrays(mean, mean * math.exp(-HALF), mean * math.exp(HALF))


def results(
    ratios: Sequence[float], *, expected: float = EXPECTED, senders: Sequence[str] = ("ops",)
) -> PostedResults | None:
    pair = scene("web-9", "db-3")
    return PostedResults.of(
        [posted_row(pair, 0, 0, expected, ratio, senders[number % len(senders)]) for number, ratio in enumerate(ratios)]
    )


def answered(
    found: PostedResults | None, *names: str, expected: float = EXPECTED, slot: int = 0
) -> tuple[float, float, float]:
    scenes = scene(*names)
    was = band(scenes, expected)
    moved = was if found is None else found.moved(scenes, was)
    return tuple(float(edge[0, slot]) for edge in (moved.lower, moved.expected, moved.upper))  # type: ignore[return-value]


def test_forty_results_of_ninety_per_cent_move_an_answer_of_fifty_three_and_its_range() -> None:
    lower, expected, upper = answered(results([0.9] * 40), "web-9", "db-3")
    assert 0.85 < expected <= 0.9
    assert lower < 0.9 < upper
    assert math.log(upper / lower) < 2 * HALF


def test_without_posted_results_answers_are_the_same_object() -> None:
    assert results([]) is None
    others = scene("a", "b")
    was = band(others)
    assert results([0.9] * 40).moved(others, was) is was  # type: ignore[union-attr]
    alone = scene("web-9")
    was = band(alone)
    assert results([0.9] * 40).moved(alone, was) is was  # type: ignore[union-attr]


@given(st.floats(0.05, 1.0), st.floats(0.1, 0.95), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=examples(150), deadline=None)
def test_with_more_of_the_same_results_answers_come_closer_and_never_pass_them(
    ratio: float, expected: float, few: int, more: int
) -> None:
    gaps = []
    for count in (0, few, few + more):
        _, reported, _ = answered(results([ratio] * count, expected=expected), "web-9", "db-3", expected=expected)
        gaps.append(math.log(reported / ratio))
    far = max(abs(gaps[0]), 1e-9)
    assert all(abs(later) <= abs(sooner) + 1e-9 for sooner, later in pairwise(gaps))
    assert all(gap * gaps[0] >= -1e-9 * far for gap in gaps)


@given(st.floats(0.2, 1.0), st.integers(1, 30), st.integers(1, 30))
@settings(max_examples=examples(100), deadline=None)
def test_with_more_of_the_same_results_the_range_narrows(ratio: float, few: int, more: int) -> None:
    first, second = (answered(results([ratio] * count), "web-9", "db-3") for count in (few, few + more))
    assert math.log(second[1] / second[0]) <= math.log(first[1] / first[0]) + 1e-9


@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.sampled_from(["a", "b", "c"])), min_size=1, max_size=25), st.randoms()
)
@settings(max_examples=examples(100), deadline=None)
def test_the_order_of_results_does_not_matter(rows: list[tuple[float, str]], random: object) -> None:
    pair = scene("web-9", "db-3")
    made = [posted_row(pair, 0, at % 2, EXPECTED, ratio, who) for at, (ratio, who) in enumerate(rows)]
    mixed = made.copy()
    random.shuffle(mixed)  # type: ignore[attr-defined]
    first, second = (answered(PostedResults.of(some), "web-9", "db-3") for some in (made, mixed))
    assert first == pytest.approx(second, rel=1e-9)


@given(st.floats(0.0, 1e3), st.integers(1, 60))
@settings(max_examples=examples(100), deadline=None)
def test_one_wrong_result_among_many_moves_little_and_a_single_one_no_more_than_the_furthest(
    wrong: float, honest: int
) -> None:
    _, alone, _ = answered(results([wrong]), "web-9", "db-3")
    assert abs(math.log(alone / EXPECTED)) <= FURTHEST
    if honest >= 5:
        _, before, _ = answered(results([0.9] * honest), "web-9", "db-3")
        _, after, _ = answered(results([*[0.9] * honest, wrong]), "web-9", "db-3")
        assert abs(math.log(after / before)) < 0.1


def test_a_sender_of_a_thousand_lies_counts_as_few_results_among_honest_senders() -> None:
    honest = [f"team-{number}" for number in range(9)]
    pair = scene("web-9", "db-3")
    rows = [posted_row(pair, 0, 0, EXPECTED, 0.9, sender) for sender in honest for _ in range(10)]
    lies = [posted_row(pair, 0, 0, EXPECTED, 0.05, "liar")] * 1000
    _, before, _ = answered(PostedResults.of(rows), "web-9", "db-3")
    _, after, _ = answered(PostedResults.of([*rows, *lies]), "web-9", "db-3")
    assert abs(math.log(after / before)) < 0.1


def test_results_that_contradict_each_other_widen_the_range() -> None:
    agreed = answered(results([0.7] * 40), "web-9", "db-3")
    torn = answered(results([0.9, 0.4] * 20, senders=("a", "b")), "web-9", "db-3")
    assert math.log(torn[2] / torn[0]) > 1.5 * math.log(agreed[2] / agreed[0])
    assert torn[0] < 0.45


def test_a_pair_moves_most_then_its_victim_beside_others_and_not_its_neighbour_by_itself() -> None:
    found = results([0.9] * 40)
    pair, other = (answered(found, "web-9", name)[1] for name in ("db-3", "log-1"))
    assert EXPECTED < other < pair
    assert answered(found, "db-3", "web-9")[1] == pytest.approx(EXPECTED, abs=1e-12)  # of db-3 nothing was measured
    assert EXPECTED < answered(found, "new", "db-3")[1] < other


def test_a_result_says_little_of_scenes_in_which_the_model_expects_something_else() -> None:
    found = results([0.25] * 40)
    there, calm = (math.log(answered(found, "web-9", "db-3", expected=at)[1] / at) for at in (EXPECTED, 1.0))
    assert there < -0.6
    assert 0.7 * there < calm < 0


def test_no_answer_is_above_one_because_of_results() -> None:
    lower, expected, upper = answered(results([1.4] * 40, expected=0.9), "web-9", "db-3", expected=0.9)
    assert lower <= expected <= 1.0 <= upper
