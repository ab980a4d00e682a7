"""The queueing prior: T/B and latency from solo profiles alone, by sharing CPUs, driver domain, NIC, disk, memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.prediction import Band, InterferencePrediction
from models.scene import ProfileTable, SceneBatch
from models.sharing import cpu_classes, fill, share_sets
from profiler.observed import DEFAULT_WEIGHT, HOST_KINDS, NET_MODES

Floats = NDArray[np.float64]

# Each further CPU of the driver domain, or of a guest, makes every page dearer: events grow 2.4-fold from one to four
# shared cores (NEIGHBOR section 4.3.1, Fig. 29); a fifth of the driver domain's time per page is taken to be events.
EVENT_SHARE = 0.2
EVENT_GROWTH_PER_CPU = (2.4 - 1.0) / 3
MOST_COUNTED_CPUS = 4  # the largest set of that measurement: beyond it the cost is held, not extrapolated
DRIVER_PARALLEL = {"xen": 1.0, "kvm": np.inf, "lxc": np.inf}  # CPUs the driver domain can use for one bridge (N9, N11)
# Driver-domain CPU seconds per page where a profile says nothing: 65 % at 7,728 and 82 % at 15,402 pages/s were seen on
# emulated Xen; real machines do a few times better. Assumed, to be replaced by a profile.
ASSUMED_CPU_S_PER_PAGE = {"xen": 2e-5, "kvm": 2e-5, "lxc": 0.0}
# Payload share of an Ethernet link under TCP: 1448 bytes of data in 1538 bytes on the wire (IEEE 802.3, RFC 7323).
GOODPUT = 1448 / 1538
# A weight is not a share under Xen's credit scheduler: ten times the weight got 57.1 against 42.9 % (finding L4).
WEIGHT_EXPONENT = {"xen": float(np.log10(57.1 / 42.9)), "kvm": 1.0, "lxc": 1.0}
PRIOR_HALF_WIDTH = 0.35  # of log T/B at full contention; what published rules of thumb miss by (findings N3-N8)
_ROUNDS, UNDAMPED, CONVERGED = 24, 2, 1e-5  # of the fixed point: most scenes need three rounds
RESOURCES = ("cpu", "driver_domain", "nic", "disk", "memory")
LEAST_BUSY = 0.5  # of its time alone that the fastest user keeps a device busy; less is not believed


@dataclass(frozen=True, slots=True)
class Demands:
    """What each slot asks for when it has the host to itself; all (S, N), 0 where nobody sits.

    `cpu` and `driver` in CPUs, `net` in Mbit/s, `disk` and `memory` as a share of the
    disk and of the memory bandwidth; `keen` is the share of its CPU demand
    that an instance keeps up while another resource holds it back.
    """

    cpu: Floats
    driver: Floats
    net: Floats
    disk: Floats
    memory: Floats
    keen: Floats


@dataclass(frozen=True, slots=True)
class PriorResult:
    """`throughput` (S, N) T/B; `latency` (S, N) ratio; `limits` (S, N, 5) how far each of RESOURCES alone would let an
    instance go; `demands` what was asked; `crowd` (S, N) CPU demand per CPU on the pCPUs it may use."""

    throughput: Floats
    latency: Floats
    limits: Floats
    demands: Demands
    crowd: Floats


def demands(scenes: SceneBatch) -> Demands:
    """Read each slot's demands from its solo profile; what is unknown is assumed as each line says."""
    table, row, load = scenes.table, scenes.profile, np.minimum(scenes.load, 1.0)
    here = scenes.present

    def column(key: str) -> Floats:
        return table.column(key)[row]

    def first(*options: Floats) -> Floats:
        value = options[0]
        for option in options[1:]:
            value = np.where(np.isnan(value), option, value)
        return value

    pages = column("pages_exchanged")
    kind_cost = np.array([ASSUMED_CPU_S_PER_PAGE[kind] for kind in HOST_KINDS])[scenes.kind][:, None]
    cpu = first(column("cpu") / 100, scenes.vcpus)  # an unknown instance may keep all its vCPUs busy
    driver = first(column("driver_domain.cpu") / 100, pages * kind_cost, np.zeros_like(load))
    # A container has none: the kernel works for it mostly in the time of its own tasks, which `cpu` counts already.
    driver = np.where((scenes.kind == HOST_KINDS.index("lxc"))[:, None], 0.0, driver)
    net = first(column("net_mbit"), column("throughput_kb_s") * 8 / 1000, np.zeros_like(load))
    disk, memory = (
        np.nan_to_num(column(key)) / most if (most := _capacity(table, key)) else np.zeros_like(load)
        for key in ("disk_mb_s", "mem_bw_mb_s")
    )
    # Who is never blocked when alone does not step back for the driver domain: two 1 KB servers and Dom0 hold a third
    # of the CPU each (NEIGHBOR section 4.1.2, finding N5).
    cpu_percent, waiting, block = column("cpu"), np.nan_to_num(column("waiting")), column("block")
    keen = 1 - block / np.maximum(cpu_percent + waiting + block, 1e-9)
    cpu, driver = np.where(here, np.minimum(cpu * load, scenes.vcpus), 0.0), np.where(here, driver * load, 0.0)
    net = np.where(here, net * load, 0.0)
    speed = _speed_here(scenes, cpu, driver, net)
    return Demands(
        keen=np.where(here, np.nan_to_num(keen), 0.0),
        cpu=cpu * speed,
        driver=driver * speed,
        net=net * speed,
        disk=np.where(here, disk * load, 0.0) * speed,
        memory=np.where(here, memory * load, 0.0) * speed,
    )


def _speed_here(scenes: SceneBatch, cpu: Floats, driver: Floats, net: Floats) -> Floats:
    """How much of its profile's speed an instance reaches alone on this host, which may be the smaller one; (S, N).

    T/B is against alone on the same host, whatever host the profile was measured on.
    """
    have = (scenes.pcpus, np.maximum(scenes.driver_cpus.sum(axis=1), 1), _link(scenes))
    speed = np.ones_like(cpu)
    for most, need in zip(have, (cpu + driver, driver, net), strict=True):
        too_much = need > most[:, None]
        speed = np.minimum(speed, np.divide(most[:, None], need, out=np.ones_like(need), where=too_much))
    return speed


def _link(scenes: SceneBatch) -> Floats:
    """What the NIC carries of data, Mbit/s, inf where its speed is unknown; (S,)."""
    link = scenes.host_numbers[:, 6] * GOODPUT
    return np.where(np.isnan(link), np.inf, link)


def _capacity(table: ProfileTable, key: str) -> float:
    """What a disk or the memory can do in MB/s, by the workload that reached most alone; 0 = none is known.

    Alone a reader leaves the disk idle while it computes: the disk can do as much more as it was not blocked on it.
    """
    rates = np.nan_to_num(table.column(key))
    row = int(rates.argmax())
    if rates[row] <= 1e-6:
        return 0.0
    busy = table.column("block")[row] / 100 if key == "disk_mb_s" else 1.0
    return float(rates[row] / (np.clip(busy, LEAST_BUSY, 1.0) if np.isfinite(busy) else 1.0))


def solve(scenes: SceneBatch) -> PriorResult:
    """Find the throughput ratios at which CPUs, driver domain, NIC, disk and memory are shared max-min fairly.

    Every instance is as fast as its scarcest resource lets it be, and an instance held back by one resource asks less
    of the others; that fixed point is found by damped iteration. Needs solo profiles only (NEIGHBOR sections 3.4, 4).
    """
    if scenes.slots == 0:
        nothing = np.ones((len(scenes), 0))
        return PriorResult(nothing, nothing, np.ones((len(scenes), 0, 5)), Demands(*[nothing] * 6), nothing)
    want = demands(scenes)
    crowd = _crowd(scenes, want)
    driver_price = _driver_price(scenes, want)
    affinity = np.concatenate([scenes.affinity, scenes.driver_cpus[:, None, :]], axis=1)
    affinity &= np.concatenate([scenes.present, np.ones((len(scenes), 1), dtype=bool)], axis=1)[:, :, None]
    allowed, capacity = cpu_classes(affinity, scenes.pcpus)
    exponent = np.array([WEIGHT_EXPONENT[kind] for kind in HOST_KINDS])[scenes.kind][:, None]
    weight = np.concatenate([scenes.weight, np.full((len(scenes), 1), float(DEFAULT_WEIGHT))], axis=1) ** exponent
    driver_most = np.array([DRIVER_PARALLEL[kind] for kind in HOST_KINDS])[scenes.kind]
    driver_most = np.maximum(driver_most, want.driver.max(axis=1, initial=0.0))  # solo it was seen to use that much
    limits = np.ones((*scenes.present.shape, len(RESOURCES)))
    active = np.ones(len(scenes), dtype=bool)  # scene by scene, so that no answer depends on what is asked with it
    for turn in range(_ROUNDS):
        others = [np.delete(limits, resource, axis=2).min(axis=2) for resource in range(len(RESOURCES))]
        cpu_want = np.minimum(want.cpu * (want.keen + (1 - want.keen) * others[0]), scenes.cap)
        driver_want = want.driver * driver_price * others[1]
        driver_total = np.minimum(driver_want.sum(axis=1), driver_most)
        cpu = share_sets(np.concatenate([cpu_want, driver_total[:, None]], axis=1), weight, allowed, capacity)
        driver = fill(cpu[:, -1], driver_want, np.ones_like(driver_want))
        new = np.stack(
            [
                _reached(cpu[:, :-1], want.cpu * others[0], want.cpu),
                _reached(driver, driver_want, want.driver * driver_price),
                _reached(_nic(scenes, want.net * others[2]), want.net * others[2], want.net),
                _reached(_disk(scenes, want.disk * others[3]), want.disk * others[3], want.disk),
                _reached(_shared(want.memory * others[4]), want.memory * others[4], want.memory),
            ],
            axis=2,
        )
        step = new - limits
        limits += np.where(active, 1.0 if turn <= UNDAMPED else 0.5, 0.0)[:, None, None] * step
        active &= np.abs(step).max(axis=(1, 2), initial=0.0) >= CONVERGED
        if not active.any():
            break
    throughput = limits.min(axis=2)
    return PriorResult(throughput, _latency(scenes, want, throughput, crowd), limits, want, crowd)


def _reached(got: Floats, asked: Floats, full: Floats) -> Floats:
    """The ratio that a resource alone allows: 1 where all that was asked came, else what came of the full demand."""
    enough = got >= asked * (1 - 1e-9)
    return np.where(enough, 1.0, np.clip(np.divide(got, full, out=np.ones_like(got), where=full > 0), 1e-3, 1.0))


def _driver_price(scenes: SceneBatch, want: Demands) -> Floats:
    """What a page costs the driver domain against alone with one CPU each; (S, N).

    Dearer with every further CPU (N10, N11); cheaper, by at most the events' share, where CPUs are crowded and
    many pages go with one event (N5: the most contended pair has the fewest events and most pages per execution).
    """
    driver_size = scenes.driver_cpus.sum(axis=1)
    guest = np.minimum(np.minimum(scenes.affinity.sum(axis=2), scenes.vcpus), MOST_COUNTED_CPUS)
    driver = np.minimum(driver_size, MOST_COUNTED_CPUS)[:, None]
    # A driver-domain CPU takes part in the events of all guests, a guest's CPU only in its own: it counts half.
    further = np.maximum(driver - 1, 0) + np.maximum(guest - 1, 0) / 2
    # Who sends no pages makes nobody's events fewer: a guest's CPU counts up to what the driver domain does for it.
    feeding = _spread(scenes, replace(want, cpu=np.minimum(want.cpu, want.driver)))
    spread = (scenes.driver_cpus * feeding).sum(axis=1) / np.maximum(driver_size, 1)
    crowded = np.clip(spread - 1, 0.0, 1.0)[:, None]
    xen = (scenes.kind == HOST_KINDS.index("xen"))[:, None]
    return np.where(xen, (1.0 + EVENT_SHARE * EVENT_GROWTH_PER_CPU * further) * (1 - EVENT_SHARE * crowded), 1.0)


def _nic(scenes: SceneBatch, want: Floats) -> Floats:
    """Share the NIC: guaranteed HTB rates first, what is left max-min up to each ceiling (tc-htb(8)); Mbit/s."""
    shaped = scenes.net_mode != NET_MODES.index("none")
    asked = np.minimum(want, scenes.net_ceil)
    link = _link(scenes)
    sure = np.where(shaped, np.minimum(asked, scenes.net_rate), 0.0)
    total = sure.sum(axis=1)
    sure *= np.divide(link, total, out=np.ones_like(total), where=total > link)[:, None]
    rest = asked - sure
    return sure + fill(np.minimum(link - sure.sum(axis=1), rest.sum(axis=1)), rest, np.ones_like(rest))


def _disk(scenes: SceneBatch, want: Floats) -> Floats:
    """Share one disk equally (round robin, finding L6), each up to its limit; shares of the disk."""
    most = _capacity(scenes.table, "disk_mb_s")
    return _shared(np.minimum(want, scenes.disk_limit / most) if most else want)


def _shared(want: Floats) -> Floats:
    """Share one whole max-min fairly; (S, N)."""
    return fill(np.ones(len(want)), want, np.ones_like(want))


def _spread(scenes: SceneBatch, want: Demands) -> Floats:
    """CPU demand on every pCPU when each consumer spreads evenly over the pCPUs it may use; (S, P)."""
    size = np.maximum(scenes.affinity.sum(axis=2), 1)
    guests = (scenes.affinity * (np.minimum(want.cpu, scenes.cap) / size)[:, :, None]).sum(axis=1)
    driver = want.driver.sum(axis=1) / np.maximum(scenes.driver_cpus.sum(axis=1), 1)
    return np.asarray(guests + scenes.driver_cpus * driver[:, None])


def cpu_spread(scenes: SceneBatch) -> Floats:
    """CPU demand per pCPU of a host as it stands, driver domain included; (S, P) CPUs."""
    return _spread(scenes, demands(scenes))


def _crowd(scenes: SceneBatch, want: Demands) -> Floats:
    """CPU demand per CPU that a slot meets on the CPUs it may use, its own included; (S, N)."""
    met = np.einsum("snp,sp->sn", scenes.affinity, _spread(scenes, want))
    return np.where(scenes.present, met / np.maximum(scenes.affinity.sum(axis=2), 1), 0.0)


def _latency(scenes: SceneBatch, want: Demands, throughput: Floats, crowd: Floats) -> Floats:
    """Latency over solo latency: 1/throughput at saturation (Little's law), else processor sharing with the others.

    The others stretch a service time by 1/(1 - their load), at most until the fair share is reached (M/G/1-PS).
    """
    own = np.divide(np.minimum(want.cpu, scenes.cap), np.maximum(scenes.affinity.sum(axis=2), 1))
    together = scenes.affinity[:, :, None, :] & scenes.affinity[:, None, :, :]
    meets = together.any(axis=3) & scenes.present[:, None, :]
    fair = np.divide(scenes.weight, np.maximum((meets * scenes.weight[:, None, :]).sum(axis=2), 1e-9))
    others = np.clip(crowd - own, 0.0, 1.0 - np.clip(fair, 0.05, 1.0))
    stretched = np.where(scenes.load < 1, 1 / (1 - others), 1.0)
    return np.where(scenes.present, np.maximum(1 / throughput, stretched), 1.0)


class PriorPredictor:
    """The prior as a Predictor: what the service runs on when no model is trained."""

    version = "prior"
    origin = "prior"

    def predict(self, scenes: SceneBatch) -> InterferencePrediction:
        """Predict with intervals that widen with contention and are widest for unknown workloads."""
        result, here = solve(scenes), scenes.present
        unknown = here & (scenes.profile == 0)
        throughput, latency = (np.where(here, value, np.nan) for value in (result.throughput, result.latency))
        return InterferencePrediction(
            throughput=band(throughput, prior_spread(throughput, unknown), ceiling=1.05),
            latency=band(latency, prior_spread(1 / latency, unknown)),
            outside=unknown,
        )


def prior_spread(throughput: Floats, unknown: NDArray[np.bool_]) -> Floats:
    """Half width of the prior's interval on the log scale, (S, N): small alone, wide where much is contended."""
    contended = 1 - np.clip(throughput, 0.0, 1.0)
    return np.where(unknown, 2.0, 1.0) * PRIOR_HALF_WIDTH * (0.15 + 0.85 * np.minimum(2 * contended, 1.0))


def band(expected: Floats, spread: Floats, ceiling: float = np.inf) -> Band:
    """A Band around `expected` with `spread` half width on the log scale, nowhere above `ceiling`."""
    return Band(
        expected=np.minimum(expected, ceiling),
        lower=np.minimum(expected * np.exp(-spread), ceiling),
        upper=np.minimum(expected * np.exp(spread), ceiling),
    )
