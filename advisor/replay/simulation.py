"""One policy through one trace on one cloud: arrivals, departures, moves, and what came of them; a task of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from advisor.domain import Objective, PolicyName
from advisor.prediction.active import ActivePredictor
from advisor.replay.evaluation import Judged, judge
from advisor.replay.packed_cloud import Cloud, fewest_kept
from advisor.replay.policies import Advised, policy_of
from advisor.replay.workloads import Demand
from models.arrays import Ints
from models.prediction import Predictor


@dataclass(frozen=True, slots=True)
class Work:
    """A policy, a seed and a cloud: all that `run` needs, wherever it runs. The replay begins at step `first`, and
    residents may move every `rebalance_steps`, 0 = never."""

    policy: PolicyName
    seed: int
    shard: int
    demand: Demand
    hosts: int
    predictor: Predictor
    judge: Predictor
    first: int
    keep_ratio: float
    objective: Objective
    plan_for: float
    rebalance_steps: int = 0


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of a Work: hosts in use at each moment, (T,), what is predicted of everybody (None of a bound), moves,
    refusals, and how long the decisions took."""

    policy: PolicyName
    seed: int
    shard: int
    hosts_used: Ints
    judged: Judged | None = None
    moves: int = 0
    refused: int = 0
    decisions: int = 0
    decision_s: float = 0.0
    longest_s: float = 0.0


def run(work: Work) -> Ran:
    """Carry out one Work; the same Work gives the same result anywhere, but for the times, as long as no rebalance ends
    by its limit of time."""
    if work.policy == "lower bound":
        trace, host = work.demand.trace, work.demand.host
        fewest = [fewest_kept(trace, host, step, work.keep_ratio) for step in range(work.first, trace.steps)]
        return Ran(work.policy, work.seed, work.shard, np.array(fewest, dtype=np.int64))
    placed = Placed.by(work)
    used = np.array([len(set(row[row >= 0].tolist())) for row in placed.where], dtype=np.int64)
    judged = judge(work.demand, placed.where, work.first, work.judge, work.keep_ratio)
    return Ran(
        work.policy,
        work.seed,
        work.shard,
        used,
        judged,
        placed.moves,
        placed.refused,
        len(placed.times),
        float(sum(placed.times)),
        float(max(placed.times, default=0.0)),
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """Hosts of everybody at each moment, (T, I), and how they came there."""

    where: Ints
    moves: int
    refused: int
    times: list[float]

    @classmethod
    def by(cls, work: Work) -> Placed:
        trace = work.demand.trace
        present = trace.present
        cloud = Cloud(work.demand.host, work.hosts, trace)
        chosen = ActivePredictor(work.predictor)
        policy = policy_of(
            work.policy,
            work.demand,
            chosen,
            work.seed,
            keep_ratio=work.keep_ratio,
            objective=work.objective,
            plan_for=work.plan_for,
        )
        refused = np.zeros(len(trace), dtype=bool)
        where = np.full((trace.steps - work.first, len(trace)), -1, dtype=np.int64)
        times: list[float] = []
        moves = 0
        for step in range(work.first, trace.steps):
            for who in np.flatnonzero(~present[step] & (cloud.where >= 0)).tolist():
                cloud.put(who, -1)
            passed = step - work.first
            if isinstance(policy, Advised) and work.rebalance_steps and passed and not passed % work.rebalance_steps:
                from advisor.replay.rebalancing import rebalance  # with the solver of plans

                begin = time.perf_counter()
                moves += rebalance(policy, cloud, step, chosen, keep_ratio=work.keep_ratio, seed=work.seed)
                times.append(time.perf_counter() - begin)
            for who in np.flatnonzero(present[step] & (cloud.where < 0) & ~refused).tolist():
                begin = time.perf_counter()
                host = policy.choose(cloud, who, step)
                times.append(time.perf_counter() - begin)
                if host is None:
                    refused[who] = True
                else:
                    cloud.put(who, host)
            where[step - work.first] = cloud.where
        return cls(where, moves, int(refused.sum()), times)
