"""Verdicts on printed statements: agreement needs the whole interval, and no interval agrees by being wide."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lab.statistics import order_coverage, order_interval
from research.findings.claim_values import Values, ordered, verdict
from research.findings.verdicts import DIRECTIONS, Region, above, below, figure_region, order_verdict, region_of

NUMBERS = st.floats(-1e6, 1e6)
PAIRS = st.tuples(NUMBERS, NUMBERS).map(sorted)


def _printed(relation: str, value: str = "", unit: str = "%", low: str = "", high: str = "") -> dict[str, str]:
    return {"relation": relation, "value": value, "unit": unit, "low": low, "high": high}


@pytest.mark.parametrize(
    ("printed", "rounds", "expected"),
    [
        (_printed("=", "58"), (55, 56, 57, 58), "agrees"),
        (_printed("=", "58"), (-11, 30, 55, 59), "undetermined"),  # holds what is printed, and nearly anything else
        (_printed("=", "58"), (40, 56, 57, 58), "undetermined"),  # the median is right, the range too wide
        (_printed("~", "34"), (49, 49.3, 49.5, 49.6), "disagrees"),
        (_printed("~", "2", unit="x"), (1.9, 2.0, 2.1, 2.15), "agrees"),
        (_printed("~", "2", unit="x"), (0.4, 1.0, 1.4, 2.1), "undetermined"),
        (_printed(">=", "25"), (-90, -80, -85, -82), "disagrees"),
        (_printed(">=", "25"), (25, 30, 31, 40), "agrees"),
        (_printed(">", "25"), (25, 30, 31, 40), "undetermined"),
        (_printed("<", "50"), (10, 20, 15, 12), "agrees"),
        (_printed("<=", "50"), (49.9, 49.9, 50.1, 50.3), "undetermined"),
        (_printed("range", low="40", high="50"), (44, 45, 46, 47), "agrees"),
        (_printed("range", low="40", high="50"), (39, 45, 46, 47), "undetermined"),
        (_printed("range", low="40", high="50"), (60, 61, 62, 63), "disagrees"),
        (_printed("=", "570", unit="Mbps"), (9000, 9100, 9100, 9200), None),
        (_printed("fact", "kept"), (1, 1, 1, 1), None),
        (_printed("direction", "down"), (-0.3, -0.25, -0.2, -0.2), "agrees"),
        (_printed("direction", "down"), (-0.35, -0.3, -0.2, 0.09), "undetermined"),
        (_printed("direction", "up"), (-0.3, -0.25, -0.2, -0.2), "disagrees"),
        (_printed("direction", "up"), (0.01, 0.02, 0.03, 0.04), "disagrees"),  # no change, though above nought
        (_printed("direction", "flat"), (0.01, 0.02, 0.0, -0.03), "agrees"),
        (_printed("direction", "flat"), (-0.3, 0.0, 0.01, 0.3), "undetermined"),  # holds nought, and shows nothing
        (_printed("direction", "flat"), (0.3, 0.31, 0.32, 0.33), "disagrees"),
        (_printed("=", "58"), (58, 58, 58), "undetermined"),  # three rounds are too few
    ],
)
def test_verdicts(printed: dict[str, str], rounds: tuple[float, ...], expected: str | None) -> None:
    assert verdict(region_of(printed), Values(rounds, "lab")) == expected


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"a": (3, 3.1), "b": (2, 2.1), "c": (1, 1.1)}, "agrees"),
        ({"a": (1, 1.1), "b": (2, 2.1), "c": (3, 3.1)}, "disagrees"),
        ({"a": (2, 3), "b": (2.4, 3.4), "c": (1, 1.1)}, "undetermined"),
        ({"a": (3, 4), "b": (0.1, 2.5), "c": (2.6, 5)}, "undetermined"),
        ({"a": (0, 0), "b": (0, 0), "c": (0, 0)}, "disagrees"),  # nothing above nothing
        ({"a": (2, 3), "b": (1, 1), "c": (4, 5)}, "disagrees"),  # one pair the other way round is enough
    ],
)
def test_orders(members: dict[str, tuple[float, float]], expected: str) -> None:
    assert order_verdict([["a"], ["b", "c"]], members) == expected


def test_an_order_without_one_of_its_members_or_with_few_rounds_of_it_is_undetermined() -> None:
    printed = _printed("order", "a>b", "")
    enough = {"a": Values((3, 3, 3, 3), "lab"), "b": Values((1, 1, 1, 1), "lab")}
    assert ordered(printed, enough)[1] == "agrees"
    assert ordered(printed, {"a": enough["a"]})[1] == "undetermined"
    assert ordered(printed, {**enough, "b": Values((1, 1, 1), "lab")})[1] == "undetermined"


@given(NUMBERS, PAIRS, st.sampled_from(["%", "x", "ratio"]))
def test_who_agrees_has_the_median_and_all_else_within_the_margin(
    value: float, interval: list[float], unit: str
) -> None:
    region = figure_region(value, unit)
    found = region.verdict(*interval)
    ends = [region.holds(end) for end in interval]
    assert (found == "agrees") == all(ends)
    if found == "disagrees":
        assert not any(ends)


@given(PAIRS, PAIRS, NUMBERS)
def test_a_wider_interval_never_turns_an_undetermined_verdict_into_another(
    region: list[float], interval: list[float], more: float
) -> None:
    said = Region(*region).verdict(*interval)
    wider = Region(*region).verdict(min(interval[0], more), max(interval[1], more))
    assert wider in {said, "undetermined"}


@given(st.floats(-10, 10))
def test_a_change_goes_exactly_one_way(change: float) -> None:
    assert sum(region.holds(change) for region in DIRECTIONS.values()) == 1


@given(NUMBERS, PAIRS)
def test_more_than_and_at_most_never_both_agree_and_one_disagrees_where_the_other_agrees(
    value: float, interval: list[float]
) -> None:
    more, most = above(value).verdict(*interval), Region(high=value).verdict(*interval)
    opposite = {"agrees": "disagrees", "disagrees": "agrees", "undetermined": "undetermined"}
    assert most == opposite[more]
    assert below(value).verdict(*interval) == opposite[Region(low=value).verdict(*interval)]


@given(PAIRS)
def test_an_interval_the_wrong_way_round_is_refused(interval: list[float]) -> None:
    assume(interval[0] < interval[1])
    with pytest.raises(ValueError, match="is no interval"):
        Region().verdict(interval[1], interval[0])


@given(st.dictionaries(st.sampled_from("abcd"), PAIRS.map(tuple), min_size=4, max_size=4))
def test_an_order_and_its_reverse_never_both_agree(bounds: dict[str, tuple[float, float]]) -> None:
    order = [["a"], ["b", "c"], ["d"]]
    there, back = order_verdict(order, bounds), order_verdict(order[::-1], bounds)
    assert "agrees" not in {there, back} or {there, back} == {"agrees", "disagrees"}


@given(st.lists(NUMBERS, min_size=1, max_size=15))
def test_bounds_hold_the_median_and_say_how_often_they_would(values: list[float]) -> None:
    measured = Values(tuple(values), "lab")
    lower, upper = measured.bounds
    assert lower <= measured.middle <= upper
    assert measured.coverage == order_coverage(len(values))


def test_coverage_is_that_of_the_pair_of_values_shown() -> None:
    assert [round(order_coverage(count), 4) for count in range(1, 10)] == [
        0.0, 0.5, 0.75, 0.875, 0.9375, 0.9688, 0.9844, 0.9922, 0.9609,
    ]  # fmt: skip
    for count in range(1, 30):
        low, high = order_interval(range(count))
        # how often `low` or fewer of `count` values lie below the median, from the binomial law itself
        missed = sum(math.comb(count, below_it) for below_it in range(int(low) + 1)) / 2**count
        assert order_coverage(count) == pytest.approx(1 - 2 * missed)
        assert high == count - 1 - low
    assert all(order_coverage(count) >= 0.95 for count in range(6, 60))
    assert all(less < more for less, more in pairwise(order_coverage(count) for count in range(1, 9)))
