"""Simulates one policy on one trace and cloud: arrivals, departures, moves and their results; one task."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

import numpy as np

from advisor.domain import Objective, PlanFor
from advisor.prediction.active import ActivePredictor
from advisor.replay.evaluation import ReplayPredictions, predict_replay
from advisor.replay.packed_cloud import PackedCloud, fewest_kept
from advisor.replay.policies import RULES, AdvisorPolicy, PlacementPolicy, RulePolicy
from advisor.replay.workloads import TraceDemand
from advisor.validation import check_one_of
from models.arrays import Ints
from models.prediction import Predictor

ADVISED, BOUND = "cotenant", "lower bound"
POLICIES = (ADVISED, *RULES, BOUND)


def policy_named(name: str) -> str:
    """The policy of this name, in which case, hyphens and the like do not count. Raises InvalidInput with all names."""
    wanted = _words(name)
    found = next((policy for policy in POLICIES if _words(policy) == wanted), None)
    if found is None:
        check_one_of("policies", name, POLICIES)
    return found or name


def _words(name: str) -> list[str]:
    return re.findall("[a-z0-9]+", name.lower().replace("'s", ""))


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """A policy, a seed and a cloud: everything that `simulate` needs, wherever it runs.

    The replay begins at step `first`; residents may move every `rebalance_steps`, 0 = never.
    """

    policy: str
    seed: int
    demand: TraceDemand
    hosts: int
    predictor: Predictor
    evaluator: Predictor
    first: int
    keep_ratio: float
    objective: Objective
    plan_for: PlanFor
    rebalance_steps: int = 0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a task: hosts in use, (T,), predictions (None for a bound), moves, refusals and decision times."""

    policy: str
    seed: int
    hosts_used: Ints
    predictions: ReplayPredictions | None = None
    moves: int = 0
    refused: int = 0
    decisions: int = 0
    decision_s: float = 0.0
    longest_s: float = 0.0


def simulate(task: SimulationTask) -> SimulationResult:
    """Simulate one task; the result is the same anywhere except for the times, unless a time limit ends a rebalance."""
    if task.policy == BOUND:
        trace, host = task.demand.trace, task.demand.host
        fewest = [fewest_kept(trace, host, step, task.keep_ratio) for step in range(task.first, trace.steps)]
        return SimulationResult(task.policy, task.seed, np.array(fewest, dtype=np.int64))
    placed = PlacementLog.by(task)
    used = np.array([len(set(row[row >= 0].tolist())) for row in placed.where], dtype=np.int64)
    predictions = predict_replay(task.demand, placed.where, task.first, task.evaluator, task.keep_ratio)
    return SimulationResult(
        task.policy,
        task.seed,
        used,
        predictions,
        placed.moves,
        placed.refused,
        len(placed.times),
        float(sum(placed.times)),
        float(max(placed.times, default=0.0)),
    )


@dataclass(frozen=True, slots=True)
class PlacementLog:
    """The host of every instance at each moment, (T, I), and the decisions behind it."""

    where: Ints
    moves: int
    refused: int
    times: list[float]

    @classmethod
    def by(cls, task: SimulationTask) -> PlacementLog:
        trace = task.demand.trace
        present = trace.present
        cloud = PackedCloud(task.demand.host, task.hosts, trace)
        policy = _policy(task)
        refused = np.zeros(len(trace), dtype=bool)
        where = np.full((trace.steps - task.first, len(trace)), -1, dtype=np.int64)
        times: list[float] = []
        moves = 0
        for step in range(task.first, trace.steps):
            for who in np.flatnonzero(~present[step] & (cloud.where >= 0)).tolist():
                cloud.put(who, -1)
            passed = step - task.first
            due = task.rebalance_steps and passed and not passed % task.rebalance_steps
            if due and isinstance(policy, AdvisorPolicy):
                begin = time.perf_counter()
                moves += policy.rebalance(cloud, step, task.seed)
                times.append(time.perf_counter() - begin)
            for who in np.flatnonzero(present[step] & (cloud.where < 0) & ~refused).tolist():
                begin = time.perf_counter()
                host = policy(cloud, who, step)
                times.append(time.perf_counter() - begin)
                if host is None:
                    refused[who] = True
                else:
                    cloud.put(who, host)
            where[step - task.first] = cloud.where
        return cls(where, moves, int(refused.sum()), times)


def _policy(task: SimulationTask) -> PlacementPolicy:
    if task.policy == ADVISED:
        return AdvisorPolicy(
            task.demand,
            ActivePredictor(task.predictor),
            keep_ratio=task.keep_ratio,
            objective=task.objective,
            plan_for=task.plan_for,
        )
    return RulePolicy(RULES[task.policy], task.demand, task.hosts, task.seed)
