"""Rules that place without predictions: one tie rule, columns that are documented, and Nova's own arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.scheduling.rules import COLUMNS, NOVA, RULES, Rule, choose, known_by

FREE = st.lists(st.tuples(st.integers(0, 128), st.integers(0, 512)), min_size=1, max_size=12)


def chosen(name: str, fits: list[bool], **columns: list[float]) -> int | None:
    return choose(RULES[name], np.array(fits), lambda column: np.array(columns[column], dtype=float))


def test_every_rule_needs_only_columns_that_are_documented() -> None:
    assert {column for rule in RULES.values() for column in rule.needs} <= COLUMNS.keys()
    assert known_by(COLUMNS, settings=True) == RULES
    assert set(known_by(["free_vcpus"])) == {"first fit", "best fit", "fewest vCPUs"}


def test_of_equal_hosts_the_first_that_has_room_is_taken_and_none_where_none_has() -> None:
    for name in ("first fit", "best fit", "fewest vCPUs", NOVA):
        same = {"free_vcpus": [4.0] * 3, "free_memory_mb": [9.0] * 3}
        assert chosen(name, [False, True, True], **same) == 1
        assert chosen(name, [False] * 3, **same) is None


def test_weights_that_differ_by_rounding_alone_are_equal() -> None:
    assert chosen("least loaded", [True, True], load=[0.1 + 0.2, 0.3]) == 0


@given(FREE)
def test_nova_weighs_free_vcpus_and_memory_alike_over_the_hosts_that_pass(free: list[tuple[int, int]]) -> None:
    """As nova/weights.py: each list normalised by its least and greatest, summed, sorted stably, greatest first."""

    def normalised(values: list[int]) -> list[float]:
        least, most = min(values), max(values)
        return [(value - least) / (most - least) if most > least else 0.0 for value in values]

    vcpus, memory = ([one[at] for one in free] for at in (0, 1))
    weight = [round(a + b, 9) for a, b in zip(normalised(vcpus), normalised(memory), strict=True)]
    order = sorted(range(len(free)), key=lambda at: weight[at], reverse=True)
    fits = [True] * len(free)
    assert chosen(NOVA, fits, free_vcpus=[*map(float, vcpus)], free_memory_mb=[*map(float, memory)]) == order[0]


@pytest.mark.parametrize(("full", "host"), [("50%", 0), ("100%", 2), ("150%", 3)])
def test_best_fit_takes_the_fullest_host_within_its_limit_else_the_least_full(full: str, host: int) -> None:
    columns = {"load_after": [6.0, 7.0, 8.0, 11.0], "cpus": [8.0] * 4}
    assert chosen(f"best fit to {full}", [True] * 4, **columns) == host


def test_greedy_placement_avoids_the_hours_in_which_a_host_is_full() -> None:
    day, night = [8.0] * 8 + [0.0] * 8, [0.0] * 8 + [8.0] * 8
    columns = {"day": np.array([day, night]), "day_after": np.array([day, night]) + day, "cpus": np.array([8.0, 8.0])}
    assert choose(RULES["greedy by every hour, 100%"], np.array([True, True]), columns.__getitem__) == 1
    assert choose(RULES["greedy by means, 100%"], np.array([True, True]), columns.__getitem__) == 0


def test_a_rule_is_given_only_the_hosts_with_room() -> None:
    rule = Rule(("load",), lambda load: -load / load.min())
    assert choose(rule, np.array([False, True, True]), lambda _: np.array([0.0, 3.0, 2.0])) == 2
