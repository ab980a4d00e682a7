"""What schedulers get in points: the order of scores, also where dozens lose and scores fall below 0."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.opinion import HostScores


def reported(scores: dict[str, float], held: str | None = None, most: int = 100) -> dict[str, int]:
    return HostScores(scores, behind=("late",), refused={}, unknown=()).points(most, held)


def test_an_unharmed_instance_has_all_points_and_a_stalled_one_half() -> None:
    assert reported({"a": 1.0, "b": 0.0, "c": -1.0}) == {"a": 100, "b": 50, "c": 33, "late": 16}


def test_the_host_that_is_held_is_alone_at_the_top() -> None:
    assert reported({"a": 1.0, "b": 0.9}, held="b") == {"a": 90, "b": 91, "late": 45}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-50, 1), min_size=1, max_size=8))
def test_points_keep_the_order_of_scores(scores: dict[str, float]) -> None:
    points = reported(scores)
    assert all(0 <= value <= 100 for value in points.values())
    by_score = [points[name] for name, _ in sorted(scores.items(), key=lambda item: item[1])]
    assert by_score == sorted(by_score)
