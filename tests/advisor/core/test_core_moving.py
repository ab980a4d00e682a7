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
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from tests.advisor.core.core_clouds import FRESH_S, NOW, cloud, host, vm

MOVE_GAIN = PlanRequest().move_gain


class Crowded:
    """T/B falls by `step` for each neighbour, known to `half`."""

    version = origin = "crowded"
    metrics = ()

    def __init__(self, step: float = 0.2, half: float = 0.0) -> None:
        self.step, self.half = step, half

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        ratio = np.broadcast_to(
            1 - self.step * (scenes.present.sum(axis=1, keepdims=True) - 1.0), scenes.present.shape
        ).clip(0.05)
        band = BandArrays(ratio, ratio - self.half, ratio + self.half)
        return InterferencePrediction(
            band, BandArrays(1 / ratio, 1 / ratio, 1 / ratio), band, np.zeros(ratio.shape, bool)
        )


def context(predictor: Any = None) -> QuestionContext:
    return QuestionContext(ActivePredictor(predictor or Crowded()), NOW, FRESH_S)


def improved(
    hosts: Sequence[Host], there: Sequence[Instance], predictor: Any = None, *, most: int = 10, **targets: list[str]
) -> tuple[Move, ...]:
    everywhere = [one.id for one in hosts]
    may = {one.id: everywhere for one in there} | targets
    return paying_moves(cloud(hosts, there), context(predictor), may, most=most, within_s=60.0)


def emptied(snapshot: ClusterSnapshot, targets: Sequence[str] | None = None, predictor: Any = None) -> dict[str, Any]:
    moves = moving.evacuation(snapshot, context(predictor), "a", targets)
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
    (move,) = moving.evacuation(snapshot, context(), "a")
    assert (move.target, "needs 1024 MB" in move.why) == (None, True)


def test_only_named_targets_are_used_and_never_the_host_itself() -> None:
    snapshot = cloud([host(name) for name in "abc"], [vm("v", on="a")])
    assert emptied(snapshot, ["a", "c"]) == {"v": "c"}
    assert emptied(snapshot, ["a"]) == {"v": None}


def test_an_unknown_host_has_nobody_to_move() -> None:
    assert moving.evacuation(cloud([host("b")]), context(), "a") == ()


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
    found = paying_moves(snapshot, context(), {"w": ["a", "c"]}, most=5, within_s=60.0)
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
    assert paying_moves(cloud(hosts, there), context(), may, most=5, within_s=-1.0) == ()


def test_an_empty_cloud_has_no_moves() -> None:
    assert improved([], []) == improved([host("a")], []) == ()
