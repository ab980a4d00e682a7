"""Predicts the ratios of all instances at every moment of a replay, by the model or by fair shares alone."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Instance, Objective, PlanFor, RatioSpread, Repeat, Replayed, ReplayJudge
from advisor.domain.replays import FAIR_SHARES
from advisor.errors import BrokenArtifact
from advisor.prediction.active import ActivePredictor
from advisor.replay.packed_cloud import (
    RULES,
    AdvisorPolicy,
    PackedCloud,
    PlacementPolicy,
    RulePolicy,
    TraceDemand,
    fewest_kept,
)
from advisor.rounding import SLACK
from advisor.validation import check_one_of
from models.arrays import Floats, Ints
from models.data.scene import SCENE_FIELDS, ProfileTable, SceneBatch, build_batch, empty_slots, slot_values
from models.physics.demands import capacity, fill, link, profile_column
from models.prediction import TARGETS, BandArrays, InterferencePrediction, Predictor, unasked

# The judge of replays that no model has a part in: what a fair share leaves of the demand in the trace.


class FairShares:
    """Each host's CPUs, network and disk are shared max-min fairly, with one weight for each instance.

    The ratio is what an instance got of what it asked for in that step, of the resource that it got least of. Nothing
    is assumed of bursts within a step, of caches or of memory, so that more harm than this is possible and less is not.
    An interval has no width.
    """

    version = FAIR_SHARES
    origin = "demand of the trace"
    metrics: tuple[str, ...] = ()

    def predict(self, scenes: SceneBatch, _targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """What was served of each demand, (S, N); nothing is said of latency and jitter."""
        here, load = scenes.present, np.minimum(scenes.load, 1.0)
        disk = capacity(scenes, "disk_mb_s")
        served = np.minimum.reduce(
            [
                _served(scenes.pcpus.astype(np.float64), np.where(here, load * scenes.vcpus, 0.0)),
                _served(link(scenes), _rate(scenes, "net_mbit", load)),
                _served(np.where(disk > 0, disk, np.inf), _rate(scenes, "disk_mb_s", load)),
            ]
        )
        ratio = np.where(here, served, np.nan)
        nothing = unasked(here)
        return InterferencePrediction(BandArrays(ratio, ratio, ratio), nothing, nothing, np.zeros_like(here))


def _rate(scenes: SceneBatch, key: str, load: Floats) -> Floats:
    return np.where(scenes.present, np.nan_to_num(profile_column(scenes, key)) * load, 0.0)


def _served(room: Floats, demand: Floats) -> Floats:
    """The part of its demand that each gets; 1 where it has none."""
    served = fill(room, demand, np.ones_like(demand))
    return np.divide(served, demand, out=np.ones_like(demand), where=demand > 0)


MAX_CELLS = 300_000  # scenes x slots x slots that are predicted at a time
BIN, MAX_RATIO = 0.001, 1.5  # ratios are counted in bins this wide, the last one takes all above
BINS = round(MAX_RATIO / BIN)


@dataclass(frozen=True, slots=True)
class ReplayPredictions:
    """Predictions for T moments.

    `below` (T,) counts instances under the limit, `worst` (T,) is the lowest T/B, inf for an empty cloud; expected and
    lower ratios are counted by bin, (BINS,), with their number and sum.
    """

    below: Ints
    worst: Floats
    expected: Ints
    lower: Ints
    count: int
    total: float

    def plus(self, other: ReplayPredictions) -> ReplayPredictions:
        """The sum with another cloud at the same moments."""
        sums = {field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        return ReplayPredictions(**{**sums, "worst": np.minimum(self.worst, other.worst)})


def predict_replay(
    demand: TraceDemand, where: Ints, first: int, predictor: Predictor, keep_ratio: float
) -> ReplayPredictions:
    """Predict every instance's T/B at `where` (T, I), host numbers with -1 = none, from step `first` on.

    BrokenArtifact when the model returns no finite numbers.
    """
    moments = len(where)
    below, worst = np.zeros(moments, dtype=np.int64), np.full(moments, np.inf)
    expected, lower = np.zeros(BINS, dtype=np.int64), np.zeros(BINS, dtype=np.int64)
    count, total = 0, 0.0
    layout = _Layout.of(demand)
    for begin, end in _pieces(where):
        scenes, scene, slot, moment = layout.scenes(demand, where[begin:end], first + begin)
        band = predictor.predict(scenes, ()).throughput
        ratio, low = band.expected[scene, slot], band.lower[scene, slot]
        if not (np.isfinite(ratio).all() and np.isfinite(low).all()):
            raise BrokenArtifact(f"model {predictor.version} gave no finite throughput for some instance")
        below[begin:end] = np.bincount(moment[ratio < keep_ratio - SLACK], minlength=end - begin)
        np.minimum.at(worst, begin + moment, ratio)
        expected += _counted(ratio)
        lower += _counted(low)
        count, total = count + len(ratio), total + float(ratio.sum())
    return ReplayPredictions(below, worst, expected, lower, count, total)


def _counted(ratios: Floats) -> Ints:
    return np.bincount(np.clip((ratios / BIN + 1e-6).astype(np.int64), 0, BINS - 1), minlength=BINS)


def _pieces(where: Ints) -> Iterator[tuple[int, int]]:
    """Ranges [begin, end) of moments predicted together; empty moments are skipped."""
    begin, used, slots = 0, 0, 0
    for moment, places in enumerate(where):
        there = np.bincount(places[places >= 0])
        hosts, most = int((there > 0).sum()), int(there.max(initial=0))
        if used and (used + hosts) * max(slots, most) ** 2 > MAX_CELLS:
            yield begin, moment
            begin, used, slots = moment, 0, 0
        used, slots = used + hosts, max(slots, most)
    if used:
        yield begin, len(where)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is constant over time: an empty host as a scene, slot values, and each instance's profile row (I,)."""

    host: SceneBatch
    any_instance: dict[str, np.generic | NDArray[np.bool_]]
    row: Ints

    @classmethod
    def of(cls, demand: TraceDemand) -> _Layout:
        table = ProfileTable.build(demand.profiles)
        host = build_batch([(demand.host, ())], table)
        row = np.array([table.row(name, demand.host.platform) for name in demand.names], dtype=np.int64)
        return cls(host, slot_values(Instance("any_instance"), 0, host.shared[0]), row)

    def scenes(self, demand: TraceDemand, where: Ints, step: int) -> tuple[SceneBatch, Ints, Ints, Ints]:
        """A scene for every host in use at each moment; and scene, slot and moment of every instance."""
        moment, who = np.nonzero(where >= 0)
        key = moment * (int(where.max()) + 1) + where[moment, who]
        order = np.argsort(key, kind="stable")
        moment, who = moment[order], who[order]
        _, first, scene = np.unique(key[order], return_index=True, return_inverse=True)
        slot = np.arange(len(who)) - first[scene]
        shape = (len(first), int(slot.max()) + 1)
        load = demand.loads(step, step + len(where))[moment, who]
        table, row = self._table(demand, step, moment, who, load)
        own = {"present": True, "profile": row, "load": load, "vcpus": demand.trace.vcpus[who]}
        columns = empty_slots(shape, demand.host.pcpus)
        for name, value in self.any_instance.items():
            columns[name][scene, slot] = own.get(name, value)
        hosts = np.zeros(len(first), dtype=np.int64)
        of_hosts = {name: getattr(self.host, name)[hosts] for name in SCENE_FIELDS}
        return SceneBatch(table=table, **of_hosts, **columns), scene, slot, moment

    def _table(
        self, demand: TraceDemand, step: int, moment: Ints, who: Ints, load: Floats
    ) -> tuple[ProfileTable, Ints]:
        """The profiles and each instance's row; traces with network or disk have one row per instance and moment."""
        table, rates = self.host.table, demand.rates()
        if not rates:
            return table, self.row[who]
        columns = (*table.columns, *(name for name in rates if name not in table.columns))
        known = len(table.values)  # they stay: what a host can do is guessed by all profiles, whoever is there
        values = np.full((known + len(who), len(columns)), np.nan)
        values[:, : len(table.columns)] = np.concatenate([table.values, table.values[self.row[who]]])
        for name, rate in rates.items():  # over the load, by which it is multiplied again
            values[known:, columns.index(name)] = rate[step + moment, who] / load
        names = (*table.names, *(demand.names[number] for number in who.tolist()))
        return ProfileTable(columns, values, {}, names, table.platforms), np.arange(known, len(values))


# One policy through a whole trace, step by step, and the summary of what happened to instances and hosts.

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


# Summarizes the policies of a replay in figures, over all clouds and seeds, and in cautious sentences.

QUANTILES = (0.0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)


def replayed(runs: Sequence[SimulationResult], seeds: Sequence[int]) -> Replayed:
    """The result of one policy under every seed, summed over its clouds; the first seed's over time."""
    merged = [_merged([run for run in runs if run.seed == seed]) for seed in seeds]
    first = merged[0]
    hosts = tuple(first.hosts_used.tolist())
    repeats = tuple(_repeat(run, run.predictions) for run in merged if run.predictions is not None)
    if first.predictions is None:
        return Replayed(first.policy, hosts, float(first.hosts_used.mean()))
    predictions, totals = first.predictions, repeats[0]
    return Replayed(
        policy=first.policy,
        hosts_used=hosts,
        hosts_mean=totals.hosts_mean,
        below=tuple(predictions.below.tolist()),
        worst_over_time=tuple(np.where(np.isinf(predictions.worst), 1.0, np.round(predictions.worst, 4)).tolist()),
        instance_moments=predictions.count,
        violations=int(predictions.below.sum()),
        violation_share=totals.violation_share,
        worst=totals.worst,
        mean=totals.mean,
        ratios=_spread(predictions),
        moves=first.moves,
        refused=first.refused,
        decisions=first.decisions,
        decision_s=first.decision_s,
        longest_decision_s=first.longest_s,
        repeats=repeats,
    )


def _merged(shards: Sequence[SimulationResult]) -> SimulationResult:
    predictions = [shard.predictions for shard in shards if shard.predictions is not None]
    return SimulationResult(
        policy=shards[0].policy,
        seed=shards[0].seed,
        hosts_used=np.sum([shard.hosts_used for shard in shards], axis=0),
        predictions=reduce(ReplayPredictions.plus, predictions) if predictions else None,
        moves=sum(shard.moves for shard in shards),
        refused=sum(shard.refused for shard in shards),
        decisions=sum(shard.decisions for shard in shards),
        decision_s=sum(shard.decision_s for shard in shards),
        longest_s=max(shard.longest_s for shard in shards),
    )


def _repeat(run: SimulationResult, predictions: ReplayPredictions) -> Repeat:
    count = max(predictions.count, 1)
    return Repeat(
        seed=run.seed,
        hosts_mean=float(run.hosts_used.mean()),
        violation_share=float(predictions.below.sum() / count),
        worst=float(predictions.worst.min()) if predictions.count else 1.0,
        mean=predictions.total / count if predictions.count else 1.0,
        moves=run.moves,
        refused=run.refused,
    )


def _spread(predictions: ReplayPredictions) -> RatioSpread | None:
    if not predictions.count:
        return None
    return RatioSpread(QUANTILES, _quantiles(predictions.expected), _quantiles(predictions.lower))


def _quantiles(counts: Ints) -> tuple[float, ...]:
    """The ratio at each of QUANTILES: the lower edge of its bin."""
    summed = np.cumsum(counts)
    wanted = np.ceil(np.array(QUANTILES) * summed[-1]).clip(1)
    return tuple(np.round(np.searchsorted(summed, wanted) * BIN, 4).tolist())


def conclusion(policies: Sequence[Replayed], keep_ratio: float, *, judge: ReplayJudge) -> str:
    """Sentences that compare the advisor with the other policies, with figures and their basis."""
    advised = next((policy for policy in policies if policy.policy == ADVISED), None)
    bound = next((policy for policy in policies if policy.policy == BOUND), None)
    others = [policy for policy in policies if policy.policy not in {ADVISED, BOUND}]
    if advised is None or not others:
        sentences = [f"{_policy_sentence(policy, keep_ratio)}." for policy in policies]
    else:
        sentences = [f"{_policy_sentence(advised, keep_ratio)}."]
        sentences += [f"Against {policy.policy}: {_against(advised, policy)}." for policy in others]
        if bound is not None:
            least = f"{bound.hosts_mean:.2f} hosts on average"
            sentences.append(f"No policy can keep every instance at {100 * keep_ratio:g} % with fewer than {least}.")
    seeds = {len(policy.repeats) for policy in policies if policy.repeats}
    if seeds and max(seeds) > 1:
        sentences.append(
            f"These are the figures of the first of {max(seeds)} seeds; the table of seeds has the others."
        )
    else:
        sentences.append("This is one seed: what differs by little may differ by chance.")
    if judge == "demand":
        basis = (
            "Ratios are what a fair share of each host leaves of the trace's demand in each step: no model has a part"
        )
        basis += " in them, and what happens within a step, in caches and in memory is not in them"
    elif advised is None:
        basis = "All ratios are predicted, from the trace's demand"
    else:
        model = "the same model that" if judge == "model" else "another model than the one that"
        basis = f"All ratios are predicted, by {model} advised, from the trace's demand"
    sentences.append(f"{basis}; nothing was measured on hosts, and another trace may come out otherwise.")
    return " ".join(sentences)


def _policy_sentence(policy: Replayed, keep_ratio: float) -> str:
    if policy.mean is None:
        return f"The {policy.policy} is {policy.hosts_mean:.2f} hosts on average"
    return (
        f"{policy.policy} used {policy.hosts_mean:.2f} hosts on average and left {_percent(policy.violation_share)} of "
        f"instance-moments below {100 * keep_ratio:g} % of their uncontended speed, the lowest at "
        f"{100 * (policy.worst or 0.0):.0f} %"
    )


def _against(mine: Replayed, other: Replayed) -> str:
    hosts = mine.hosts_mean - other.hosts_mean
    if abs(hosts) < 0.005:
        fewer = f"{'about ' if hosts else ''}as many hosts"
    else:
        fewer = f"{abs(hosts):.2f} {'fewer' if hosts < 0 else 'more'} hosts"
    below, theirs = mine.violation_share, other.violation_share
    if _percent(below) == _percent(theirs):
        compared = f"{'' if below == theirs else 'about '}as many violations ({_percent(theirs)})"
    else:
        compared = f"{'fewer' if below < theirs else 'more'} violations ({_percent(below)}, not {_percent(theirs)})"
    refused = mine.refused - other.refused
    turned = f", {abs(refused)} {'fewer' if refused < 0 else 'more'} refused" if refused else ""
    return f"{fewer} and {compared}{turned}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
