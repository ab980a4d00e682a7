"""What a CPU gives an instance: closed-form waiting, caps and their periods, the clock, busy siblings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import CPU_DEMAND, HOST_NUMBERS, SceneBatch
from models.data.topology import overlap_of, pcpus_in
from models.physics.demands import Demands, burst_ms, first_known, holds, open_loop, trait
from profiler.observed import Instance

# Closed-form waiting times: processor sharing, FCFS, CPU caps and full queues; arrays in and out.

MOST_BUSY = 0.95  # of a server as a queue sees it: no queue is taken to be longer than twenty, however overloaded


class TimeMoments(NamedTuple):
    """Mean and variance of a time, in one unit and its square."""

    mean: Floats
    variance: Floats

    def times(self, factor: Floats) -> TimeMoments:
        """The same time in a unit `factor` times smaller."""
        return TimeMoments(self.mean * factor, self.variance * factor**2)

    def plus(self, other: TimeMoments) -> TimeMoments:
        """The sum of two independent times."""
        return TimeMoments(self.mean + other.mean, self.variance + other.variance)

    def mixed(self, other: TimeMoments, chance: Floats) -> TimeMoments:
        """This one in some periods and, with probability `chance`, the other: the mean of all, the variance within one.

        Periods are long against what passes through them, and jitter compares neighbours (RFC 3550, section 6.4.1).
        """
        return TimeMoments(
            (1 - chance) * self.mean + chance * other.mean, (1 - chance) * self.variance + chance * other.variance
        )


def processor_sharing(busy: Floats, rate: Floats, servers: Floats) -> TimeMoments:
    """Sojourn of one unit of work where `servers` servers give `rate` (0-1) each and `busy` work per server arrives.

    One server: 1/(rate - busy), the mean of an M/G/1 whatever its services are (Kleinrock, Queueing Systems II, 4.4),
    with the variance of M/M/1 processor sharing (Coffman, Muntz and Trotter, JACM 17, 1970). With several servers the
    wait is divided among them, which is exact in heavy traffic (Koellerstroem, J. Appl. Prob. 11, 1974).
    """
    load = np.minimum(busy / rate, MOST_BUSY)
    mean = (1 + load / (1 - load) / servers) / rate
    return TimeMoments(mean, mean**2 * (2 + load) / (2 - load))


def first_come_first_served(busy: Floats, servers: Floats) -> TimeMoments:
    """Sojourn of one unit of work among exponential ones in a queue whose servers are busy a share `busy` of the time.

    Pollaczek and Khinchine: W = λE[S²] / 2(1 - ρ) and E[W²] = 2W² + λE[S³] / 3(1 - ρ). Several servers as in
    `processor_sharing`.
    """
    load = np.minimum(busy, MOST_BUSY)
    wait = load / (1 - load)
    return TimeMoments(1 + wait / servers, (wait**2 + 2 * wait) / servers**2 + 1)


def among_packets(busy: Floats, others: Floats) -> TimeMoments:
    """Sojourn of one packet of a sender with a clock of its own in a queue that is busy a share `busy` of the time.

    Packets are alike and do not wait for their own sender, so that of the work in Pollaczek and Khinchine's formula
    only the `others'` arrives at random; exact without others, and where the sender's own share is small.
    """
    load = np.minimum(busy, MOST_BUSY)
    random = np.minimum(others, load)
    wait = random / (2 * (1 - load))
    return TimeMoments(1 + wait, wait**2 + random / (3 * (1 - load)))


def worst_cap_stall(share: Floats, period: Floats) -> Floats:
    """The longest stall under a cap: P - Q, with the budget Q = share of the period P; any unit.

    Source: sched-bwc.rst of Linux, credit2.c of Xen.
    """
    return (1 - np.clip(share, 0.0, 1.0)) * period


def cap_stall(share: Floats, period: Floats) -> TimeMoments:
    """Wait of work that arrives at any moment of periods whose last P - Q are a stall: mean (P - Q)² / 2P.

    It meets the stall with probability (P - Q)/P, and then any part of it, evenly: E[W²] = (P - Q)³ / 3P.
    """
    stall = worst_cap_stall(share, period)
    mean = stall**2 / (2 * period)
    return TimeMoments(mean, stall**3 / (3 * period) - mean**2)


def budget_runs_out(share: Floats, busy: Floats, period: Floats, service: Floats) -> Floats:
    """Probability that the work of one period exceeds its budget: 1 from saturation on, 0 without a cap.

    Work of a period has mean dP and, arriving at random in exponential services s, variance 2dsP; beyond the budget
    cP lies at most exp(-(c - d)² P / 4ds) of a normal one (Chernoff's bound).
    """
    spare = np.maximum(np.clip(share, 0.0, 1.0) - busy, 0.0)
    depth = np.divide(spare**2 * period, 4 * busy * service, out=np.full(spare.shape, np.inf), where=busy > 0)
    chance = np.where(spare > 0, np.exp(-np.minimum(depth, 700.0)), 1.0)
    return np.where(share < 1, chance, 0.0)


def behind_backlog(backlog: Floats, rate: Floats) -> TimeMoments:
    """Delay of a first-in-first-out queue of `backlog` megabit that a class of `rate` Mbit/s empties: q/r, in seconds.

    Senders that fill it back off and fill it again (tc-htb(8), RFC 5681): its depth varies evenly between 0 and q.
    """
    delay = np.divide(backlog, rate, out=np.zeros(np.broadcast_shapes(backlog.shape, rate.shape)), where=rate > 0)
    return TimeMoments(delay, delay**2 / 12)


# Periods of CPU caps: renderers write them into commands, and the prior predicts with them.

DEFAULT_US, MOST_US = 100_000, 1_000_000  # sched-bwc.rst
# A capped instance does not run for up to P - Q of each period (models.physics.cpu_speed.worst_cap_stall). Instances
# that are sensitive to latency get a short period: as long as that of Xen's credit2, and two of the kernel's slices
# (sched_cfs_bandwidth_slice_us).
SHORT_US = 10_000
MIN_QUOTA_US = 1_000  # sched-bwc.rst; virsh(1), schedinfo


def is_short(instance: Instance) -> bool:
    """Whether a cap of this instance is counted over short periods, where the host's tools can say so."""
    return instance.service == "latency"


def period_us(cpus: Floats, short: Bools) -> Floats:
    """Period in µs of Linux's quota for so many CPUs: the usual one, longer where the quota would be under 1 ms."""
    usual = np.where(short, SHORT_US, DEFAULT_US)
    return np.asarray(np.clip(np.ceil(MIN_QUOTA_US / cpus), usual, MOST_US))


def cap_period_ms(kind: Ints, cap: Floats, vcpus: Floats, short: Bools) -> Floats:
    """Period in ms of a cap in CPUs (inf = none) on a host of this kind (index into HOST_KINDS); arrays that broadcast.

    libvirt's quota holds for each vCPU alone (formatdomain, quota), a container's for the whole of it.
    """
    quota = np.where(holds(kind, "cap_per_vcpu"), cap / np.maximum(vcpus, 1.0), cap)
    fixed = trait(kind, "cap_period_ms")
    return np.asarray(np.where(np.isnan(fixed), period_us(quota, short) / 1000, fixed))


# What an instance's own cap leaves of the CPU time that it demands, as run / (run + wait).


def delivered_under_cap(scenes: SceneBatch, want: Demands) -> Floats:
    """Run / (run + wait) of each instance alone under its cap, throttled time being a wait; (S, N), 1 without a cap.

    With c and m, cap and mean demand of a vCPU: a closed loop below its demand runs b, thinks b (1 - m) / m and takes
    b / c for both, so that 1 / (1/c - 1/m + 1) is delivered. Work that arrives however well it is served queues: from
    c = m on a vCPU always waits and has c, before that in periods whose budget runs out. Of 37 capped containers
    on two busy CPUs this was 0.06 off on average, cap over demand 0.43 (decision 208).
    """
    vcpus = np.maximum(scenes.vcpus, 1.0)
    if not (scenes.cap < vcpus).any():
        return np.ones_like(vcpus)
    cap = np.clip(np.minimum(scenes.cap, vcpus) / vcpus, 1e-3, 1.0)
    mean = np.clip(want.cpu / vcpus, 1e-6, 1.0)
    period = cap_period_ms(scenes.kind[:, None], scenes.cap, scenes.vcpus, scenes.prompt)
    burst = first_known(scenes.cpu_demand[:, :, CPU_DEMAND.index("burst_ms")], burst_ms(scenes))
    queued = 1 - budget_runs_out(cap, mean, period, burst) * (1 - cap)
    closed = 1 / (1 / np.minimum(cap, mean) - 1 / mean + 1)
    arriving = np.clip(np.nan_to_num(open_loop(scenes)), 0.0, 1.0)
    return np.asarray(np.where(cap < 1, arriving * queued + (1 - arriving) * closed, 1.0))


# The more cores of a machine are busy, the lower is their clock.
#
# CPU time does not show the difference, so the share of CPU time stays as it is.

TURBO_MHZ = "turbo_mhz"
MHZ = HOST_NUMBERS.index("cpu_mhz")
# What part of the way from turbo to nominal clock a machine goes down when all its cores are busy, and half of what the
# clock may take besides, on the log scale. Both are fits to one machine: 52 cores of 2.1 to 3.7 GHz ran at 0.93 and
# 0.89 of their speed with 16 and 32 of them busy, neighbours with AVX-512 included (scheduler series "core scheduling
# v3" on the linux-kernel list, 2019-06-12).
WAY_DOWN = 1 / 3
CLOCK = 0.12
# Both where clocks are unknown, of physical machines: USUALLY is WAY_DOWN of servers of 2 GHz that turbo to 3.7. A
# second machine (128 cores of unknown clocks) lost a quarter with 32 busy threads of tbench and two fifths with 128,
# by cache, memory and kernel as well (a scheduler series on the same list, 2022), which the range holds.
USUALLY = 0.15
UNKNOWN = 0.3


def clock_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """Speed of each instance relative to alone, as far as the clock decides; (S, N), 1 where clocks are unknown but for
    hosts with hyperthreads.

    `cpu` (S, N) is what each uses alone, in CPUs. What the host uses itself counts as company.
    """
    lost = clock_lost(scenes)
    if not lost.any():
        return np.ones(cpu.shape)
    demanded = np.where(scenes.present, cpu, 0.0)
    every, lost = cores(scenes)[:, None], lost[:, None]
    together = clock(lost, demanded.sum(axis=1, keepdims=True) + scenes.own_cpus[:, None], every)
    return np.where(scenes.present, together / clock(lost, demanded, every), 1.0)


def clock_spread(scenes: SceneBatch, cpu: Floats) -> Floats:
    """How uncertain the clock makes the log of each instance's speed; (S, 1).

    0 on hosts of one thread per core whose clocks are unknown: small ones are mostly virtual machines, whose clock
    others decide. Those with hyperthreads are physical machines. `cpu` (S, N) as above.
    """
    busy = np.where(scenes.present, cpu, 0.0).sum(axis=1) + scenes.own_cpus
    width = np.where(_unknown(scenes), UNKNOWN, np.where(clock_lost(scenes) > 0, CLOCK, 0.0))
    return np.asarray(width * np.sqrt(np.minimum(busy / cores(scenes), 1.0)))[:, None]


def clock_lost(scenes: SceneBatch) -> Floats:
    """What part of its speed a core loses by the clock while all cores are busy, 0 = none, or unknown on a host without
    hyperthreads; (S,)."""
    nominal, turbo = scenes.host_numbers[:, MHZ], scenes.platform_number(TURBO_MHZ)
    part = np.divide(nominal, turbo, out=np.ones(len(scenes)), where=turbo > nominal)
    return np.where(_unknown(scenes), USUALLY, WAY_DOWN * (1 - part))


def _unknown(scenes: SceneBatch) -> Bools:
    """Hosts with hyperthreads of which one of both clocks is unknown, (S,)."""
    clocks = scenes.host_numbers[:, MHZ] + scenes.platform_number(TURBO_MHZ)
    return np.asarray(np.isnan(clocks) & has_siblings(scenes))


def clock(lost: Floats, busy: Floats, every: Floats) -> Floats:
    """The clock over the turbo clock, where so many vCPUs are busy on `every` core of a host."""
    return np.asarray(1 - lost * np.sqrt(np.minimum(busy / every, 1.0)))


# Two hyperthreads are not two cores: how much slower an instance runs while others run on its siblings.
#
# What a second thread adds to the work of a core is a field of the host, SECOND_THREAD (0 = nothing, 1 = as much as a
# core), else a column of its platform. Where it is unknown, ADDS stands for it. CPU time does not show the
# difference, so the share of CPU time stays as it is.

SECOND_THREAD = "second_thread"
# Servers gain 0.16-0.28 by a second thread (Marr et al., Intel Technology Journal 6(1), 2002).
ADDS = 0.25


def sibling_speed(scenes: SceneBatch, cpu: Floats) -> Floats:
    """Speed of each instance relative to alone, as far as siblings decide; (S, N), 1 on hosts of one thread per core.

    `cpu` (S, N) is what each uses alone, in CPUs. On C cores that it may use, K busy vCPUs share 2 (K - C) of K places,
    for schedulers fill idle cores first. Its own vCPUs share cores alone, too, where the host has too few for them;
    that pins leave it too few counts against it. What the host uses itself runs on shared
    pCPUs, as many on each.
    """
    speed = np.ones(cpu.shape)
    several = has_siblings(scenes)
    if not several.any():
        return speed
    lost = core_lost(scenes)[:, None]
    demanded = np.where(scenes.present, cpu, 0.0)
    busy = np.broadcast_to(demanded.sum(axis=1, keepdims=True) + scenes.own_cpus[:, None], demanded.shape).copy()
    count = np.broadcast_to(cores(scenes)[:, None], demanded.shape).copy()
    pinned = np.flatnonzero(several & _any_pinned(scenes))
    if len(pinned):
        some = scenes.take(pinned)
        on = pcpus_in(some.core, some.affinity)
        there = on > 0
        count[pinned] = np.maximum(there.sum(axis=2), 1)
        busy[pinned] = (overlap_of(some, on) @ demanded[pinned][:, :, None])[:, :, 0]
        busy[pinned] += (there @ _own_work(some)[:, :, None])[:, :, 0]
    together = 1 - lost * shares_a_core(busy, count)
    alone = 1 - lost * shares_a_core(demanded, np.broadcast_to(cores(scenes)[:, None], demanded.shape))
    return np.where(scenes.present & several[:, None], together / alone, speed)


def has_siblings(scenes: SceneBatch) -> Bools:
    """Whether any core of the hosts has several pCPUs; (S,)."""
    return cores(scenes) < scenes.pcpus


def cores(scenes: SceneBatch) -> Floats:
    """How many cores the hosts have; (S,)."""

    def count() -> Floats:
        place = np.arange(scenes.core.shape[1])
        return np.asarray(((scenes.core == place) & (place < scenes.pcpus[:, None])).sum(axis=1), dtype=np.float64)

    return scenes.once("cores", count)


def core_lost(scenes: SceneBatch) -> Floats:
    """What part of its speed a vCPU loses while another one runs on its core, 0 = nothing is shared; (S,)."""
    adds = scenes.platform_number(SECOND_THREAD)
    adds = np.clip(np.where(np.isnan(adds), ADDS, adds), 0.0, 1.0)
    return np.where(has_siblings(scenes), (1 - adds) / 2, 0.0)


def shares_a_core(busy: Floats, cores: Floats) -> Floats:
    """The chance that a busy vCPU shares its core, where so many are busy on so many cores."""
    return np.clip(2 * (busy - cores) / np.maximum(busy, 1e-9), 0.0, 1.0)


def _own_work(scenes: SceneBatch) -> Floats:
    """The CPUs that the hosts use themselves on each core (S, P); (S, K)."""
    shared = pcpus_in(scenes.core, scenes.shared[:, None, :])[:, 0]
    return np.asarray(shared * (scenes.own_cpus / np.maximum(scenes.shared.sum(axis=1), 1))[:, None])


def _any_pinned(scenes: SceneBatch) -> Bools:
    """Scenes in which an instance may not use every pCPU, (S,)."""
    everywhere = scenes.allowed >= scenes.pcpus[:, None]
    return np.asarray((scenes.present & ~everywhere).any(axis=1))
