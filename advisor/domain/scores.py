"""What was measured of VMs: scores, CPU and devices delivered, and which instance slows which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, computed_field

from models.figures import Figure, Known, Tenths

SCORE_BUCKETS = ("0-20", "20-40", "40-60", "60-80", "80-100")  # of scores; the last one holds 100, too
LOW_WINDOWS = 3  # windows of five minutes one after the other, before a low score is an alarm
LOW_SCORE = 60.0  # a VM below it loses two fifths of what it could do
ScoreSource = Literal["measured", "predicted"]


@dataclass(frozen=True, slots=True)
class VmScore:
    """The score of one VM: 100 x cpu x devices x memory (see advisor.scheduling.scoring)."""

    instance: Annotated[str, Field(description="the VM")]
    host: Annotated[str, Field(description="where it is")]
    score: Annotated[Tenths, Field(description="0-100; 100 = uncontended")]
    source: Annotated[ScoreSource, Field(description="whether `cpu` was measured in the last window or is predicted")]
    cpu: Annotated[Known | None, Field(description="CPU delivered, 0-1; null where no demand is known")]
    devices: Annotated[Known, Field(description="what driver domain, network, disk and caches leave, 0-1; predicted")]
    memory: Annotated[
        Known | None,
        Field(description="part of the time without stalls for memory, 0-1; null = not measured, counts as none"),
    ]


@dataclass(frozen=True, slots=True)
class ScoreSummary:
    """Scores of several VMs."""

    measured: Annotated[
        int, Field(description="of how many the CPU time was measured in the last window; the others: predicted")
    ]
    mean: Annotated[Tenths | None, Field(description="mean score, 0-100; null where no VM runs")]
    lowest: Annotated[Tenths | None, Field(description="lowest score; null where no VM runs")]
    buckets: Annotated[
        Mapping[str, int], Field(description="how many VMs have a score in each fifth; 80-100 holds 100, too")
    ]

    @computed_field(description="how many VMs run")  # type: ignore[prop-decorator]
    @property
    def instances(self) -> int:
        """How many VMs there are."""
        return sum(self.counts)

    @property
    def counts(self) -> tuple[int, ...]:
        """How many VMs there are in each of SCORE_BUCKETS."""
        return tuple(self.buckets[name] for name in SCORE_BUCKETS)

    @property
    def low(self) -> int:
        """How many VMs are below LOW_SCORE, a border of buckets."""
        return sum(self.counts[: int(LOW_SCORE // 20)])

    @classmethod
    def of(cls, counts: Sequence[int], mean: float | None, lowest: float | None, measured: int) -> ScoreSummary:
        """With `counts` in the order of SCORE_BUCKETS."""
        return ScoreSummary(measured, mean, lowest, dict(zip(SCORE_BUCKETS, counts, strict=True)))


NO_SCORES = ScoreSummary.of((0,) * len(SCORE_BUCKETS), None, None, 0)


@dataclass(frozen=True, slots=True)
class HostScore(ScoreSummary):
    """Scores of the VMs of one host."""

    host: Annotated[str, Field(description="the host")]


@dataclass(frozen=True, slots=True)
class ScorePoint(ScoreSummary):
    """Scores in one window of five minutes."""

    time: Annotated[datetime, Field(description="when the window ended")]


@dataclass(frozen=True, slots=True)
class CloudScores:
    """The scores of all VMs that run at `time`: of the cloud, of each host by id, and of each VM by id."""

    time: datetime
    cloud: ScoreSummary
    hosts: Mapping[str, ScoreSummary]
    instances: Mapping[str, VmScore]

    @property
    def hosts_lowest_first(self) -> Sequence[tuple[str, ScoreSummary]]:
        """Hosts with VMs by their mean, then by id."""
        ranked = [(of.mean, host, of) for host, of in self.hosts.items() if of.mean is not None]
        return [(host, of) for _, host, of in sorted(ranked, key=lambda one: one[:2])]

    def on(self, host: str) -> Sequence[VmScore]:
        """The VMs of a host, the lowest score first."""
        there = [of for of in self.instances.values() if of.host == host]
        return sorted(there, key=lambda of: (of.score, of.instance))

    def lowest(self, most: int, below: float = LOW_SCORE) -> Sequence[VmScore]:
        """The VMs below a score, the lowest first."""
        low = [of for of in self.instances.values() if of.score < below]
        return sorted(low, key=lambda of: (of.score, of.instance))[:most]


@dataclass(frozen=True, slots=True)
class VmScorePoint:
    """The score of one VM in a window of five minutes."""

    time: Annotated[datetime, Field(description="when the window ended")]
    score: Annotated[Tenths, Field(description="0-100, rounded")]
    source: Annotated[ScoreSource, Field(description="whether CPU delivered was measured or predicted")]


@dataclass(frozen=True, slots=True)
class LowScore:
    """A VM whose measured score was low in the last windows."""

    instance: Annotated[str, Field(description="the VM")]
    host: Annotated[str, Field(description="where it is")]
    score: Annotated[Tenths, Field(description="its score now, 0-100")]
    below: Annotated[Tenths, Field(description="the score below which it is an alarm (COTENANT_SCORE_ALARM)")]
    windows: Annotated[int, Field(description="windows of five minutes with a lower one, at most those of a day")]
    until: Annotated[datetime, Field(description="when the last of them ended")]

    @property
    def since(self) -> datetime:
        """When the first of these windows began."""
        return self.until - timedelta(minutes=5 * self.windows)

    @computed_field(description="it in words")  # type: ignore[prop-decorator]
    @property
    def text(self) -> str:
        """It in words."""
        return (
            f"The measured score of {self.instance} on {self.host} is {self.score:.0f}, and was below {self.below:.0f} "
            f"in {self.windows} windows since {self.since:%Y-%m-%d %H:%M} UTC."
        )


# Which instances of a host slow which, predicted beside measured.

FELT = 0.01  # of a ratio: smaller losses are not listed
SlowingSource = Literal["run queue", "correlation"]


@dataclass(frozen=True, slots=True)
class Slowing:
    """What `victim` would keep more of its speed without `neighbour`, as T/B; below 0 = it is better off with it."""

    victim: str
    neighbour: str
    loss: float


@dataclass(frozen=True, slots=True)
class MeasuredSlowing:
    """The part of the CPU time of its demand that `victim` loses to `neighbour`, as measured.

    By "run queue": for so long it waited while that one ran. By "correlation": by so much more it waited in windows in
    which that one ran, at its mean use; `chance` is the p-value, None = it was seen and not inferred.
    """

    victim: str
    neighbour: str
    loss: float
    source: SlowingSource
    chance: float | None


@dataclass(frozen=True, slots=True)
class SlowingHere:
    """Which instances slow which on a host as measured from `begin` to `end`, the largest loss first.

    `windows` are those that a correlation had, `watched` the instances whose run queue was watched; of these no
    correlation is asked. `elsewhere` = another store has the samples, and nothing is reported.
    """

    host: str
    begin: datetime
    end: datetime
    windows: int
    watched: tuple[str, ...]
    found: tuple[MeasuredSlowing, ...]
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class SlowingPair:
    """What one instance loses to one other."""

    victim: Annotated[str, Field(description="the instance that loses")]
    neighbour: Annotated[str, Field(description="the neighbour that it loses to")]
    predicted: Annotated[
        Figure | None,
        Field(
            description="by how much its relative throughput would be higher without that one; null = less than 0.01"
        ),
    ]
    measured: Annotated[
        Figure | None,
        Field(description="the part of its CPU demand that it loses to that one; null = nothing was seen"),
    ]
    source: Annotated[
        SlowingSource | None,
        Field(
            description="of what was measured: its run queue shows which instance ran while it waited; by correlation "
            "it waits more in windows in which that one runs"
        ),
    ]
    chance: Annotated[Figure | None, Field(description="p-value of the correlation")]


@dataclass(frozen=True, slots=True)
class HostSlowing:
    """How instances on a host slow each other down, the largest loss first."""

    host: Annotated[str, Field(description="the host")]
    begin: Annotated[datetime, Field(description="since when it was measured")]
    end: Annotated[datetime, Field(description="until when")]
    windows: Annotated[int, Field(description="windows of five minutes that correlations had; under 36 say nothing")]
    watched: Annotated[
        tuple[str, ...],
        Field(description="instances whose run queue was watched; of these no correlation is asked"),
    ]
    elsewhere: Annotated[bool, Field(description="true = another store has the samples, so nothing measured is shown")]
    pairs: Annotated[tuple[SlowingPair, ...], Field(description="pairs of which something is predicted or measured")]

    @classmethod
    def of(cls, measured: SlowingHere, predicted: Iterable[Slowing]) -> HostSlowing:
        """What was measured, beside what is predicted."""
        here = measured
        pairs = beside(predicted, here.found)
        return cls(here.host, here.begin, here.end, here.windows, here.watched, here.elsewhere, pairs)


def beside(predicted: Iterable[Slowing], measured: Iterable[MeasuredSlowing]) -> tuple[SlowingPair, ...]:
    """Each pair of which something is predicted or measured, once, the largest loss of the two first."""
    losses = {(slowing.victim, slowing.neighbour): slowing.loss for slowing in predicted if slowing.loss >= FELT}
    seen = {(slowing.victim, slowing.neighbour): slowing for slowing in measured}
    pairs = [_pair(pair, losses.get(pair), seen.get(pair)) for pair in sorted(losses.keys() | seen.keys())]
    return tuple(sorted(pairs, key=lambda pair: -max(pair.predicted or 0.0, pair.measured or 0.0)))


def _pair(pair: tuple[str, str], predicted: float | None, seen: MeasuredSlowing | None) -> SlowingPair:
    if seen is None:
        return SlowingPair(*pair, predicted, None, None, None)
    return SlowingPair(*pair, predicted, seen.loss, seen.source, seen.chance)


# What an instance obtained, as it was measured.


@dataclass(frozen=True, slots=True)
class Obtained:
    """One thing that says what an instance obtained, by windows of five minutes."""

    metric: Annotated[str, Field(description="`cpu_share`, of which less is worse, or a metric of which more is worse")]
    unit: Annotated[str, Field(description="unit of the values; empty = a share from 0 to 1")]
    help: Annotated[str, Field(description="what it is")]
    mean: Annotated[Known, Field(description="mean over the windows")]
    tail: Annotated[Known, Field(description="95 % of the windows were no worse")]
    worst: Annotated[Known, Field(description="the worst window")]
    windows: Annotated[int, Field(description="windows in which it was measured")]


@dataclass(frozen=True, slots=True)
class InstanceObtained:
    """What an instance obtained, the share of CPU time first; what its host does not measure is left out."""

    instance: Annotated[str, Field(description="the instance")]
    begin: Annotated[datetime, Field(description="since when it was measured")]
    end: Annotated[datetime, Field(description="until when")]
    outcomes: Annotated[tuple[Obtained, ...], Field(description="what was measured")]
    elsewhere: Annotated[bool, Field(description="true = the store of `COTENANT_PROMETHEUS_URL` was asked")] = False
