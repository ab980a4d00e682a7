"""Moves: a host is emptied, and residents move where that pays beyond uncertainty and nowhere else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from advisor.domain import Host, Instance, Move, PlanRequest
from advisor.placement import moves as moving
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.goal import Goal
from advisor.planning.paying_moves import paying_moves
from advisor.prediction.active import ActivePredictor
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.prediction import TARGETS, InterferencePrediction
from tests.advisor.core.core_clouds import FRESH_S, NOW, cloud, host, prediction, vm

MOVE_GAIN = PlanRequest().move_gain


class Crowded:
    """T/B falls by 0.2 for each neighbour."""

    version = origin = "crowded"
    metrics = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        ratio = 1 - 0.2 * (scenes.present.sum(axis=1, keepdims=True) - 1.0)
        return prediction(np.broadcast_to(ratio, scenes.present.shape).clip(0.05).tolist())


CONTEXT = QuestionContext(ActivePredictor(Crowded()), NOW, FRESH_S)


def improved(
    hosts: Sequence[Host], there: Sequence[Instance], *, most: int = 10, **targets: list[str]
) -> tuple[Move, ...]:
    everywhere = [one.id for one in hosts]
    may = {one.id: everywhere for one in there} | targets
    return paying_moves(cloud(hosts, there), CONTEXT, may, most=most, within_s=60.0)


def emptied(snapshot: ClusterSnapshot, targets: Sequence[str] | None = None) -> dict[str, Any]:
    moves = moving.evacuation(snapshot, CONTEXT, "a", targets)
    assert all(move.source == "a" for move in moves)
    return {move.instance: move.target for move in moves}


# emptying a host


def test_everybody_leaves_and_each_counts_in_for_the_next() -> None:
    hosts = [host(name) for name in "abcd"]
    assert sorted(emptied(cloud(hosts, [vm(f"v{n}", on="a") for n in range(3)])).values()) == ["b", "c", "d"]


def test_the_largest_is_placed_while_there_is_room() -> None:
    hosts = [host("a"), host("b", memory_mb=4096.0), host("c", memory_mb=1024.0)]
    there = [vm("small", on="a", memory_mb=1024.0), vm("large", on="a", memory_mb=4096.0)]
    assert emptied(cloud(hosts, there)) == {"large": "b", "small": "c"}


def test_who_fits_nowhere_has_a_move_without_a_target_that_says_why() -> None:
    snapshot = cloud([host("a"), host("b", memory_mb=512.0)], [vm("v", on="a")])
    (move,) = moving.evacuation(snapshot, CONTEXT, "a")
    assert (move.target, "needs 1024 MB" in move.why) == (None, True)


def test_only_named_targets_are_used_and_never_the_host_itself() -> None:
    snapshot = cloud([host(name) for name in "abc"], [vm("v", on="a")])
    assert emptied(snapshot, ["a", "c"]) == {"v": "c"}
    assert emptied(snapshot, ["a"]) == {"v": None}


def test_an_unknown_host_has_nobody_to_move() -> None:
    assert moving.evacuation(cloud([host("b")]), CONTEXT, "a") == ()


# moves that pay


def test_a_crowd_moves_apart_until_no_move_pays() -> None:
    hosts = [host(name) for name in "abc"]
    moves = improved(hosts, [vm(f"v{n}", on="a") for n in range(3)])
    assert [move.source for move in moves] == ["a", "a"]
    assert sorted(str(move.target) for move in moves) == ["b", "c"]
    assert all(move.gain is not None and move.gain > MOVE_GAIN for move in moves)


def test_moves_are_those_of_a_rebalance() -> None:
    hosts = [host(name) for name in "abc"]
    there = [vm(f"v{n}", on="a") for n in range(3)]
    goal = Goal("rebalance", movable=frozenset(one.id for one in there))
    planned = assign(cloud(hosts, there), ActivePredictor(Crowded()), goal, now=NOW, fresh_s=FRESH_S)
    assert {move.instance: move.target for move in improved(hosts, there)} == planned.where


def test_only_who_may_move_moves_and_only_where_it_may_go() -> None:
    hosts, there = [host(name) for name in "abc"], [vm("v", on="a"), vm("w", on="a")]
    snapshot = cloud(hosts, there)
    found = paying_moves(snapshot, CONTEXT, {"w": ["a", "c"]}, most=5, within_s=60.0)
    assert [(move.instance, move.target) for move in found] == [("w", "c")]


def test_no_more_moves_than_are_asked_for() -> None:
    assert len(improved([host(name) for name in "abcd"], [vm(f"v{n}", on="a") for n in range(4)], most=1)) == 1


def test_each_mover_goes_to_hosts_of_its_own() -> None:
    hosts, there = [host(name) for name in "abc"], [vm("v", on="a"), vm("w", on="a"), vm("x", on="a")]
    found = improved(hosts, there, v=["a"], w=["b"], x=["c"])
    assert {move.instance: move.target for move in found} == {"w": "b", "x": "c"}


def test_without_time_nobody_is_looked_at() -> None:
    hosts, there = [host(name) for name in "ab"], [vm(f"v{n}", on="a") for n in range(2)]
    may = {one.id: ["a", "b"] for one in there}
    assert paying_moves(cloud(hosts, there), CONTEXT, may, most=5, within_s=-1.0) == ()


def test_an_empty_cloud_has_no_moves() -> None:
    assert improved([], []) == improved([host("a")], []) == ()
