"""The analytic model: T/B, latency and jitter from solo profiles, by max-min fair sharing of five resources; ranges."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import DEVICES, SceneBatch, stack
from models.data.topology import given_own_cpus
from models.physics import demands as devices
from models.physics.contention import (
    SURE,
    CpuContention,
    Share,
    cpu_contention_of,
    device_contention_of,
    doubted,
    together,
)
from models.physics.cpu_speed import (
    CLOCK,
    clock_speed,
    clock_spread,
    delivered_under_cap,
    has_siblings,
    sibling_speed,
)
from models.physics.demands import (
    DISK_IOPS,
    Demands,
    crowd,
    demands,
    disk_limit,
    driver_apart,
    driver_price,
    fill,
    holds,
    link,
    mean_only,
    open_loop,
    over_time,
    shaped,
    trait,
)
from models.physics.latency import FLUSHES, flush_speed, latency_and_jitter
from models.prediction import TARGETS, BandArrays, CpuPressure, DevicePressure, InterferencePrediction, rows_of, unasked
from profiler.demand import Resource

# How far from its prediction an instance may end up, by what the analytic model leaves out.
#
# The model shares CPU time, packets and bytes. It does not count how long an instance waits each time it wakes up while
# others are at work on its CPUs, however little time it demands; what busy CPUs elsewhere on the host take from caches,
# memory and the clock; nor in which order a full NIC or disk serves. The first two only slow down, so they widen the
# range downwards. Nor does it know how evenly a scheduler spreads tasks over CPUs, or when exactly it lets in a writer
# that syncs. All are about how fast a program gets on, so they apply where its profile is known and not its demand
# over time: where that is, T/B is the share of CPU time that comes of it. Constants: docs/decisions/0152.

WAKING = 1.0  # half a width on the log scale where no CPU of an instance is ever idle
SLOWED, FREE = 0.3, 0.9  # T/B at which waking up counts nothing (it always runs or waits), and wholly
# The same of those that share a NIC (without a class of their own) or a disk that is asked for more than it has: these
# serve packets and requests by round trips and queues, not by bytes. Small ones lose, large ones gain.
QUEUED_DOWN, QUEUED_UP = 1.6, 0.8
FROM, UP_TO = 0.6, 1.0  # of the rate asked for, between which this begins to count
FLUSHING = 1.0  # the same of those that wait for the scheduler's clock with each flush, and hardly get on otherwise
# Downwards, of those that share full CPUs, TWO of them: tasks are whole, and a scheduler with a queue for each CPU
# leaves more of them on one than on the other. More CPUs even out; how much of it is left there was not measured.
# Upwards it counts nothing: what one has more, others have less, and plans take all of a host at the same end.
UNEVEN, TWO = 0.35, 2.0
RATIONED = 0.35  # in both directions, of those that share a cap, of which the kernel hands out 5 ms at a time
SELDOM = 0.001  # a chance that is none
STEADY = 0.05  # of a vCPU: the least deviation of what others keep busy


@dataclass(frozen=True, slots=True)
class UnmodelledWaits:
    """Half widths on the log scale, (S, N) each, 0 where T/B is a share: of `waking` for an instance that keeps all of
    its speed, of the host's other work (`company`), of a scheduler that spreads tasks unevenly (`uneven`), of a cap of
    all (`rationed`), and of flushes that wait (`flushing`). `queued` is the part of a full NIC's or disk's width.
    """

    waking: Floats
    company: Floats
    queued: Floats
    uneven: Floats
    rationed: Floats
    flushing: Floats

    @classmethod
    def of(cls, result: PriorResult) -> Self:
        """Those of the scenes that a result is about."""
        scenes, want = result.scenes, result.demands
        known = scenes.present & (scenes.profile > 0) & np.isnan(scenes.cpu_demand[:, :, 0])
        if not known.any():
            return cls(*np.zeros((6, *known.shape)))
        classless = np.where(shaped(scenes), 0.0, want.net / link(scenes)[:, None])
        queued = np.maximum(_queued(scenes, classless), _queued(scenes, want.disk))
        waking = _waking(scenes, want, result.crowd)
        parts = waking, _company(scenes, want), queued, _uneven(scenes, waking), _rationed(scenes, want)
        return cls(*(np.where(known, part, 0.0) for part in (*parts, FLUSHING * (1 - result.flushed))))

    def down(self, throughput: Floats, own: Floats, further: Floats | float = 0.0) -> Floats:
        """The whole half width below `throughput`, (S, N), with the prior's `own`; `further` is that of the clock, of
        which company is a part."""
        free = np.clip((throughput - SLOWED) / (FREE - SLOWED), 0.0, 1.0)
        parts = (self.waking * free, QUEUED_DOWN * self.queued, self.uneven, self.rationed, self.flushing)
        return np.asarray(np.hypot(own + np.maximum(self.company, further), np.hypot.reduce(parts)))

    def up(self, own: Floats, further: Floats | float = 0.0) -> Floats:
        """The whole half width above, (S, N)."""
        parts = QUEUED_UP * self.queued, self.rationed, self.flushing
        return np.asarray(np.hypot(own + further, np.hypot.reduce(parts)))


def _waking(scenes: SceneBatch, want: Demands, crowded: Floats) -> Floats:
    """How many vCPUs others keep busy on the CPUs of an instance is taken for normal, with the variance of as many
    independent ones that are busy or not; a logistic function stands for the normal distribution."""
    allowed = np.maximum(scenes.allowed, 1)
    switching = np.maximum(want.cpu * (1 - want.cpu / np.maximum(scenes.vcpus, 1)), 0.0)
    others = np.maximum(crowded * allowed - want.cpu - want.driver, 0.0)
    spread = np.sqrt(np.maximum(crowd(scenes, replace(want, cpu=switching)) * allowed - switching - want.driver, 0.0))
    none_idle = 1 / (1 + np.exp(np.clip(1.7 * (allowed - 0.5 - others) / np.maximum(spread, STEADY), -50.0, 50.0)))
    return np.asarray(WAKING * np.sqrt(np.where(others > 0, np.maximum(none_idle - SELDOM, 0.0), 0.0)))


def _uneven(scenes: SceneBatch, waking: Floats) -> Floats:
    """Where tasks may choose among CPUs none of which is idle."""
    evened = np.sqrt(TWO / np.maximum(scenes.allowed, 1))
    return np.where(scenes.allowed > 1, UNEVEN * waking / WAKING * evened, 0.0)


def _rationed(scenes: SceneBatch, want: Demands) -> Floats:
    """Where all instances share a cap, by how much of it they ask for."""
    most = together(scenes)[:, None]
    mine = np.where(scenes.present, want.cpu + want.driver, 0.0)
    asked = mine.sum(axis=1, keepdims=True)
    full = np.clip((asked / most - FROM) / (UP_TO - FROM), 0.0, 1.0)
    return np.where((most < scenes.pcpus[:, None]) & (asked > mine), RATIONED * full, 0.0)


def _company(scenes: SceneBatch, want: Demands) -> Floats:
    """As much as of an unknown clock, which is a part of it."""
    own = np.where(scenes.present, want.cpu + want.driver, 0.0)
    others = own.sum(axis=1, keepdims=True) - own + scenes.own_cpus[:, None]
    return np.asarray(CLOCK * np.sqrt(np.clip(others / np.maximum(scenes.pcpus, 1)[:, None], 0.0, 1.0)))


def _queued(scenes: SceneBatch, share: Floats) -> Floats:
    """How much of a full device an instance shares with others, 0-1; `share` (S, N) is what each asks of it."""
    mine = np.where(scenes.present, share, 0.0)
    asked = mine.sum(axis=1, keepdims=True)
    full = np.clip((asked - FROM) / (UP_TO - FROM), 0.0, 1.0)
    return np.where(mine > 0, full * np.sqrt(np.clip(asked - mine, 0.0, 1.0)), 0.0)


PRIOR_HALF_WIDTH = 0.35  # of log T/B at full contention; what published rules of thumb miss by (findings N3-N8)
# How much wider latency's interval is than that of T/B, and jitter's: waiting depends on how work arrives, of which a
# profile says nothing, and jitter on its squares, which doubles a spread of logs.
LATENCY_TIMES, JITTER_TIMES = 2.0, 4.0
CEILING = 1.05  # of T/B: no instance is faster in company than alone, but for noise
RESOURCES = ("cpu", "driver_domain", "nic", "disk", "memory")
# Of a profile, all that the prior reads.
METRICS = (
    "cpu", "driver_domain.cpu", "pages_exchanged", "execution", "waiting", "block", "net_mbit", "throughput_kb_s",
    "disk_mb_s", DISK_IOPS, FLUSHES, "mem_bw_mb_s", "latency_mean_ms", "jitter_ms",
)  # fmt: skip


@dataclass(frozen=True)  # without slots: what most questions never read is computed when it is first read
class PriorResult:
    """`throughput` (S, N) what each keeps of its own speed; `latency` and `jitter` (S, N) ratios to alone, jitter
    being the standard deviation of latency; `limits` (S, N, 5) how far each of RESOURCES alone would let an instance
    go; `share` (S, N) what each gets of the CPU time that it demands, however fast the cores are; `demands` what was
    asked; `crowd` (S, N) CPU demand per CPU on the pCPUs it may use, its own included; `cpu` and `devices` what became
    of the demand for CPUs and devices; `flushed` (S, N) how fast its flushes let each be; `scenes` what it is about."""

    throughput: Floats
    limits: Floats
    share: Floats
    demands: Demands
    cpu: CpuPressure
    devices: DevicePressure
    flushed: Floats
    scenes: SceneBatch

    @property
    def latency(self) -> Floats:
        return self._waiting[0]

    @property
    def jitter(self) -> Floats:
        return self._waiting[1]

    @cached_property
    def crowd(self) -> Floats:
        return crowd(self.scenes, self.demands)

    @cached_property
    def _waiting(self) -> tuple[Floats, Floats]:
        if self.scenes.slots == 0:
            return self.throughput, self.throughput
        return latency_and_jitter(self.scenes, self.demands, self.throughput, self.cpu.share)


def solve(scenes: SceneBatch, deviations: Floats | float = 0.0, *, fluid: bool = False) -> PriorResult:
    """Share CPUs, driver domain, NIC, disk and memory among the instances of each scene.

    Every instance is as fast as its scarcest resource allows. Devices come first, and each is shared max-min fairly
    as if all could ask for it at full speed. Then CPUs are shared among instances that ask no more than their devices
    let them. Nothing goes back from CPUs to devices, so that there is no fixed point to look for, and a device looks
    busier than it is where CPUs hold its users back. Needs solo profiles only (NEIGHBOR sections 3.4, 4).
    `deviations` as in `cpu_contention_of`.
    """
    scenes = given_own_cpus(scenes)
    want = demands(scenes)
    held = _share(scenes.cap, want.cpu)  # by its own cap, whatever others do
    pressures = _devices(scenes, want, held, deviations)
    devices = [pressures.share[:, :, at] for at in range(len(DEVICES))]
    slowed = np.minimum.reduce([held, *devices])
    # Flushes that wait for a CPU hold an instance back in the middle of its work: it does not poll meanwhile.
    flushed = np.ones_like(held) if fluid else flush_speed(scenes, want)
    slowed *= flushed
    price = driver_price(scenes, want)
    driver = want.driver * price * slowed
    apart = driver_apart(scenes)
    threads = np.where(apart[:, None], 0.0, want.driver * price)  # of the instance itself
    # Its own limits are for good: one that may send a tenth works a tenth. Waiting for others it may poll, and be as
    # busy.
    limited = _own_limits(scenes, want)
    cpu = (
        (want.cpu + threads)
        * limited
        * (want.keen + (1 - want.keen) * np.minimum(slowed / flushed / limited, 1.0))
        * flushed
    )
    most = np.maximum(trait(scenes.kind, "driver_servers"), want.driver.max(axis=1, initial=0.0))
    whole = np.where(apart, np.minimum(driver.sum(axis=1), most), 0.0)
    lasting = over_time(scenes)
    # Work that arrives however well it is served is so only where an instance says it: of most programs so many
    # requests are on their way at a time, and what a full host does not serve comes later instead of piling up.
    waits = np.where(lasting, ~(open_loop(scenes) >= 0.5), scenes.load >= 1)
    domain = driver, whole, _driver_weight(scenes, driver)
    shared = cpu_contention_of(scenes, cpu, domain, waits, deviations, fluid=fluid)
    asked = np.minimum(cpu, scenes.cap)
    delivered = np.where(lasting, delivered_under_cap(scenes, want), held)
    own = np.where(lasting, shared.pressure.share, _reached(shared.fair, asked, want.cpu + threads))
    yields = np.where(lasting, 1.0, 1 - want.keen)
    got = _by_driver(shared, driver, yields)
    late = np.flatnonzero(apart & ((got < driver * (1 - 1e-9)) & waits & (yields > 0)).any(axis=1))
    if len(late):  # both ask less of the CPUs then: one that waits for its own asks less of the driver domain as well
        yields = np.where(waits, yields, 0.0)
        held_up = (cpu * (1 - yields * (1 - _share(got, driver))))[late]
        behind = driver * (1 - yields * (1 - own))
        domain = behind[late], np.minimum(behind.sum(axis=1), most)[late], _driver_weight(scenes, behind)[late]
        further = np.broadcast_to(deviations, len(scenes))[late]
        again = cpu_contention_of(scenes.take(late), held_up, domain, waits[late], further, fluid=fluid)
        driver[late], got[late] = behind[late], _by_driver(again, behind[late], yields[late])
    served = _reached(got, driver, want.driver * price)
    limits = np.stack(
        [np.minimum(np.minimum(own, delivered), flushed), np.where(apart[:, None], served, 1.0), *devices], axis=2
    )
    limits = np.where(scenes.present[:, :, None], np.clip(limits, 1e-3, 1.0), 1.0)
    share = limits.min(axis=2)
    limits[:, :, 0] = np.clip(limits[:, :, 0] * sibling_speed(scenes, asked) * clock_speed(scenes, asked), 1e-3, 1.0)
    return PriorResult(limits.min(axis=2), limits, share, want, shared.pressure, pressures, flushed, scenes)


def pins_matter(scenes: SceneBatch) -> Bools:
    """Where speed, its range or time short may change if one more instance, which no profile describes, is pinned to at
    least as many pCPUs as it has vCPUs; (S,).

    Elsewhere such a pin changes no bit of them: the set of CPUs that it makes has room for all that may not leave it,
    which is that instance alone, and all share the whole host as they did.
    """
    pinned = (scenes.present & (scenes.pinned | (scenes.own > 0))).any(axis=1)
    apart = driver_apart(scenes) | scenes.driver_pinned
    described = (scenes.profile != 0).any(axis=1)  # of pages for the driver domain and of flushes, which heed pins
    return np.asarray(has_siblings(scenes) | pinned | apart | described)


def _by_driver(shared: CpuContention, driver: Floats, yields: Floats) -> Floats:
    """The CPUs of the driver domain that work for each, (S, N).

    One that waits for it leaves it its CPUs, but for what it keeps asking for: by `yields`, 0-1 (N5: two servers that
    never block and Dom0 hold a third of one CPU each).
    """
    if not driver.any():
        return np.zeros_like(driver)
    sure, beside = (fill(part, driver, np.ones_like(driver)) for part in (shared.driver, shared.driver_run))
    return np.asarray(sure + yields * np.maximum(beside - sure, 0.0))


def _own_limits(scenes: SceneBatch, want: Demands) -> Floats:
    """How fast each instance may be by its own limits of network and disk, whatever others do; (S, N), 0.001 to 1."""
    limits = ((scenes.net_ceil, want.net), (disk_limit(scenes, want), want.disk))
    network, disk = (_share(np.minimum(limit, whole), whole) for limit, whole in limits)
    return np.asarray(np.maximum(np.minimum(network, disk), 1e-3))


def _driver_weight(scenes: SceneBatch, driver: Floats) -> Floats:
    """The scheduler's weight of a driver domain, (S,): threads of instances weigh as these do together."""
    threads = np.where(scenes.present & (driver > 0), scenes.weight, 0.0).sum(axis=1)
    return np.where(holds(scenes.kind, "driver_apart"), scenes.driver_weight, np.maximum(threads, 1.0))


def _devices(scenes: SceneBatch, want: Demands, held: Floats, deviations: Floats | float) -> DevicePressure:
    """What NIC, disk and memory leave of the speed of each instance over time; disk and memory serve in turn (finding
    L6)."""
    most = disk_limit(scenes, want)
    sharing: dict[Resource, tuple[Floats, Share]] = {
        "net_mbit": (want.net, lambda asked: _nic(scenes, asked)),
        "disk_mb_s": (want.disk, lambda asked: _disk(want, np.minimum(asked, most))),
        "mem_bw_mb_s": (want.memory, _shared),
    }
    found = [
        device_contention_of(scenes, device, sharing[device][0], held, sharing[device][1], deviations)
        for device in DEVICES
    ]
    return DevicePressure(
        *(np.stack([getattr(one, name) for one in found], axis=2) for name in ("share", "worst", "short"))
    )


def _reached(got: Floats, asked: Floats, full: Floats) -> Floats:
    """The ratio that a resource allows: 1 where all came that was asked, else what came of what full speed would ask.

    The least ratio over all resources does not jump there, for what lets an instance ask for less counts itself.
    """
    return np.where(got >= asked * (1 - 1e-9), 1.0, _share(got, full))


def _share(part: Floats, whole: Floats, full: float = 1.0) -> Floats:
    """`part` of `whole`, at most `full`; `full` where there is nothing to have a part of."""
    ratio = np.divide(part, whole, out=np.full(np.shape(part), full), where=(whole > 0) & np.isfinite(part))
    return np.asarray(np.minimum(ratio, full))


def _nic(scenes: SceneBatch, want: Floats) -> Floats:
    """Share the NIC among instances with a class, up to each ceiling, and those without; Mbit/s."""
    most = np.minimum(want, scenes.net_ceil)
    return devices.shares(most, scenes.net_rate, devices.shaped(scenes), devices.first(scenes), link(scenes))


def _disk(want: Demands, asked: Floats) -> Floats:
    """Share the disk by bytes and by requests, max-min fairly each; one that is short of one asks for less of both."""
    if (want.disk_requests == 0).all():
        return _shared(asked)
    both = (want.disk_bytes, want.disk_requests)
    got = [np.divide(_shared(asked * one), one, out=asked.copy(), where=one > 0) for one in both]
    return np.minimum(*got)


def _shared(want: Floats) -> Floats:
    """Share one undivided resource max-min fairly; (S, N)."""
    return fill(np.ones(len(want)), want, np.ones_like(want))


class PriorPredictor:
    """The prior as a Predictor: what the service runs on when no model is trained."""

    version = "analytic"
    origin = "analytic"
    metrics = METRICS

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Predict with intervals that widen with contention and are widest for unknown workloads."""
        prediction, result, _ = answer(given_own_cpus(scenes), targets)
        return replace(prediction, solved=result)


def answer(
    scenes: SceneBatch, targets: Collection[str] = TARGETS
) -> tuple[InterferencePrediction, PriorResult, tuple[Floats, Floats]]:
    """The prediction of scenes whose dedicated CPUs are given, what it was made of, and by how much doubt about demands
    widens the range of throughput down and up, on the log scale; (S, N) each, 0 where no demand is in doubt."""
    here = scenes.present
    unknown = here & ((scenes.profile == 0) | mean_only(scenes))
    result, crowded = _solved(scenes)
    around, own = _around(scenes, result, crowded, unknown, clock_spread(scenes, result.demands.cpu))
    doubts = np.log(own.lower / around.lower), np.log(around.upper / own.upper)
    prediction = InterferencePrediction(
        throughput=around,
        latency=latency_band(result.latency, scenes) if "latency" in targets else unasked(here),
        jitter=jitter_band(result.jitter, scenes) if "jitter" in targets else unasked(here),
        outside=unknown,
        pressure=result.cpu,
        devices=result.devices,
    )
    return prediction, result, (np.nan_to_num(doubts[0]), np.nan_to_num(doubts[1]))


def _solved(scenes: SceneBatch) -> tuple[PriorResult, Floats | None]:
    """The prior's result, and T/B (S, N) as it would be if every instance wanted more, None where no demand is in
    doubt.

    Both in one go: for few scenes the number of operations counts, not their size.
    """
    if not doubted(scenes):
        return solve(scenes), None
    count = len(scenes)
    both = solve(stack([scenes, scenes]), np.repeat([0.0, SURE], count))
    first = slice(count)
    expected = PriorResult(
        both.throughput[first],
        both.limits[first],
        both.share[first],
        rows_of(both.demands, first),
        rows_of(both.cpu, first),
        rows_of(both.devices, first),
        both.flushed[first],
        scenes,
    )
    return expected, both.throughput[count:]


def _around(
    scenes: SceneBatch, result: PriorResult, crowded: Floats | None, unknown: Bools, further: Floats | float = 0.0
) -> tuple[BandArrays, BandArrays]:
    """The prior's interval, (S, N): as it would be if every instance wanted more (`crowded`), or less, than expected,
    and the prior's own, which comes second.

    The deviations are those of the doubt about each one's demand, so that less evidence never narrows it. `further`
    is added to the half width.
    """
    throughput = np.where(scenes.present, result.throughput, np.nan)
    left_out = UnmodelledWaits.of(result)

    def least(values: Floats) -> Floats:
        return band(values, left_out.down(values, prior_spread(values, unknown), further), ceiling=CEILING).lower

    up = left_out.up(prior_spread(throughput, unknown), further)
    own = replace(band(throughput, up, ceiling=CEILING), lower=least(throughput))
    if crowded is None:
        return own, own
    crowded = np.where(scenes.present, crowded, np.nan)
    lower = np.minimum(own.lower, least(crowded))
    upper = own.upper.copy()
    # Nothing is above the ceiling: where every instance is there already, wanting less changes nothing.
    rows = np.flatnonzero((scenes.present & (upper < CEILING)).any(axis=1))
    if len(rows):
        some = scenes.take(rows)
        quiet = np.where(some.present, solve(some, -SURE).throughput, np.nan)
        wide = prior_spread(quiet, unknown[rows]) + np.broadcast_to(further, (len(scenes), 1))[rows]
        upper[rows] = np.maximum(upper[rows], band(quiet, wide, ceiling=CEILING).upper)
    return BandArrays(own.expected, lower, upper), own


def latency_band(ratio: Floats, scenes: SceneBatch) -> BandArrays:
    """A latency ratio of the prior, (S, N), with the prior's interval; nan where no instance sits."""
    return _waiting_band(ratio, scenes, LATENCY_TIMES)


def jitter_band(ratio: Floats, scenes: SceneBatch) -> BandArrays:
    """A jitter ratio of the prior, (S, N), with the prior's interval; nan where no instance sits."""
    return _waiting_band(ratio, scenes, JITTER_TIMES)


def _waiting_band(ratio: Floats, scenes: SceneBatch, times: float) -> BandArrays:
    """The prior's band for latency or jitter: half width by log2 of the ratio, with a minimum; doubled if unknown."""
    here = scenes.present
    unknown = np.where(here & ((scenes.profile == 0) | mean_only(scenes)), 2.0, 1.0)
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
