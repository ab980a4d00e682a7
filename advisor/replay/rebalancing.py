"""Rebalancing during a replay: moves that the advisor would make with what was seen so far."""

from __future__ import annotations

import math

from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.goal import Goal
from advisor.prediction.active import ActivePredictor
from advisor.replay.packed_cloud import PackedCloud
from advisor.replay.policies import WHEN, AdvisorPolicy


def rebalance(
    policy: AdvisorPolicy, cloud: PackedCloud, step: int, chosen: ActivePredictor, *, keep_ratio: float, seed: int
) -> int:
    """Carry out worthwhile moves (`advisor.planning`, aim rebalance); returns their number."""
    snapshot = policy.snapshot(cloud, step)
    goal = Goal("rebalance", movable=frozenset(snapshot.names.placed), keep_ratio=keep_ratio, seed=seed)
    assignment = assign(snapshot, chosen, goal, now=WHEN, fresh_s=math.inf)
    moves = {name: host for name, host in assignment.where.items() if host is not None}
    for name, host in moves.items():
        cloud.put(policy.number(name), int(host))
    policy.moved()
    return len(moves)
