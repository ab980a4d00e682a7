"""Moves: a host is emptied, and residents move where that pays beyond uncertainty and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from advisor.domain import Host, Instance, Move, PlanRequest
from advisor.placement import sequential as moving
from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.packing_problem import Goal
from advisor.planning.joint_placement import paying_moves
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats
from models.data.scene import SceneBatch
from tests.advisor.core.core_clouds import FRESH_S, NOW, Invented, cloud, context, host, vm

MOVE_GAIN = PlanRequest().move_gain


def crowding(scenes: SceneBatch) -> Floats:
    """T/B falls by 0.2 for each neighbour."""
    ratio = 1 - 0.2 * (scenes.present.sum(axis=1, keepdims=True) - 1.0)
    return np.broadcast_to(ratio, scenes.present.shape).clip(0.05)


CONTEXT = context(Invented(crowding))


def improved(hosts: Sequence[Host], there: Sequence[Instance], *, most: int = 10) -> tuple[Move, ...]:
    everywhere = [one.id for one in hosts]
    return paying_moves(cloud(hosts, there), CONTEXT, {one.id: everywhere for one in there}, most=most, within_s=60.0)


def emptied(snapshot: ClusterSnapshot, targets: Sequence[str] | None = None) -> dict[str, Any]:
    moves = moving.evacuation(snapshot, CONTEXT, "a", targets)
    assert all(move.source == "a" for move in moves)
    return {move.instance: move.target for move in moves}


# emptying a host


def test_all_leave_and_each_counts_in_for_the_next() -> None:
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


def test_an_unknown_host_has_no_instance_to_move() -> None:
    assert moving.evacuation(cloud([host("b")]), CONTEXT, "a") == ()


def test_a_pinning_stays_behind_with_the_host_that_it_names() -> None:
    hosts = [host("a", pcpus=8), host("b", pcpus=2)]
    assert emptied(cloud(hosts, [vm("v", on="a", vcpus=2, pins="0:6|1:7")])) == {"v": "b"}


# moves that pay


def test_a_crowd_moves_apart_until_no_move_pays_as_a_rebalance_would() -> None:
    hosts, there = [host(name) for name in "abc"], [vm(f"v{n}", on="a") for n in range(3)]
    moves = improved(hosts, there)
    assert [move.source for move in moves] == ["a", "a"]
    assert sorted(str(move.target) for move in moves) == ["b", "c"]
    assert all(move.gain is not None and move.gain > MOVE_GAIN for move in moves)
    goal = Goal("rebalance", movable=frozenset(one.id for one in there))
    planned = assign(cloud(hosts, there), CONTEXT.active, goal, now=NOW, fresh_s=FRESH_S)
    assert {move.instance: move.target for move in moves} == planned.where


@pytest.mark.parametrize(
    ("may", "moved"), [({"w": ["a", "c"]}, {"w": "c"}), ({"v": ["a"], "w": ["b"], "x": ["c"]}, {"w": "b", "x": "c"})]
)
def test_only_who_may_move_moves_and_only_where_it_may_go(may: dict[str, list[str]], moved: dict[str, str]) -> None:
    snapshot = cloud([host(name) for name in "abc"], [vm(name, on="a") for name in [*may, "y"]])
    moves = paying_moves(snapshot, CONTEXT, may, most=5, within_s=60.0)
    assert {move.instance: move.target for move in moves} == moved
    assert paying_moves(snapshot, CONTEXT, may, most=5, within_s=-1.0) == (), "without time no instance is looked at"


def test_no_more_moves_than_are_asked_for() -> None:
    assert len(improved([host(name) for name in "abcd"], [vm(f"v{n}", on="a") for n in range(4)], most=1)) == 1


def test_an_empty_cloud_has_no_moves() -> None:
    assert improved([], []) == improved([host("a")], []) == ()
