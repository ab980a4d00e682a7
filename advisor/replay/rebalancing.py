"""Residents that move while a trace is replayed: what the advisor would have moved, knowing what was seen till then."""

from __future__ import annotations

import math

from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.goal import Goal
from advisor.prediction.active import ActivePredictor
from advisor.replay.packed_cloud import Cloud
from advisor.replay.policies import WHEN, Advised


def rebalance(
    policy: Advised, cloud: Cloud, step: int, chosen: ActivePredictor, *, keep_ratio: float, seed: int
) -> int:
    """Carry out the moves that are worth it (`advisor.planning`, aim rebalance); returns how many there were."""
    snapshot = policy.snapshot(cloud, step)
    goal = Goal("rebalance", movable=frozenset(snapshot.names.placed), keep_ratio=keep_ratio, seed=seed)
    found = assign(snapshot, chosen, goal, now=WHEN, fresh_s=math.inf)
    moves = {name: host for name, host in found.where.items() if host is not None}
    for name, host in moves.items():
        cloud.put(policy.number(name), int(host))
    policy.moved()
    return len(moves)
