"""The queueing prior: T/B, latency and jitter from solo profiles, by max-min fair sharing of five resources."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch
from models.physics import htb
from models.physics.demands import Demands, capacity, crowd, demands, driver_price, link, weights
from models.physics.kinds import trait
from models.physics.latency import latency_and_jitter
from models.physics.max_min import cpu_classes, fill, share_sets
from models.prediction import TARGETS, BandArrays, InterferencePrediction, unasked
from profiler.observed import DEFAULT_WEIGHT

PRIOR_HALF_WIDTH = 0.35  # of log T/B at full contention; what published rules of thumb miss by (findings N3-N8)
# How much wider latency's interval is than that of T/B, and jitter's: waiting depends on how work arrives, of which a
# profile says nothing, and jitter on its squares, which doubles a spread of logs.
LATENCY_TIMES, JITTER_TIMES = 2.0, 4.0
_ROUNDS, UNDAMPED, CONVERGED = 24, 2, 1e-5  # of the fixed point: most scenes need three rounds
RESOURCES = ("cpu", "driver_domain", "nic", "disk", "memory")
# Of a profile, all that the prior reads.
METRICS = (
    "cpu", "driver_domain.cpu", "pages_exchanged", "execution", "waiting", "block", "net_mbit", "throughput_kb_s",
    "disk_mb_s", "mem_bw_mb_s", "latency_mean_ms", "jitter_ms",
)  # fmt: skip


@dataclass(frozen=True)  # without slots: waiting is computed when it is first read, which most questions never do
class PriorResult:
    """`throughput` (S, N) T/B; `latency` and `jitter` (S, N) ratios to alone, jitter being the standard deviation of
    latency; `limits` (S, N, 5) how far each of RESOURCES alone would let an instance go; `demands` what was asked;
    `crowd` (S, N) CPU demand per CPU on the pCPUs it may use; `scenes` what it is about."""

    throughput: Floats
    limits: Floats
    demands: Demands
    crowd: Floats
    scenes: SceneBatch

    @property
    def latency(self) -> Floats:
        return self._waiting[0]

    @property
    def jitter(self) -> Floats:
        return self._waiting[1]

    @cached_property
    def _waiting(self) -> tuple[Floats, Floats]:
        if self.scenes.slots == 0:
            return self.throughput, self.throughput
        return latency_and_jitter(self.scenes, self.demands, self.throughput)


@dataclass(frozen=True, slots=True)
class _SceneDemands:
    """What S scenes ask of what there is; (S, N) each, except `weight` (S, N + 1) and `allowed` (S, N + 1, C) with the
    driver domain as the last consumer, `room` (S, C) CPUs, and `driver_most` and `link` (S,); `net_class` is who has a
    traffic class, of `net_rate` up to `net_most`, and `net_first` whose is served before the others."""

    cpu: Floats
    keen: Floats
    cap: Floats
    weight: Floats
    allowed: Bools
    room: Floats
    driver: Floats
    driver_most: Floats
    net: Floats
    net_rate: Floats
    net_most: Floats
    net_class: Bools
    net_first: Bools
    link: Floats
    disk: Floats
    disk_most: Floats
    memory: Floats

    def take(self, rows: Ints) -> _SceneDemands:
        """The scenes with these numbers."""
        return _SceneDemands(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def solve(scenes: SceneBatch) -> PriorResult:
    """Find the throughput ratios at which CPUs, driver domain, NIC, disk and memory are shared max-min fairly.

    Every instance is as fast as its scarcest resource allows, and an instance that one resource limits demands less
    of the others; that fixed point is found by damped iteration. Needs solo profiles only (NEIGHBOR sections 3.4, 4).
    """
    want = demands(scenes)
    if scenes.slots == 0:
        nothing = np.ones((len(scenes), 0))
        return PriorResult(nothing, np.ones((len(scenes), 0, len(RESOURCES))), want, nothing, scenes)
    limits = _fixed_point(_asked(scenes, want))
    return PriorResult(limits.min(axis=2), limits, want, crowd(scenes, want), scenes)


def _asked(scenes: SceneBatch, want: Demands) -> _SceneDemands:
    affinity = np.concatenate([scenes.affinity, scenes.driver_cpus[:, None, :]], axis=1)
    affinity &= np.concatenate([scenes.present, np.ones((len(scenes), 1), dtype=bool)], axis=1)[:, :, None]
    allowed, room = cpu_classes(affinity, scenes.pcpus)
    everybody = np.concatenate([scenes.weight, np.full((len(scenes), 1), float(DEFAULT_WEIGHT))], axis=1)
    driver_most = trait(scenes.kind, "driver_servers")
    disk = np.broadcast_to(capacity(scenes, "disk_mb_s")[:, None], want.disk.shape)
    return _SceneDemands(
        cpu=want.cpu,
        keen=want.keen,
        cap=scenes.cap,
        weight=weights(scenes, everybody),
        allowed=allowed,
        room=room,
        driver=want.driver * driver_price(scenes, want),
        driver_most=np.maximum(driver_most, want.driver.max(axis=1)),  # solo it was seen to use that much
        net=want.net,
        net_rate=scenes.net_rate,
        net_most=scenes.net_ceil,
        net_class=htb.shaped(scenes),
        net_first=htb.first(scenes),
        link=link(scenes),
        disk=want.disk,
        disk_most=np.divide(scenes.disk_limit, disk, out=np.full(disk.shape, np.inf), where=disk > 0),
        memory=want.memory,
    )


def _fixed_point(asked: _SceneDemands) -> Floats:
    """The throughput ratio that each resource allows each instance, (S, N, 5).

    Scenes are independent of each other; only those that have not converged are computed again.
    """
    limits = np.ones((*asked.cpu.shape, len(RESOURCES)))
    active = np.arange(len(limits))
    for turn in range(_ROUNDS):
        now = limits[active]
        step = _round(asked, now) - now
        limits[active] = now + (1.0 if turn <= UNDAMPED else 0.5) * step
        moving = np.abs(step).max(axis=(1, 2), initial=0.0) >= CONVERGED
        active = active[moving]
        if not len(active):
            break
        if not moving.all():
            asked = asked.take(np.flatnonzero(moving))
    return limits


def _round(asked: _SceneDemands, limits: Floats) -> Floats:
    """One iteration: share every resource, with demands reduced to what the other resources allow; (S, N, 5)."""
    others = _least_of_others(limits)
    cpu_want = np.minimum(asked.cpu * (asked.keen + (1 - asked.keen) * others[0]), asked.cap)
    driver_want = asked.driver * others[1]
    driver_total = np.minimum(driver_want.sum(axis=1), asked.driver_most)
    cpu = share_sets(np.concatenate([cpu_want, driver_total[:, None]], axis=1), asked.weight, asked.allowed, asked.room)
    driver = fill(cpu[:, -1], driver_want, np.ones_like(driver_want))
    net, disk, memory = asked.net * others[2], asked.disk * others[3], asked.memory * others[4]
    return np.stack(
        [
            _reached(cpu[:, :-1], asked.cpu * others[0], asked.cpu),
            _reached(driver, driver_want, asked.driver),
            _reached(_nic(asked, net), net, asked.net),
            _reached(_shared(np.minimum(disk, asked.disk_most)), disk, asked.disk),  # round robin (finding L6)
            _reached(_shared(memory), memory, asked.memory),
        ],
        axis=2,
    )


def _least_of_others(limits: Floats) -> list[Floats]:
    """For every resource, the minimum of the limits by all other resources; five arrays (S, N)."""
    low, next_low = np.partition(limits, 1, axis=2)[:, :, :2].transpose(2, 0, 1)
    return [np.where(limits[:, :, at] == low, next_low, low) for at in range(len(RESOURCES))]


def _reached(got: Floats, asked: Floats, full: Floats) -> Floats:
    """The ratio that a resource allows: 1 where the demand was met, else the allocation over the full demand."""
    enough = got >= asked * (1 - 1e-9)
    return np.where(enough, 1.0, np.clip(np.divide(got, full, out=np.ones_like(got), where=full > 0), 1e-3, 1.0))


def _nic(asked: _SceneDemands, want: Floats) -> Floats:
    """Share the NIC among instances with a class, up to each ceiling, and those without; Mbit/s."""
    return htb.shares(np.minimum(want, asked.net_most), asked.net_rate, asked.net_class, asked.net_first, asked.link)


def _shared(want: Floats) -> Floats:
    """Share one undivided resource max-min fairly; (S, N)."""
    return fill(np.ones(len(want)), want, np.ones_like(want))


class PriorPredictor:
    """The prior as a Predictor: what the service runs on when no model is trained."""

    version = "prior"
    origin = "prior"
    metrics = METRICS

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Predict with intervals that widen with contention and are widest for unknown workloads."""
        result, here = solve(scenes), scenes.present
        unknown = here & (scenes.profile == 0)
        throughput = np.where(here, result.throughput, np.nan)
        return InterferencePrediction(
            throughput=band(throughput, prior_spread(throughput, unknown), ceiling=1.05),
            latency=latency_band(result.latency, scenes) if "latency" in targets else unasked(here),
            jitter=jitter_band(result.jitter, scenes) if "jitter" in targets else unasked(here),
            outside=unknown,
        )


def latency_band(ratio: Floats, scenes: SceneBatch) -> BandArrays:
    """A latency ratio of the prior, (S, N), with the prior's interval; nan where nobody sits."""
    return _waiting_band(ratio, scenes, LATENCY_TIMES)


def jitter_band(ratio: Floats, scenes: SceneBatch) -> BandArrays:
    """A jitter ratio of the prior, (S, N), with the prior's interval; nan where nobody sits."""
    return _waiting_band(ratio, scenes, JITTER_TIMES)


def _waiting_band(ratio: Floats, scenes: SceneBatch, times: float) -> BandArrays:
    """The prior's band for latency or jitter: half width by log2 of the ratio, with a minimum; doubled if unknown."""
    here = scenes.present
    unknown = np.where(here & (scenes.profile == 0), 2.0, 1.0)
    value = np.where(here, ratio, np.nan)
    return band(value, times * PRIOR_HALF_WIDTH * unknown * np.maximum(0.5, np.log2(value)))


def prior_spread(throughput: Floats, unknown: Bools) -> Floats:
    """Half width of the prior's interval on the log scale, (S, N): small without contention, wide with much of it."""
    contended = 1 - np.clip(throughput, 0.0, 1.0)
    return np.where(unknown, 2.0, 1.0) * PRIOR_HALF_WIDTH * (0.15 + 0.85 * np.minimum(2 * contended, 1.0))


def band(expected: Floats, spread: Floats, ceiling: float = np.inf) -> BandArrays:
    """A band around `expected` with half width `spread` on the log scale, at most `ceiling`."""
    return BandArrays(
        expected=np.minimum(expected, ceiling),
        lower=np.minimum(expected * np.exp(-spread), ceiling),
        upper=np.minimum(expected * np.exp(spread), ceiling),
    )
