"""A random choice of groups: as many as asked for, all different, each about equally often, the same again."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.campaign.combinations import choose
from tests.examples import examples

NAMES = [f"w{number}" for number in range(12)]


@settings(max_examples=examples(60))
@given(st.integers(2, 5), st.integers(6, 12), st.floats(0.01, 0.5), st.integers(0, 1000))
def test_every_workload_is_used_about_equally_often(size: int, names: int, share: float, seed: int) -> None:
    count = max(1, round(share * math.comb(names, size)))
    chosen = choose(NAMES[:names], size, count, seed)
    assert len({frozenset(entry) for entry in chosen}) == count
    assert all(len(set(entry)) == size for entry in chosen)
    uses = Counter(name for entry in chosen for name in entry)
    assert max(uses.values()) - min(uses[name] for name in NAMES[:names]) <= 2


def test_pairs_within_chosen_triples_are_spread_too() -> None:
    met = Counter(
        frozenset(pair) for entry in choose(NAMES, 3, 44, 1) for pair in itertools.combinations(entry, 2)
    )  # 132 pairs out of 66 possible ones
    assert len(met) >= 60
    assert max(met.values()) <= 4


def test_the_same_seed_chooses_the_same_and_another_one_others() -> None:
    assert choose(NAMES, 3, 20, 1) == choose(NAMES, 3, 20, 1)
    assert choose(NAMES, 3, 20, 1) != choose(NAMES, 3, 20, 2)


def test_no_instance_always_has_the_same_place() -> None:
    places = Counter(entry.index("w0") for entry in choose(NAMES, 3, 80, 1) if "w0" in entry)
    assert set(places) == {0, 1, 2}


def test_without_a_count_all_combinations_are_there() -> None:
    assert {frozenset(entry) for entry in choose(NAMES[:5], 3, None, 1)} == {
        frozenset(entry) for entry in itertools.combinations(NAMES[:5], 3)
    }


def test_few_are_chosen_quickly_out_of_very_many() -> None:
    names = [f"w{number}" for number in range(60)]
    chosen = choose(names, 6, 100, 3)
    assert len({frozenset(entry) for entry in chosen}) == 100
    assert max(Counter(name for entry in chosen for name in entry).values()) <= 12


@pytest.mark.parametrize(("size", "count"), [(1, 1), (13, 1), (2, 67)])
def test_what_cannot_be_chosen_is_refused(size: int, count: int) -> None:
    with pytest.raises(ValueError, match=r"size|count"):
        choose(NAMES, size, count, 1)


def test_all_of_too_many_combinations_are_refused_rather_than_cut_short() -> None:
    with pytest.raises(ValueError, match="needs a count: all would be 9880 combinations"):
        choose([f"w{number}" for number in range(40)], 3, None, 1)
