"""Replays: what policies made of one trace of real demand, side by side; every ratio in them is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from advisor.domain.plan_questions import Objective, PlanFor

TraceForm = Literal["bitbrains", "planetlab", "csv", "parquet"]
TRACE_FORMS: tuple[TraceForm, ...] = get_args(TraceForm)
ReplayJudge = Literal["demand", "model", "analytic"]
REPLAY_JUDGES: tuple[ReplayJudge, ...] = get_args(ReplayJudge)
FAIR_SHARES = "fair shares"  # the `judge_version` of demand


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """What would policies have made of a trace?

    `policies` None = all: `cotenant`, each rule that needs to know no more of a host than a replay does
    (`advisor.scheduling.rules`), and `lower bound`. `hosts` None = 1.5 times what the busiest moment needs at
    least. The first `history_s` of the trace is only watched, None = a day, and at most a quarter of the trace. Who
    decides by demand counts `plan_for` of it, as plans do: a percentile or the mean of every instance's last day, or
    demand as it varied till then, over the hours, too. `rebalance_s` is how often residents may move, None = never.
    `shards` deals the instances out to that many clouds of their own. `judge` says where the ratios are from: the
    trace's demand, shared fairly, in which no model has a part; the model that also advises; or the analytic model.
    """

    policies: tuple[str, ...] | None = None
    hosts: int | None = None
    keep_ratio: float = 0.8
    objective: Objective = "pack"
    seeds: tuple[int, ...] = (1,)
    shards: int = 1
    history_s: float | None = None
    plan_for: PlanFor = "p95"
    rebalance_s: float | None = None
    judge: ReplayJudge = "demand"


@dataclass(frozen=True, slots=True)
class RatioSpread:
    """How T/B is distributed over instance-moments (one instance at one moment): at each of `quantiles` (0-1, rising)
    the `expected` ratio and the `lower` edge of its 90 % interval, both rounded down to 0.001."""

    quantiles: tuple[float, ...]
    expected: tuple[float, ...]
    lower: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The sums of one policy under another seed: hosts used (mean over moments), share of instance-moments below the
    limit, lowest and mean expected T/B, moves, instances refused."""

    seed: int
    hosts_mean: float
    violation_share: float
    worst: float
    mean: float
    moves: int
    refused: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What one policy made of a trace.

    Over time, one value per entry of `Replay.times_s`: `hosts_used` with instances on them, `below` instances under
    their limit, `worst_over_time` the lowest expected T/B (1.0 where no instance is there). Summed up over all
    instance-moments: `violations` of `instance_moments` were below the limit (`violation_share` of them), `worst` and
    `mean` expected T/B, `ratios` their distribution. `moves` are moves of residents, `refused` the instances that no
    host could take, which then count nowhere else. `decision_s` is the time that all decisions took, and
    `longest_decision_s` the longest one. `hosts_mean` is the mean of `hosts_used`.

    All of it is of the first seed; `repeats` are the sums under every seed, the first one included. The lower bound
    places no instance: it has `hosts_used` (with fewer, some instance has no host or is below the limit) and
    `hosts_mean`; `ratios`, `worst` and `mean` are None there, the counts 0, `below` and `worst_over_time` empty.
    """

    policy: str
    hosts_used: tuple[int, ...]
    hosts_mean: float
    below: tuple[int, ...] = ()
    worst_over_time: tuple[float, ...] = ()
    instance_moments: int = 0
    violations: int = 0
    violation_share: float = 0.0
    worst: float | None = None
    mean: float | None = None
    ratios: RatioSpread | None = None
    moves: int = 0
    refused: int = 0
    decisions: int = 0
    decision_s: float = 0.0
    longest_decision_s: float = 0.0
    repeats: tuple[Repeat, ...] = ()


@dataclass(frozen=True, slots=True)
class Replay:
    """One trace through policies side by side, at the same limits and on the same hosts.

    `trace` is its file's name and `form` how it was read; `instances` took part, over `steps` moments of `interval_s`,
    which begin at `times_s` after the trace's first one; `hosts` there were, described by `host_type`. `keep_ratio` is
    the T/B below which an instance counts as violated. `assumptions` are sentences: what the trace does not say and
    what was taken instead. `judge_version` and `judge_origin` say where the ratios are from; nothing in a
    replay was measured on hosts. `shards` is how many clouds of their own the trace was dealt out to, `seeds` the
    seeds that were tried; `conclusion` says in words what came of the first one.
    """

    trace: str
    form: TraceForm
    instances: int
    steps: int
    interval_s: float
    times_s: tuple[float, ...]
    hosts: int
    host_type: str
    keep_ratio: float
    seeds: tuple[int, ...]
    assumptions: tuple[str, ...]
    model_version: str
    model_origin: str
    policies: tuple[Replayed, ...]
    conclusion: str
    generated_at: datetime
    judge_version: str = ""
    judge_origin: str = ""
    shards: int = 1
