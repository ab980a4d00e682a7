"""Moves that are drawn on a simulated cluster, judged by a simulator that does not share the prior's code."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.domain import Band
from research.benchmarks.proxlb.cluster import SimulatedCluster, made_up
from research.move_gains import RULES, DrawnMove, doubted, draw_moves, table, wilson

NOW = "now: the same edge before and after"
BEFORE = "before: gain of the worst-off, two independent states, 0.05"


def test_moves_that_are_accepted_gain_in_the_simulation_more_are_made_than_before_and_draws_repeat() -> None:
    cluster = SimulatedCluster.of(made_up(1, 2.0), 1)
    drawn = draw_moves(cluster, 0.0, 8)
    assert drawn == draw_moves(cluster, 0.0, 8)
    accepted, formerly = ([one for one in drawn if RULES[rule](one)] for rule in (NOW, BEFORE))
    assert len(accepted) > len(formerly)
    assert all(one.true_gain > 0 for one in accepted)


def test_what_is_told_is_off_by_as_much_as_is_told_of_its_doubt() -> None:
    inventory = made_up(1)
    told = doubted(inventory, 0.4, np.random.default_rng(1))
    pairs = [(a.demand["cpu"], b.demand["cpu"]) for a, b in zip(inventory.instances, told.instances, strict=True)]
    assert all(b.doubt == pytest.approx(0.4 * b.mean) for _, b in pairs)
    assert np.std([np.log(b.mean / a.mean) for a, b in pairs]) == pytest.approx(0.4, abs=0.06)
    assert doubted(inventory, 0.0, np.random.default_rng(1)) is inventory


def test_the_table_says_how_often_a_rule_is_right_and_what_it_leaves() -> None:
    sure, unsure, none = Band(0.3, 0.1, 0.5), Band(0.3, -0.1, 0.5), Band(0.0, -0.1, 0.1)
    still = ((0.5, 0.5), (0.5, 0.5))
    drawn = [DrawnMove(sure, none, still, 0.3), DrawnMove(unsure, none, still, -0.1), DrawnMove(none, none, still, 0.1)]
    rows = {
        row.split("|")[1].strip(): [cell.strip() for cell in row.split("|")[2:-1]]
        for row in table(drawn).split("\n")
        if row
    }
    assert rows[NOW] == ["1 of 3", "100 [21, 100]", "0.300", "0.300", "25"]
    assert rows["expected gain alone"][1] == "50 [9, 91]"
    assert rows[BEFORE] == ["0 of 3", "", "", "", "100"]


def test_wilsons_interval_is_that_of_the_textbook() -> None:
    assert wilson(9, 10) == pytest.approx((0.596, 0.982), abs=0.001)
