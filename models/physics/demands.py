"""How NIC, disk and memory bandwidth are shared: weighted max-min fair by water-filling, and HTB classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.demand_classes import day_one
from models.data.scene import CPU_DEMAND, DEVICES, ProfileTable, SceneBatch
from profiler.demand import Resource
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.observed import NET_MODES

# Weighted max-min fair sharing of devices and links by water-filling, for many scenes at once.


def fill(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """Share one resource max-min fairly: no instance can get more unless someone with less per weight gets less.

    `capacity` (S,), `demand` and `weight` (S, K) with weight > 0. Returns what each gets, (S, K), in sum
    min(capacity, demand). Every consumer is filled up to a common level per weight (water-filling; progressive filling,
    Bertsekas and Gallager, Data Networks, 6.5.2).
    """
    got = np.maximum(demand, 0.0)
    scarce = np.flatnonzero(got.sum(axis=1) > capacity)  # no instance is filled up where all get what they want
    if len(scarce):
        got[scarce] = _filled(capacity[scarce], got[scarce], weight[scarce])
    return got


def _filled(capacity: Floats, demand: Floats, weight: Floats) -> Floats:
    """`fill` where the demand is above the capacity."""
    ends = demand / weight
    levels = np.concatenate([np.zeros_like(ends), ends], axis=1)
    slopes = np.concatenate([weight, -weight], axis=1) * np.concatenate([demand > 0, demand > 0], axis=1)
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, axis=1)
    slope = np.cumsum(np.take_along_axis(slopes, order, axis=1), axis=1)
    # filled[k] = how much is handed out when the level has risen to levels[k]
    filled = np.cumsum(np.diff(levels, axis=1, prepend=levels[:, :1]) * _shifted(slope), axis=1)
    filled[:, -1] = np.maximum(filled[:, -1], capacity)  # the last level holds all of it, whatever was lost in rounding
    reached = np.argmax(filled >= (capacity - 1e-15)[:, None], axis=1)
    rows = np.arange(len(demand))
    over = filled[rows, reached] - capacity
    before = np.where(reached > 0, slope[rows, reached - 1], 0.0)
    level = levels[rows, reached] - np.divide(over, before, out=np.zeros_like(over), where=before > 0)
    return np.asarray(np.clip(level[:, None] * weight, 0.0, demand))


def _shifted(slope: Floats) -> Floats:
    """The slope just before each breakpoint."""
    return np.concatenate([np.zeros((len(slope), 1)), slope[:, :-1]], axis=1)


# A host's uplink with HTB classes: the guaranteed rate and the share of every instance, as tc is configured.

# Of the line, for all instances together that have no class of their own: what is advised must not push them aside.
UNSHAPED_SHARE = 0.5


def shaped(scenes: SceneBatch) -> Bools:
    """Slots with a traffic class of their own; (S, N)."""
    return np.asarray(scenes.present & (scenes.net_mode != NET_MODES.index("none")))


def first(scenes: SceneBatch) -> Bools:
    """Slots whose class is served first (prio 0), because they are sensitive to latency; (S, N)."""
    return shaped(scenes) & scenes.prompt


def kept_for_unshaped(has_class: Bools, link: Floats) -> Floats:
    """The guaranteed rate of all slots without a class together, Mbit/s; 0 without any class, as there is no HTB;
    (S,)."""
    return np.asarray(np.where(has_class.any(axis=1), UNSHAPED_SHARE * link, 0.0))


def sure(want: Floats, rate: Floats, has_class: Bools, is_first: Bools, link: Floats) -> Floats:
    """The guaranteed rate of each slot on the uplink (S,), Mbit/s; (S, N).

    One that has a class is sure of its `rate`, the others of an even part of what is kept for them, and no instance of
    more than it demands. HTB gives every class its rate even beyond that of its parent (tc-htb(8), sch_htb.c), so that
    the line itself decides where more is promised than it carries: the one served first has it all, and of what is left
    the promises to the others are cut in proportion, as their quanta are.
    """
    promised = np.where(has_class, np.minimum(want, rate), 0.0)
    if has_class.any():
        unshaped = np.where(has_class, 0.0, want)
        promised += fill(kept_for_unshaped(has_class, link), unshaped, np.ones_like(unshaped))
    ahead, behind = np.where(is_first, promised, 0.0), np.where(is_first, 0.0, promised)
    ahead *= within(ahead.sum(axis=1), link)[:, None]
    return np.asarray(ahead + behind * within(behind.sum(axis=1), link - ahead.sum(axis=1))[:, None])


def shares(want: Floats, rate: Floats, has_class: Bools, is_first: Bools, link: Floats) -> Floats:
    """Mbit/s that each gets of the line (S,): what it is sure of, and of what is left the one served first before the
    others, max-min among either (tc-htb(8)); (S, N)."""
    got = sure(want, rate, has_class, is_first, link)
    for turn in (is_first, ~is_first) if is_first.any() else (np.ones_like(has_class),):
        rest = np.where(turn, want - got, 0.0)
        got = got + fill(np.minimum(link - got.sum(axis=1), rest.sum(axis=1)), rest, np.ones_like(rest))
    return got


def within(promised: Floats, room: Floats) -> Floats:
    """The share of the promised rates that fits, 1 = all of it."""
    return np.asarray(np.divide(room, promised, out=np.ones_like(promised), where=promised > room))


# Resource demands of every instance when it runs alone, from solo profiles. Sharing is not considered here.

# Traits of the kinds of hypervisors, as arrays over scenes.


def trait(kind: Ints, name: str) -> Floats:
    """A number of each scene's kind of host; nan where that kind has none. `kind` is an index into HOST_KINDS."""
    return np.asarray(_of_kinds(name)[kind])


def holds(kind: Ints, name: str) -> Bools:
    """Whether each scene's kind of host has a trait."""
    return np.asarray(_of_kinds(name)[kind] > 0)


def _of_kinds(name: str) -> Floats:
    """A trait of all HOST_KINDS, nan where one has none."""
    return _as_array(tuple(getattr(TRAITS[one], name) for one in HOST_KINDS))


@cache  # by values: whoever fits constants replaces traits for a while
def _as_array(values: tuple[float | None, ...]) -> Floats:
    return np.array([np.nan if value is None else float(value) for value in values])


# Each further CPU of the driver domain, or of a guest, makes every page dearer: events grow 2.4-fold from one to four
# shared cores (NEIGHBOR section 4.3.1, Fig. 29); a fifth of the driver domain's time per page is taken to be events,
# which orders the pinnings of finding N11 as printed: fitted to it (decision 100).
EVENT_SHARE = 0.2
EVENT_GROWTH_PER_CPU = (2.4 - 1.0) / 3
MOST_COUNTED_CPUS = 4  # the largest set of that measurement: beyond it the cost is held, not extrapolated
# Payload share of an Ethernet link under TCP: 1448 bytes of data in 1538 bytes on the wire (IEEE 802.3, RFC 7323).
GOODPUT = 1448 / 1538
LEAST_BUSY = 0.5  # of its time alone that the fastest user keeps a device busy; less is not believed
MBIT_OF_KB = 1024 * 8 / 1e6  # httperf, which measured the papers' net I/O, counts 1024 bytes to a KB (its manual page)
DISK_IOPS = "disk_iops"  # of a profile, a host and a platform: requests per second
_SHARED_DEVICES: tuple[Resource, ...] = ("disk_mb_s", "mem_bw_mb_s")
ASSUMED = day_one(1)  # demand for CPUs over time, per vCPU, of an instance of which nothing is known
ASSUMED_BURST_MS = 1.0  # of CPU time at a stretch where a profile does not count executions; assumed


@dataclass(frozen=True, slots=True)
class Demands:
    """Resource demands of each slot when it runs alone; all (S, N), 0 in empty slots.

    `cpu` and `driver` in CPUs, `net` in Mbit/s, `disk` and `memory` as a share of the disk and of the memory bandwidth;
    `disk` counts bytes or requests, whichever are the larger share, and `disk_bytes` and `disk_requests` are both over
    it (0-1, 1 where nothing is known). `keen` is the share of its CPU demand that an instance keeps up while another
    resource holds it back.
    """

    cpu: Floats
    driver: Floats
    net: Floats
    disk: Floats
    memory: Floats
    keen: Floats
    disk_bytes: Floats
    disk_requests: Floats


def demands(scenes: SceneBatch) -> Demands:
    """Read each slot's demands from its solo profile; the comments below say what is assumed where it is unknown."""
    load, present = np.minimum(scenes.load, 1.0), scenes.present
    nothing = np.zeros_like(load)

    def column(key: str) -> Floats:
        return profile_column(scenes, key)

    pages = column("pages_exchanged")
    kind_cost = trait(scenes.kind, "cpu_s_per_page")[:, None]
    usual = np.where(scenes.profile == 0, ASSUMED.mean, 1.0) * scenes.vcpus
    cpu = first_known(scenes.cpu_demand[:, :, 0], column("cpu") / 100, usual)
    driver = first_known(column("driver_domain.cpu") / 100, pages * kind_cost, nothing)
    # A container has none: the kernel works for it mostly in the time of its own tasks, which `cpu` counts already.
    driver = np.where(holds(scenes.kind, "has_driver_domain")[:, None], driver, 0.0)
    net = first_known(
        device_mean(scenes, "net_mbit"), column("net_mbit"), column("throughput_kb_s") * MBIT_OF_KB, nothing
    )
    disk, memory = (
        np.divide(
            first_known(device_mean(scenes, key), column(key), nothing), most, out=np.zeros_like(load), where=most > 0
        )
        for key in _SHARED_DEVICES
        for most in (np.broadcast_to(capacity(scenes, key)[:, None], load.shape),)
    )
    moved, requests = disk, _request_share(scenes)
    disk = np.maximum(moved, requests)
    by_bytes, by_requests = (
        np.divide(part, disk, out=np.ones_like(load), where=disk > 0) for part in (moved, requests)
    )
    # One that is never blocked when alone does not step back for the driver domain: two 1 KB servers and Dom0 hold a
    # third of the CPU each (NEIGHBOR section 4.1.2, finding N5).
    cpu_percent, waiting, block = column("cpu"), first_known(column("waiting"), nothing), column("block")
    keen = 1 - block / np.maximum(cpu_percent + waiting + block, 1e-9)
    cpu, driver = np.where(present, np.minimum(cpu * load, scenes.vcpus), 0.0), np.where(present, driver * load, 0.0)
    net, disk, memory = (np.where(present, value * load, 0.0) for value in (net, disk, memory))
    speed = _speed_here(scenes, cpu, driver, net, np.maximum(disk, memory))
    return Demands(
        keen=np.where(present, first_known(keen, nothing), 0.0),
        cpu=cpu * speed,
        driver=driver * speed,
        net=net * speed,
        disk=disk * speed,
        memory=memory * speed,
        disk_bytes=by_bytes,
        disk_requests=by_requests,
    )


def _request_share(scenes: SceneBatch) -> Floats:
    """Requests per second of each slot at full load as a share of what its host's disk serves, 0 = unknown; (S, N).

    They grow with the bytes where the demand over time says other bytes than the profile.
    """
    most = scenes.platform_number(DISK_IOPS)[:, None]
    requests, megabytes = profile_column(scenes, DISK_IOPS), profile_column(scenes, "disk_mb_s")
    mean = device_mean(scenes, "disk_mb_s")
    times = np.divide(mean, megabytes, out=np.ones_like(mean), where=(mean >= 0) & (megabytes > 0))
    return np.asarray(np.nan_to_num(np.divide(requests * times, most, out=np.zeros_like(mean), where=most > 0)))


def disk_limit(scenes: SceneBatch, want: Demands) -> Floats:
    """What each slot's own limits let it have of its `disk` demand's unit, a share of the disk, inf = no limit."""
    most = capacity(scenes, "disk_mb_s")[:, None] * want.disk_bytes
    return np.asarray(np.divide(scenes.disk_limit, most, out=np.full(most.shape, np.inf), where=most > 0))


def device_mean(scenes: SceneBatch, device: Resource) -> Floats:
    """Mean demand for a device over time where it is known, in its unit, nan elsewhere; (S, N)."""
    return np.asarray(scenes.device_demand[:, :, DEVICES.index(device), 0])


def guessed(scenes: SceneBatch) -> Bools:
    """Whose demand for CPUs over time is a guess, for nothing is known of it; (S, N)."""
    return np.asarray(np.isnan(scenes.cpu_demand[:, :, 0]) & (scenes.profile == 0))


def mean_only(scenes: SceneBatch) -> Bools:
    """Whose demand for CPUs is known as a single mean, which a user gave as the profile of its workload; (S, N)."""
    known = np.isin(scenes.profile, list(scenes.table.means)) if scenes.table.means else np.zeros(1, dtype=bool)
    return np.asarray(np.isnan(scenes.cpu_demand[:, :, 0]) & known)


def over_time(scenes: SceneBatch) -> Bools:
    """Whose demand for CPUs is known or assumed over time, not as that of a workload at full speed; (S, N)."""
    return np.asarray(~np.isnan(scenes.cpu_demand[:, :, 0]) | guessed(scenes) | mean_only(scenes))


def open_loop(scenes: SceneBatch) -> Floats:
    """The share of each demand's work that arrives however well it is served, nan = unknown; (S, N)."""
    return np.asarray(scenes.cpu_demand[:, :, CPU_DEMAND.index("open_loop")])


def driver_apart(scenes: SceneBatch) -> Bools:
    """Where the driver domain is a consumer of its own, not part of each instance's control group; (S,).

    Xen's is; so are KVM's threads where they are pinned to CPUs of their own.
    """
    own = holds(scenes.kind, "has_driver_domain") & scenes.driver_pinned
    return np.asarray(holds(scenes.kind, "driver_apart") | own)


def profile_column(scenes: SceneBatch, key: str) -> Floats:
    """One metric of the profile in each slot, nan = unknown; (S, N)."""
    return np.asarray(scenes.table.column(key)[scenes.profile])


def first_known(*options: Floats) -> Floats:
    """Element by element, the first value of several arrays that is not nan."""
    value = options[0]
    for option in options[1:]:
        value = np.where(np.isnan(value), option, value)
    return value


def burst_ms(scenes: SceneBatch) -> Floats:
    """CPU time between being scheduled and leaving the CPU, alone (`cpu` over `execution`); (S, N), in ms, above 0."""
    cpu, executions = profile_column(scenes, "cpu"), profile_column(scenes, "execution")
    known = (cpu > 0) & (executions > 0)
    burst = np.divide(10 * cpu, executions, out=np.full(cpu.shape, ASSUMED_BURST_MS), where=known)  # 1 % = 10 ms/s
    return np.asarray(np.clip(burst, 1e-3, 1e6))


def link(scenes: SceneBatch) -> Floats:
    """The data rate of the NIC in Mbit/s, inf where its speed is unknown; (S,)."""
    rate = scenes.host_numbers[:, 6] * GOODPUT
    return np.where(np.isnan(rate), np.inf, rate)


def capacity(scenes: SceneBatch, key: str) -> Floats:
    """The bandwidth of each host's disk or memory in MB/s, 0 = unknown; (S,).

    It was measured on the host, or is given for its platform, or is estimated from the profiles, in this order.
    """
    own, of_platform = getattr(scenes, key), scenes.platform_number(key)
    return np.asarray(
        np.where(own > 0, own, np.where(of_platform > 0, of_platform, guessed_capacity(scenes.table, key)))
    )


def guessed_capacity(table: ProfileTable, key: str) -> float:
    """What a disk or a memory can do at least, MB/s, by the workload that reached most alone, 0 = none is known: its
    reader leaves the disk idle while it computes, so that the disk can do as much more as it was not blocked on it."""
    return table.once(f"capacity {key}", lambda: _reached_most(table, key))


def _reached_most(table: ProfileTable, key: str) -> float:
    rates = np.nan_to_num(table.column(key))
    row = int(rates.argmax())
    if rates[row] <= 1e-6:
        return 0.0
    busy = table.column("block")[row] / 100 if key == "disk_mb_s" else 1.0
    return float(rates[row] / (np.clip(busy, LEAST_BUSY, 1.0) if np.isfinite(busy) else 1.0))


def _speed_here(scenes: SceneBatch, cpu: Floats, driver: Floats, net: Floats, share: Floats) -> Floats:
    """The share of its profile's speed that an instance reaches alone on this host, which may be smaller; (S, N).

    T/B is against alone on the same host, whatever host the profile was measured on. `share` is of the disk or the
    memory bandwidth, whichever it needs more of.
    """
    have = (scenes.pcpus, np.maximum(scenes.driver_cpus.sum(axis=1), 1), link(scenes), np.ones(len(scenes)))
    speed = np.ones_like(cpu)
    for most, need in zip(have, (cpu + driver, driver, net, share), strict=True):
        too_much = need > most[:, None]
        speed = np.minimum(speed, np.divide(most[:, None], need, out=np.ones_like(need), where=too_much))
    return speed


def weights(scenes: SceneBatch, weight: Floats) -> Floats:
    """The effective CPU weights (S, ...) of a scene's consumers under the host's scheduler."""
    exponent = trait(scenes.kind, "weight_exponent")
    return np.asarray(weight ** exponent[:, None])


def driver_price(scenes: SceneBatch, want: Demands) -> Floats:
    """The cost of a page for the driver domain, relative to alone with one CPU each; (S, N).

    Dearer with every further CPU (N10, N11); cheaper, by at most the events' share, where CPUs are crowded and
    many pages go with one event (N5: the most contended pair has the fewest events and most pages per execution).
    """
    grow = holds(scenes.kind, "events_grow")[:, None]
    if not grow.any():
        return np.ones_like(want.cpu)
    driver_size = scenes.driver_cpus.sum(axis=1)
    guest = np.minimum(np.minimum(scenes.allowed, scenes.vcpus), MOST_COUNTED_CPUS)
    driver = np.minimum(driver_size, MOST_COUNTED_CPUS)[:, None]
    # A driver-domain CPU takes part in the events of all guests, a guest's CPU only in its own: it counts half.
    further = np.maximum(driver - 1, 0) + np.maximum(guest - 1, 0) / 2
    # One that sends no pages makes no instance's events fewer: a guest's CPU counts up to what the driver domain does
    # for it.
    feeding = _spread(scenes, replace(want, cpu=np.minimum(want.cpu, want.driver)))
    spread = (scenes.driver_cpus * feeding).sum(axis=1) / np.maximum(driver_size, 1)
    crowded = np.clip(spread - 1, 0.0, 1.0)[:, None]
    return np.where(grow, (1.0 + EVENT_SHARE * EVENT_GROWTH_PER_CPU * further) * (1 - EVENT_SHARE * crowded), 1.0)


def _spread(scenes: SceneBatch, want: Demands) -> Floats:
    """CPU demand on every pCPU if each consumer spreads evenly over the pCPUs it may use; (S, P)."""
    size = np.maximum(scenes.allowed, 1)
    guests = np.einsum("snp,sn->sp", scenes.affinity, np.minimum(want.cpu, scenes.cap) / size)
    driver = want.driver.sum(axis=1) / np.maximum(scenes.driver_cpus.sum(axis=1), 1)
    own = scenes.shared * (scenes.own_cpus / np.maximum(scenes.shared.sum(axis=1), 1))[:, None]
    return np.asarray(guests + scenes.driver_cpus * driver[:, None] + own)


def cpu_spread(scenes: SceneBatch) -> Floats:
    """CPU demand per pCPU of a host as it stands, driver domain included; (S, P) CPUs."""
    return _spread(scenes, demands(scenes))


def crowd(scenes: SceneBatch, want: Demands) -> Floats:
    """CPU demand per CPU on the CPUs that a slot may use, its own demand included; (S, N)."""
    met = np.einsum("snp,sp->sn", scenes.affinity, _spread(scenes, want))
    return np.where(scenes.present, met / np.maximum(scenes.allowed, 1), 0.0)
