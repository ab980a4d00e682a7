"""An event-driven simulator of CPUs shared in proportion to weights: the reference that predictions are held against.

Fluid sharing: at every moment the runnable vCPUs of a VM get the VM's weighted max-min share of the CPUs that it may
use, a vCPU at most one CPU and a VM at most its cap. A cap is a rate here, not a quota over periods; what it holds back
counts as wait, as in the kernel's schedstat.

Demand over time: in each window a VM's mean demand is drawn from a beta distribution on 0 to `vcpus` CPUs whose mean
is `demand_cpus` and whose standard deviation is `spread_cpus` (a gamma that ends at the VM's size). The normal scores
of all VMs have a factor in common whose share of the variance is `common`. Within a window demand is stationary.
Windows are drawn in batches as a Latin hypercube, so that those of a batch cover every VM's distribution evenly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from models.arrays import Bools, Floats, Ints
from research.contention.host_spec import HostOutcome, HostSpec, InstanceOutcome, InstanceSpec

Law = Literal["constant", "exponential", "hyperexponential", "lognormal"]
LAWS: Mapping[Law, int] = {"constant": 0, "exponential": 1, "hyperexponential": 2, "lognormal": 3}
MOST_CONSTRAINTS = 1024
WIDEST = 0.9
"""A demand's variance, as a part of the largest that its mean and its VM's size allow."""


@dataclass(frozen=True, slots=True)
class Bursts:
    """How an instance's bursts come: the law of their CPU time with its squared coefficient of variation (of the two
    heavier laws), and whether an open loop's arrive at random or `periodic`ally, one for each vCPU at the same time."""

    law: Law = "exponential"
    cv2: float = 1.0
    periodic: bool = False


@dataclass(frozen=True, slots=True)
class Length:
    """How long to simulate: batches of windows until the standard error of the instances' shares (root of the mean
    square) is small enough, at least `least` and at most `most` of them or so many events; `warm_up` windows before."""

    windows: int = 16
    least: int = 6
    most: int = 40
    warm_up: int = 6
    error: float = 0.004
    events: int = 4_000_000


@dataclass(frozen=True, slots=True)
class Simulated:
    """`share_error`: a share's standard error, by batch means; `lost_95`: 95th percentile over windows of 1 - share."""

    outcome: HostOutcome
    share_error: Mapping[str, float]
    lost_95: Mapping[str, float]
    windows: int
    events: int


@dataclass(slots=True)
class State:
    """What goes on from one window to the next: runnable vCPUs, bursts that wait, when each burst is
    done, and when a period begins or a thought ends."""

    busy: Ints
    backlog: Ints
    tag: Floats
    virtual: Floats
    alarm: Floats
    now: float = 0.0
    events: int = 0


@dataclass(frozen=True, slots=True)
class Arrays:
    """A host's instances as arrays of n; `member` (F, G) and `member_cpus` (F,) are the constraints of the CPU sets."""

    kind: Ints
    vcpus: Ints
    weight: Floats
    limit: Floats
    burst_s: Floats
    law: Ints
    cv2: Floats
    period_s: Floats
    group: Ints
    member: Bools
    member_cpus: Floats


def simulate(
    host: HostSpec,
    seed: int,
    bursts: Mapping[str, Bursts] | None = None,
    length: Length | None = None,
    demand: Floats | None = None,
) -> Simulated:
    """What each instance gets on the host.

    bursts: by instance id, exponential and at random where none is named. demand: (W, n) CPUs of each instance in each
    window, from a trace, in place of drawn windows; the first `warm_up` rows are not counted and `length` names no end.
    Raises ValueError for a host that cannot be: no instance, a burst or weight of 0, a CPU that it does not have.
    """
    length = length or Length()
    arrays = as_arrays(host, bursts or {})
    rng = np.random.default_rng(seed)
    state = _fresh(arrays, rng)
    if demand is not None:
        rows = np.ascontiguousarray(demand, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(host.instances) or rows.shape[0] <= length.warm_up:
            raise ValueError("demand needs a column for each instance and more rows than the warm-up has")
        _run(host, arrays, state, rng, rows[: length.warm_up])
        parts = [
            _run(host, arrays, state, rng, part)
            for part in np.array_split(rows[length.warm_up :], min(length.least, len(rows) - length.warm_up))
        ]
        return _summary(host, parts, state.events)
    if length.warm_up:
        _run(host, arrays, state, rng, draw_windows(host.instances, length.warm_up, rng))
    parts = []
    while len(parts) < length.most:
        parts.append(_run(host, arrays, state, rng, draw_windows(host.instances, length.windows, rng)))
        if len(parts) >= length.least:
            error = math.sqrt(float(np.mean(np.square(_errors(parts)))))
            if error <= length.error or state.events >= length.events:
                break
    return _summary(host, parts, state.events)


def draw_windows(instances: Sequence[InstanceSpec], windows: int, rng: np.random.Generator) -> Floats:
    """(W, n) mean demand in CPUs of each instance in each window, from beta distributions with a common factor.

    A spread beyond what a mean between 0 and `vcpus` allows is cut (`WIDEST`).
    """
    n = len(instances)
    common = np.array([one.common for one in instances])
    together = ndtri(_strata(rng, windows, 1))
    alone = ndtri(_strata(rng, windows, n))
    position = ndtr(np.sqrt(common) * together + np.sqrt(1.0 - common) * alone)
    size = np.array([float(one.vcpus) for one in instances])
    mean = np.clip(np.array([one.demand_cpus for one in instances]) / size, 1e-6, 1.0)
    room = mean * (1.0 - mean)
    variance = np.minimum((np.array([one.spread_cpus for one in instances]) / size) ** 2, WIDEST * room)
    varies = variance > 1e-8
    mass = room[varies] / variance[varies] - 1.0
    demand = np.broadcast_to(mean, (windows, n)).copy()
    demand[:, varies] = betaincinv(mass * mean[varies], mass * (1.0 - mean[varies]), position[:, varies])
    return np.asarray(demand * size, dtype=np.float64)


def as_arrays(host: HostSpec, bursts: Mapping[str, Bursts]) -> Arrays:
    """The host's instances as the inner loop takes them."""
    if not host.instances:
        raise ValueError(f"{host.id} has no instance")
    for one in host.instances:
        if one.vcpus < 1 or one.burst_ms <= 0 or one.weight <= 0 or one.cap_cpus <= 0 or one.demand_cpus < 0:
            raise ValueError(f"{one.id} needs vCPUs, bursts, weight and cap above 0, and no negative demand")
        if any(not 0 <= cpu < host.cpus for cpu in one.pin):
            raise ValueError(f"{one.id} is pinned to a CPU that {host.id} does not have")
    kinds = {"open": 0, "closed": 1, "hog": 2}
    laws = [bursts.get(one.id, Bursts()) for one in host.instances]
    kind = np.array([3 if b.periodic else kinds[one.loop] for one, b in zip(host.instances, laws, strict=True)])
    vcpus = np.array([one.vcpus for one in host.instances])
    burst_s = np.array([one.burst_ms / 1000.0 for one in host.instances])
    demand = np.maximum(np.array([one.demand_cpus for one in host.instances]), 1e-9)
    everywhere = frozenset(range(host.cpus))
    pins = [frozenset(one.pin) or everywhere for one in host.instances]
    groups = sorted(set(pins), key=sorted)
    member, member_cpus = constraints(groups)
    return Arrays(
        kind=kind.astype(np.int64),
        vcpus=vcpus.astype(np.int64),
        weight=np.array([float(one.weight) for one in host.instances]),
        limit=np.array(
            [min(one.cap_cpus, len(pin), host.cpus) for one, pin in zip(host.instances, pins, strict=True)], float
        ),
        burst_s=burst_s,
        law=np.array([LAWS[one.law] for one in laws], dtype=np.int64),
        cv2=np.array([max(one.cv2, 1.0) if one.law == "hyperexponential" else one.cv2 for one in laws]),
        period_s=burst_s * vcpus / demand,
        group=np.array([groups.index(pin) for pin in pins], dtype=np.int64),
        member=member,
        member_cpus=member_cpus,
    )


def constraints(groups: Sequence[frozenset[int]]) -> tuple[Bools, Floats]:
    """What groups of VMs, each with its set of CPUs, can get: those inside a union of sets at most that union's CPUs.

    Unions of sets that overlap are enough: of others the constraint is the sum of two. Raises ValueError beyond
    `MOST_CONSTRAINTS` unions.
    """
    unions = set(groups)
    latest = set(groups)
    while latest:
        latest = {a | b for a in latest for b in groups if a & b} - unions
        unions |= latest
        if len(unions) > MOST_CONSTRAINTS:
            raise ValueError(f"the CPU sets overlap in more than {MOST_CONSTRAINTS} ways")
    ordered = sorted(unions, key=lambda one: (-len(one), sorted(one)))
    member = np.array([[group <= union for group in groups] for union in ordered], dtype=np.bool_)
    return member, np.array([float(len(union)) for union in ordered])


@dataclass(slots=True)
class Batch:
    """What a batch collected: (W, 4, n) seconds of run, wait, short and short_95, and (W,) of a short host."""

    collected: Floats
    crowded: Floats
    seconds: float = field(default=0.0)


def _run(host: HostSpec, arrays: Arrays, state: State, rng: np.random.Generator, demand: Floats) -> Batch:
    from research.contention import fluid_loop  # numba's import takes half a second

    seconds = len(demand) * host.window_s
    collected, crowded, events = fluid_loop.run_windows(
        rng,
        float(host.cpus),
        float(host.window_s),
        demand,
        arrays.kind,
        arrays.vcpus,
        arrays.weight,
        arrays.limit,
        arrays.burst_s,
        arrays.law,
        arrays.cv2,
        arrays.period_s,
        arrays.group,
        arrays.member,
        arrays.member_cpus,
        state.busy,
        state.backlog,
        state.tag,
        state.virtual,
        state.alarm,
        state.now,
    )
    state.now += seconds
    state.events += events
    return Batch(collected, crowded, seconds)


def _fresh(arrays: Arrays, rng: np.random.Generator) -> State:
    n = arrays.vcpus.size
    alarm = np.where(arrays.kind == 3, rng.random(n) * arrays.period_s, math.inf)
    tags = np.full((n, int(arrays.vcpus.max())), math.inf)
    return State(np.zeros(n, np.int64), np.zeros(n, np.int64), tags, np.zeros(n), alarm)


def _strata(rng: np.random.Generator, windows: int, n: int) -> Floats:
    """(W, n) numbers in (0, 1): each column has one in every W-th part, in random order."""
    order = rng.permuted(np.tile(np.arange(windows, dtype=float)[:, None], (1, n)), axis=0)
    return np.clip((order + rng.random((windows, n))) / windows, 1e-12, 1.0 - 1e-12)


def _errors(parts: Sequence[Batch]) -> Floats:
    """(n,) standard error of each share: a ratio of sums over batches, linearised."""
    run = np.array([part.collected[:, 0].sum(axis=0) for part in parts])
    demanded = run + np.array([part.collected[:, 1].sum(axis=0) for part in parts])
    total = demanded.sum(axis=0)
    share = np.divide(run.sum(axis=0), total, out=np.ones_like(total), where=total > 0)
    if len(parts) < 2:
        return np.zeros_like(share)
    deviation = (run - share * demanded).std(axis=0, ddof=1) * math.sqrt(len(parts))
    return np.asarray(np.divide(deviation, total, out=np.zeros_like(total), where=total > 0), dtype=np.float64)


def _summary(host: HostSpec, parts: Sequence[Batch], events: int) -> Simulated:
    collected = np.concatenate([part.collected for part in parts])
    seconds = sum(part.seconds for part in parts)
    run, wait, short, short_95 = collected.sum(axis=0)
    share = np.divide(run, run + wait, out=np.ones_like(run), where=run + wait > 0)
    lost = np.divide(
        collected[:, 1],
        collected[:, 0] + collected[:, 1],
        out=np.zeros_like(collected[:, 0]),
        where=collected[:, 0] + collected[:, 1] > 0,
    )
    lost_95 = np.percentile(lost, 95, axis=0)
    errors = _errors(parts)
    names = [one.id for one in host.instances]
    instances = {
        name: InstanceOutcome(
            float(share[i]), float(short[i] / seconds), float(short_95[i] / seconds), float(run[i]), float(wait[i])
        )
        for i, name in enumerate(names)
    }
    crowded = float(sum(part.crowded.sum() for part in parts)) / seconds
    return Simulated(
        HostOutcome(instances, crowded),
        {name: float(errors[i]) for i, name in enumerate(names)},
        {name: float(lost_95[i]) for i, name in enumerate(names)},
        len(collected),
        events,
    )
