"""Latency and jitter relative to solo values: how much waiting sharing adds, scene by scene. No throughput here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import CPU_DEMAND, SceneBatch
from models.physics import demands
from models.physics.contention import ALWAYS_BUSY
from models.physics.cpu_speed import (
    TimeMoments,
    among_packets,
    behind_backlog,
    budget_runs_out,
    cap_period_ms,
    cap_stall,
    first_come_first_served,
    processor_sharing,
)
from models.physics.demands import Demands, burst_ms, disk_limit, driver_apart, first_known, link, profile_column, trait

# One that waits for each of its writes to be on the disk waits for the scheduler's clock as well, beside busy
# neighbours.
#
# Reads and writes that are not synced come back at once on Linux: their wake-ups preempt a busy program of another
# control group. A flush is finished by a kernel thread on the CPU of the writer, and the writer then ran at the next
# tick only, whatever its weight: 250 to 320 synced writes per second beside one busy program at HZ=250, for appends
# with fdatasync as for direct writes with O_DSYNC (Linux 6.18, control groups, 2026-11-28, docs/limits.md).

FLUSHES = "disk_flushes"


def flush_speed(scenes: SceneBatch, want: Demands) -> Floats:
    """Speed of each instance relative to alone, as far as its flushes wait for CPUs; (S, N), 1 where it has none.

    While neighbours keep every CPU busy that it may use, each flush adds to the time of an operation the rest of their
    burst, at most until the next tick. Bursts at least b long keep those CPUs busy for U(b) of the time, and slow the
    writer by f(b) = w / (T + w) meanwhile, w = min(b, tick), T the time between flushes alone. It loses the integral of
    U over f, so that no further neighbour gives it anything back.
    """
    speed = np.ones(want.cpu.shape)
    flushes = np.nan_to_num(profile_column(scenes, FLUSHES)) * np.minimum(scenes.load, 1.0)
    tick = trait(scenes.kind, "synced_wait_ms")
    rows, slots = np.nonzero(scenes.present & (flushes > 0) & (tick > 0)[:, None])
    if not len(rows):
        return speed
    demand, burst, allowed = _neighbours(scenes, want, rows, slots)
    order = np.argsort(-burst, axis=1)
    wait = np.minimum(np.take_along_axis(burst, order, axis=1), tick[rows, None])
    slower = wait / (1e3 / flushes[rows, slots][:, None] + wait)
    occupied = _occupied(demand, allowed, scenes.affinity[rows, slots], order)
    speed[rows, slots] = 1 - (np.diff(occupied, axis=1, prepend=0.0) * slower).sum(axis=1)
    return speed


def _neighbours(scenes: SceneBatch, want: Demands, rows: Ints, slots: Ints) -> tuple[Floats, Floats, Bools]:
    """Demand for CPUs and length of bursts in ms, (W, N + 1), and allowed CPUs, (W, N + 1, P), of all beside each
    writer, its host's own work as the last one. Where bursts are not known, its own count as long, and so do those of
    instances that always want their vCPUs: nothing ends them."""
    demand = np.where(scenes.present, np.minimum(want.cpu, scenes.cap), 0.0)[rows]
    demand[np.arange(len(rows)), slots] = 0.0
    endless = np.isnan(profile_column(scenes, "execution")) & (want.cpu >= ALWAYS_BUSY * np.maximum(scenes.vcpus, 1.0))
    assumed = np.where(endless, np.inf, burst_ms(scenes))
    burst = first_known(scenes.cpu_demand[:, :, CPU_DEMAND.index("burst_ms")], assumed)[rows]
    return (
        np.concatenate([demand, scenes.own_cpus[rows, None]], axis=1),
        np.concatenate([burst, np.full((len(rows), 1), np.inf)], axis=1),
        np.concatenate([scenes.affinity[rows], scenes.shared[rows, None]], axis=1),
    )


def _occupied(demand: Floats, allowed: Bools, own: Bools, order: Ints) -> Floats:
    """The part of the time in which the first k neighbours in `order` keep all CPUs busy that a writer may use, for
    each k; (W, N + 1). `own` (W, P) are its CPUs, other arguments as in `_neighbours`.

    Each is busy on as many CPUs as its demand, by chance on one more, and evenly on those that it may use (sum of
    independent variables). Where they want more than all CPUs but one together, work that waits fills them, and no CPU
    is busier than those that may run there can make it.
    """
    writers = np.arange(len(order))
    places = own.sum(axis=1)
    at_least = np.zeros((len(order), int(places.max()) + 1))  # P(so many of them are busy or more)
    at_least[:, 0] = 1.0
    count = np.arange(at_least.shape[1])[None, :]
    there, most = np.zeros(len(order)), np.zeros(own.shape)
    occupied = np.empty(order.shape)
    for step in range(order.shape[1]):
        one = order[:, step]
        demanded, may = demand[writers, one], allowed[writers, one]
        here = demanded * (may & own).sum(axis=1) / np.maximum(may.sum(axis=1), 1)
        sure = np.floor(here)[:, None].astype(np.int64)
        chance = here[:, None] - sure
        fewer, more = (np.take_along_axis(at_least, np.maximum(count - sure - k, 0), axis=1) for k in (0, 1))
        at_least = (1 - chance) * fewer + chance * more
        there += here
        most += may * demanded[:, None]
        busiest = np.maximum(at_least[writers, places], np.clip(there - (places - 1), 0.0, 1.0))
        occupied[:, step] = np.minimum(busiest, np.where(own, most, 1.0).min(axis=1))
    return occupied


# What a sender that fills a queue keeps in it: a TCP window without scaling, 65,535 bytes (RFC 9293), in megabit.
BACKLOG_MBIT = 65_535 * 8 / 1e6
# An instance that keeps no resource busy for half its time alone is not held back by any: it runs by a clock, as a
# game or a stream does. One that keeps a resource busy sends its next request when the last one is answered. Assumed.
SATURATING = 0.5


@dataclass(frozen=True, slots=True)
class _Place:
    """Where each slot stands on the CPUs it may use; all (S, N), per vCPU that can run at a time.

    `own` CPU demand without its cap; `alone` CPU that it finds with nothing but its own work for the driver domain
    beside it; `cap` its cap, 1 = none.
    """

    servers: Floats
    own: Floats
    alone: Floats
    cap: Floats


def latency_and_jitter(scenes: SceneBatch, want: Demands, throughput: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Mean latency and its standard deviation over their values alone without settings; two (S, N), never below 1.

    One that saturates a resource has a fixed number of requests on their way: latency is 1 / `throughput` (Little's
    law; in the lab's runs the product of both ratios is 1.00 in the median). All others are an open network of queues:
    residence is demand over what is left of the server, resource by resource (Lazowska et al., Quantitative System
    Performance, 1984, chapter 6), plus stalls of caps, turns of neighbours and full queues in milliseconds.
    """
    place = _place(scenes, want)
    alone, together = (_residence(scenes, want, place, share, alone=alone) for alone in (True, False))
    # Milliseconds per unit of `alone`: a burst is the CPU's part of it.
    unit = np.divide(burst_ms(scenes), want.cpu, out=np.zeros_like(want.cpu), where=want.cpu > 0)
    mean_ms = first_known(_known(scenes, "latency_mean_ms"), unit * alone.mean)
    deviation_ms = first_known(_known(scenes, "jitter_ms"), unit * np.sqrt(alone.variance))
    stalls, queues = _stalls(scenes, place), _full_queues(scenes, want)
    closed = _saturating(scenes, want, place)
    slower = 1 / throughput
    mean = np.where(closed, slower, _over(together.mean, alone.mean))
    mean += np.where(closed, 0.0, _over(stalls.mean + queues.mean, mean_ms, nothing=0.0))
    spread = np.where(closed, slower**2, _over(together.variance, alone.variance))
    spread += _over(stalls.variance + np.where(closed, 0.0, queues.variance), deviation_ms**2, nothing=0.0)
    here = scenes.present
    return np.where(here, np.maximum(mean, slower), 1.0), np.where(here, np.sqrt(np.maximum(spread, 1.0)), 1.0)


def _over(value: Floats, whole: Floats, nothing: float = 1.0) -> Floats:
    return np.asarray(np.divide(value, whole, out=np.full(value.shape, nothing), where=whole > 1e-12))


def _known(scenes: SceneBatch, key: str) -> Floats:
    value = profile_column(scenes, key)
    return np.where(value > 0, value, np.nan)


def _place(scenes: SceneBatch, want: Demands) -> _Place:
    may = (scenes.affinity & scenes.present[:, :, None]).astype(float)
    size = np.maximum(may.sum(axis=2), 1.0)
    servers = np.minimum(np.maximum(scenes.vcpus, 1.0), size)
    on_driver = (may @ scenes.driver_cpus[:, :, None])[:, :, 0] / size
    on_driver /= np.maximum(scenes.driver_cpus.sum(axis=1), 1)[:, None]  # of a CPU second of the driver domain
    # One vCPU finds a CPU free unless all it may use are busy; as many vCPUs as CPUs find what the others leave.
    own_driver = np.clip(on_driver * want.driver, 0.0, 1.0)
    alone = np.clip(1 - own_driver ** (size / servers), 1e-3, 1.0)
    return _Place(servers, want.cpu / servers, alone, np.clip(scenes.cap / servers, 1e-3, 1.0))


def _residence(scenes: SceneBatch, want: Demands, place: _Place, share: Floats, *, alone: bool) -> TimeMoments:
    """Residence time at all resources together, in the unit of the demands: co-located, or alone without settings."""
    total = np.zeros_like(want.cpu)
    whole = TimeMoments(total, total)
    for demand, time in (
        (want.cpu, _at_cpu(scenes, place, share, alone=alone)),
        (want.driver, _at_driver(scenes, want, alone=alone)),
        (want.net / link(scenes)[:, None], _at_nic(scenes, want, alone=alone)),
        (want.disk, _at_shared(want.disk, disk_limit(scenes, want), alone=alone)),
        (want.memory, _at_shared(want.memory, np.full_like(total, np.inf), alone=alone)),
    ):
        whole = whole.plus(time.times(demand))
    return whole


def _at_cpu(scenes: SceneBatch, place: _Place, share: Floats, *, alone: bool) -> TimeMoments:
    """Residence time at the CPU, which is as slow as the share that an instance gets of the CPU time it demands.

    A cap acts as a slower CPU in periods whose budget runs out, and not in the others.
    """
    if alone:
        return processor_sharing(place.own, place.alone, place.servers)
    rate = np.maximum(place.alone * share, 1e-3)
    here = processor_sharing(place.own, rate, place.servers)
    held = processor_sharing(place.own, np.minimum(rate, place.cap), place.servers)
    return here.mixed(held, _throttled(scenes, place))


def _throttled(scenes: SceneBatch, place: _Place) -> Floats:
    return budget_runs_out(place.cap, place.own, _period(scenes), burst_ms(scenes))


def _period(scenes: SceneBatch) -> Floats:
    """The period of every cap in ms; (S, N)."""
    return cap_period_ms(scenes.kind[:, None], scenes.cap, scenes.vcpus, scenes.prompt)


def _stalls(scenes: SceneBatch, place: _Place) -> TimeMoments:
    """Stall times in ms until a cap's budget is refilled."""
    never = TimeMoments(np.zeros_like(place.own), np.zeros_like(place.own))
    return never.mixed(cap_stall(place.cap, _period(scenes)), _throttled(scenes, place))


def _at_driver(scenes: SceneBatch, want: Demands, *, alone: bool) -> TimeMoments:
    """Residence time at the driver domain: one FCFS queue for all pages, which under Xen one CPU serves (N9, N11);
    threads of its own serve an instance where the driver domain is not apart."""
    apart = driver_apart(scenes)[:, None]
    size = np.maximum(scenes.driver_cpus.sum(axis=1), 1)[:, None].astype(float)
    servers = np.where(apart, np.minimum(trait(scenes.kind, "driver_servers")[:, None], size), 1.0)
    all_driver = np.broadcast_to(want.driver.sum(axis=1, keepdims=True), want.cpu.shape)
    busy = np.where(apart & ~np.array(alone), all_driver, want.driver) / servers
    return first_come_first_served(busy, servers)


def _at_nic(scenes: SceneBatch, want: Demands, *, alone: bool) -> TimeMoments:
    """Unshaped traffic shares one queue, a class has one of its own; each is served at the rate that is left for it.

    Of other queues only the frame that is on its way is waited for, half of it on average: HTB serves any that is
    within its rate first, of prio 0 before all others (tc-htb(8)). Where a queue is slower than the line, packets of
    one sender meet each other, too, as in M/D/1: what that adds to their meeting on the line, which is a part of
    `alone`. Its spread is left out: one that sends by a clock has none, and a profile does not say.
    """
    nothing, most = np.zeros_like(want.net), link(scenes)[:, None]
    if alone:
        return among_packets(want.net / most, nothing)
    shaped = demands.shaped(scenes)
    unshaped = np.where(shaped, 0.0, want.net).sum(axis=1, keepdims=True)
    rate = np.where(shaped, np.maximum(_class_rate(scenes, want), 1e-3 * np.minimum(most, 1e6)), _left(scenes, want))
    longer = np.divide(most, rate, out=np.ones_like(rate), where=np.isfinite(most))  # a packet's time in that queue
    own, company = want.net / rate, np.where(shaped, want.net, unshaped) / rate
    queue = among_packets(company, company - own)
    itself = (among_packets(own, own).mean - 1) * longer - (among_packets(want.net / most, want.net / most).mean - 1)
    by_classes = np.where(shaped, np.minimum(want.net, scenes.net_ceil), 0.0)
    others = by_classes.sum(axis=1, keepdims=True) - by_classes + np.where(shaped, unshaped, 0.0)
    frame = np.minimum(others / most, 1.0) / 2
    return TimeMoments(queue.mean + (queue.mean - 1) * (longer - 1) + itself + frame, queue.variance * longer**2)


def _class_rate(scenes: SceneBatch, want: Demands) -> Floats:
    """Mbit/s that a class of its own can send: its rate, or what the others leave, up to its ceiling (tc-htb(8)).

    The others take what they ask for, and no more than their own classes let through; of those served first they
    leave all but what they are sure of. Of its rate a class is sure as far as the line carries what every instance is.
    """
    most, sent = np.broadcast_to(link(scenes)[:, None], want.net.shape), np.minimum(want.net, scenes.net_ceil)
    shaped, first = demands.shaped(scenes), demands.first(scenes)
    rate = np.where(shaped & np.isfinite(scenes.net_rate), scenes.net_rate, 0.0)
    taken = np.minimum(sent, rate)
    kept = np.minimum(demands.kept_for_unshaped(shaped, most[:, 0]), np.where(shaped, 0.0, want.net).sum(axis=1))
    ahead = _of_others(np.where(first, taken, 0.0))
    behind = _of_others(np.where(first, 0.0, taken)) + kept[:, None]
    left = most - np.where(first, ahead + behind, _of_others(sent))
    own = rate * demands.within(rate + ahead, most)
    second = rate * demands.within(rate + behind, np.maximum(most - ahead, 0.0))
    return np.asarray(np.minimum(np.maximum(left, np.where(first, own, second)), np.minimum(scenes.net_ceil, most)))


def _of_others(amounts: Floats) -> Floats:
    """For each slot, the sum over all other slots; (S, N)."""
    return np.asarray(amounts.sum(axis=1, keepdims=True) - amounts)


def _left(scenes: SceneBatch, want: Demands) -> Floats:
    """The rate for all slots without a class, Mbit/s: what is not guaranteed to classes, or what is reserved; (S,
    1)."""
    shaped, most = demands.shaped(scenes), link(scenes)
    taken = np.where(shaped, np.minimum(want.net, scenes.net_rate), 0.0)
    ahead = np.where(demands.first(scenes), taken, 0.0).sum(axis=1)
    behind, kept = taken.sum(axis=1) - ahead, demands.kept_for_unshaped(shaped, most)
    left = np.maximum(most - ahead - behind, kept * demands.within(behind + kept, np.maximum(most - ahead, 0.0)))
    return np.asarray(np.maximum(left, 1e-3 * np.minimum(most, 1e6))[:, None])


def _full_queues(scenes: SceneBatch, want: Demands) -> TimeMoments:
    """Delay in ms behind a full queue, where more is sent than it can carry."""
    shaped = demands.shaped(scenes)
    sent = np.where(scenes.present & ~shaped, want.net, 0.0).sum(axis=1, keepdims=True)
    rate = np.where(shaped, _class_rate(scenes, want), _left(scenes, want))
    most = link(scenes)[:, None]
    rate = np.clip(rate, 1e-3 * np.minimum(most, 1e6), most)
    sent = np.where(shaped, want.net, sent)
    alone = want.net > most * (1 - 1e-9)  # one that fills the link alone has met that queue already
    full = (want.net > 0) & (sent > rate * (1 + 1e-9)) & ~alone
    return behind_backlog(np.where(full, BACKLOG_MBIT, 0.0), np.where(full, rate, 1.0)).times(np.array(1000.0))


def _at_shared(demand: Floats, limit: Floats, *, alone: bool) -> TimeMoments:
    """Residence time at a disk or memory that serves users in turn: each gets an equal share or what others leave."""
    one = np.ones_like(demand)
    if alone:
        return processor_sharing(demand, one, one)
    users = np.maximum((demand > 0).sum(axis=1, keepdims=True), 1)
    rate = np.maximum(1 - (demand.sum(axis=1, keepdims=True) - demand), 1 / users)
    return processor_sharing(demand, np.clip(np.minimum(rate, limit), 1e-3, 1.0), one)


def _saturating(scenes: SceneBatch, want: Demands, place: _Place) -> Bools:
    """Whether an instance saturates a resource alone (a closed loop: it waits for answers before it asks again)."""
    known = link(scenes)[:, None]
    fastest = np.nan_to_num(scenes.table.column("net_mbit")).max(initial=0.0)  # where no host says what its link does
    pace = np.where(np.isfinite(known), known, fastest if fastest > 0 else np.inf)
    servers = np.minimum(trait(scenes.kind, "driver_servers"), scenes.driver_cpus.sum(axis=1))[:, None]
    used = (place.own, want.driver / np.maximum(servers, 1.0), want.net / pace, want.disk, want.memory)
    busy = np.maximum.reduce(used) >= SATURATING
    megabytes = [np.nan_to_num(profile_column(scenes, key)) for key in ("disk_mb_s", "net_mbit")]
    waits_for_disk = megabytes[0] > megabytes[1] / 8  # programs read and write one after the other, however small
    return np.asarray((busy | waits_for_disk) & (scenes.load >= 1))
