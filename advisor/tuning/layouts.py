"""Layouts of one host as arrays, and the oracle that values many of them in one call of the analytic model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from advisor.domain import Objective
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from models.arrays import Bools, Floats, Ints
from models.data.scene import PCPU_FIELDS, SceneBatch
from models.data.topology import given_own_cpus
from models.physics.demands import Demands, demands
from models.physics.prior import solve
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import DEFAULT_WEIGHT

CELLS = 1_000_000  # slots times pCPUs of the layouts that are valued together, which bounds memory
LATENCY_COUNTS = 0.5  # of what an instance keeps that is sensitive to latency; the rest is T/B
BROKEN = 10.0  # what a limit that does not hold costs, far above all that a layout without can gain


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where the N instances and the driver domain of a host of P pCPUs may run, and what holds them back.

    `affinity` (N, P); `driver` (P,), the pCPUs of the driver domain, and its `driver_weight`; `weight`, `cap` in CPUs,
    `net_mode`, `net_rate` and `net_ceil` in Mbit/s and `disk_limit` in MB/s (N,), as in SceneBatch.
    """

    affinity: Bools
    driver: Bools
    driver_weight: float
    weight: Floats
    cap: Floats
    net_mode: Ints
    net_rate: Floats
    net_ceil: Floats
    disk_limit: Floats

    @classmethod
    def of(cls, scene: SceneBatch) -> Layout:
        """The layout of a batch of one scene."""
        return cls(
            scene.affinity[0].copy(), scene.driver_cpus[0].copy(), float(scene.driver_weight[0]),
            *(getattr(scene, name)[0].copy() for name in PER_SLOT),
        )  # fmt: skip

    def with_cpus(self, slot: int, cpus: Bools) -> Layout:
        """The same with other pCPUs for one instance."""
        affinity = self.affinity.copy()
        affinity[slot] = cpus
        return replace(self, affinity=affinity)

    def with_value(self, name: str, slot: int, value: float) -> Layout:
        """The same with another value of one instance's setting."""
        values = getattr(self, name).copy()
        values[slot] = value
        return replace(self, **{name: values})

    @property
    def key(self) -> bytes:
        """Equal for equal layouts."""
        return b"".join(np.asarray(getattr(self, one.name)).tobytes() for one in fields(self))


# Where a VM may choose among pCPUs, Linux places it by the sum of weights on each: a weight of 64 looks like idleness.
# There instances with unequal weights were measured 0.05 to 0.20 below what the model predicts (decision 209).
UNSURE = 0.5
HELD_BY = ("cap", "net_ceil", "disk_limit")  # settings that hold an instance back whatever others do
PER_SLOT = ("weight", "cap", "net_mode", "net_rate", "net_ceil", "disk_limit")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the instances of a host, (N,) each, nan = none: lowest T/B, highest latency ratio, and the largest
    part of the time short of CPU."""

    least: Floats
    latency: Floats
    short: Floats


@dataclass(frozen=True, slots=True)
class Valued:
    """Layouts with their `value` (S,), higher is better, and the T/B of each instance, `kept` (S, N)."""

    value: Floats
    kept: Floats


@dataclass(slots=True)
class Oracle:
    """Values layouts of one host.

    `scene` is the host as it stands, one scene without empty slots and without pCPUs that it lacks. `work` counts the
    layouts times their slots that were valued; beyond `budget` the search ends, which the clock does not decide.
    `until` (monotonic) is a stop that is reported: `timed_out`. Fewer changes and their order are sought until `last`.
    `sensitive` (N,) are instances of which the latency counts, too (`felt`).
    """

    scene: SceneBatch
    limits: Limits
    sensitive: Bools
    objective: Objective
    budget: float
    until: float = np.inf
    last: float = np.inf
    work: float = 0.0
    timed_out: bool = False
    held: Valued | None = field(default=None, init=False)
    want: Demands = field(init=False)
    core: Ints = field(init=False)
    apart_only: bool = field(init=False)  # whether weights are shared as predicted only on pCPUs that all are pinned to

    def __post_init__(self) -> None:
        self.want = demands(given_own_cpus(self.scene))
        self.core = self.scene.core[0]
        self.apart_only = not TRAITS[HOST_KINDS[int(self.scene.kind[0])]].driver_apart

    @property
    def ended(self) -> bool:
        """Whether no more layouts are to be valued."""
        if time.monotonic() > self.until:
            self.timed_out = True
        return self.timed_out or self.work > self.budget

    @property
    def late(self) -> bool:
        """Whether what is found has to be taken as it is."""
        return time.monotonic() > self.last

    def scenes(self, layouts: Sequence[Layout]) -> SceneBatch:
        """One scene for each layout."""
        batch = self.scene.take(np.zeros(len(layouts), dtype=np.int64))
        return replace(
            batch,
            affinity=np.stack([one.affinity for one in layouts]),
            driver_cpus=np.stack([one.driver for one in layouts]),
            driver_weight=np.array([one.driver_weight for one in layouts]),
            **self._of_slots(layouts),
        )

    def _of_slots(self, layouts: Sequence[Layout]) -> dict[str, Any]:
        return {name: np.stack([getattr(one, name) for one in layouts]) for name in PER_SLOT}

    def value(self, layouts: Sequence[Layout], *, in_time: bool = False) -> Valued:
        """The value of each layout by what is expected (`worth`).

        A limit that does not hold costs BROKEN and what is lacking, a weight that is not sure (`_unsure`) UNSURE, and
        each cap, rate or disk limit that is set or lowered PIN_GAIN: for less, no tenant is throttled. With `in_time`
        layouts that the clock leaves no time for are worth -inf.
        """
        step = max(CELLS // max(self.scene.affinity[0].size, 1), 1)
        parts = []
        for at in range(0, len(layouts), step):
            some = layouts[at : at + step]
            if in_time and time.monotonic() > self.until:
                self.timed_out = True
                parts.append(Valued(np.full(len(some), -np.inf), np.zeros((len(some), self.scene.slots))))
            else:
                parts.append(self._value(some))
        self.work += len(layouts) * (self.scene.slots + 1)
        return Valued(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(Valued)))

    def _value(self, layouts: Sequence[Layout]) -> Valued:
        scenes = self.scenes(layouts)
        result = solve(scenes)
        kept, short = result.throughput, result.cpu.short
        lacking = _lacking(self.limits.least, kept) + _lacking(-self.limits.short, -short)
        if not np.isnan(self.limits.latency).all():
            lacking += _lacking(1 / self.limits.latency, 1 / result.latency)
        held = sum((getattr(scenes, name) < getattr(self.scene, name)).sum(axis=1) for name in HELD_BY)
        counts = felt(kept, result.latency, self.sensitive) if self.sensitive.any() else kept
        value = worth(counts, self.objective) - BROKEN * lacking.sum(axis=1) - scoring.PIN_GAIN * held
        return Valued(value - UNSURE * self._unsure(scenes), kept)

    def _unsure(self, scenes: SceneBatch) -> Ints:
        """How many instances have another weight than now, other than the usual one, where the kernel does not share by
        weights as predicted; (S,)."""
        weight = scenes.weight
        changed = scenes.present & (weight != self.scene.weight) & (weight != DEFAULT_WEIGHT)
        if not self.apart_only or not changed.any():
            return np.zeros(len(weight), dtype=np.int64)
        return np.asarray((changed & ~alone_on_one(scenes.affinity)).sum(axis=1))


def alone_on_one(affinity: Bools) -> Bools:
    """Which instances are pinned to one pCPU that only instances pinned to it may use; (..., N, P) to (..., N)."""
    single = affinity.sum(axis=-1) == 1
    beside_free = (affinity & ~single[..., None]).any(axis=-2)
    return np.asarray(single & ~(affinity & beside_free[..., None, :]).any(axis=-1))


def felt(kept: Floats, latency: Floats, sensitive: Bools) -> Floats:
    """What instances keep, (S, N): T/B, and of those that are sensitive to latency half of it and half of the speed of
    their answers, 1 / latency ratio."""
    speed = 1 / np.maximum(latency, 1.0)
    return np.asarray(np.where(sensitive, (1 - LATENCY_COUNTS) * kept + LATENCY_COUNTS * speed, kept))


def worth(kept: Floats, objective: Objective) -> Floats:
    """What layouts are worth in which instances keep so much of their speed alone, `kept` (S, N); (S,).

    Of `total` it is the sum. Else the most affected instance decides: 1 less its loss, and less OTHERS_COUNT of what
    all others lose on average. An average, where a placement counts the sum: a layout changes all of them, and with the
    sum dozens who gain a little would outweigh one instance that nearly stands still.
    """
    if objective == "total":
        return np.asarray(kept.sum(axis=1))
    lost = 1 - kept
    most = lost.max(axis=1, initial=0.0)
    others = (lost.sum(axis=1) - most) / max(kept.shape[1] - 1, 1)
    return np.asarray(1 - most - scoring.OTHERS_COUNT * others)


def _lacking(least: Floats, have: Floats) -> Floats:
    """1 and what is lacking where a limit does not hold, 0 elsewhere; (S, N)."""
    lacking = np.where(np.isnan(least), 0.0, least - have)
    return np.where(lacking > SLACK, 1 + lacking, 0.0)


def trimmed(scene: SceneBatch, pcpus: int) -> SceneBatch:
    """One scene without empty slots behind the last instance and without pCPUs that its host lacks."""
    scene = scene.trimmed()
    return replace(scene, **{name: getattr(scene, name)[..., :pcpus] for name in PCPU_FIELDS})
