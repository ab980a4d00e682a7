"""How bursty consumers of one set of CPUs meet: a birth-death process of the vCPUs that want a CPU.

The state of a host is K, the number of vCPUs that want a CPU. K is taken for a birth-death process, whose steps up
and down are summed over the consumers as they are on average when K want one. For closed loops of one vCPU with equal
weights this is the product form of a machine-repair queue with processor sharing, which no distribution of bursts
changes (Baskett, Chandy, Muntz and Palacios, JACM 22, 1975); for one open loop it is M/M/1. Everything else is
approximated, and `research/contention` measures how well.

The functions are written for single hosts, with plain loops, and stand in C in cpu_contention.c.
"""

from __future__ import annotations

import math

import numpy as np

from models.arrays import Floats, Ints

CLOSED, OPEN, HOG = 0, 1, 2
BELOW, ABOVE = 6, 10  # nodes below and above the number of CPUs at which consumers are looked at
POINTS = 2000.0  # of K at most; larger ranges are gone through in larger steps
NEVER = 30.0  # of log chance below the likeliest K
FREE = 1e9  # a level that holds no instance back
MOST_TILT = 1e6
HALVINGS = 30  # of a level
CLOSE = 1e-9  # of all CPUs: a total that far off is theirs
ALMOST = 1 - 1e-9
MOST_BUSY = 0.999  # of its vCPUs that a consumer demands, on average, unless it is a hog


def closed_busy(vcpus: float, demand: float, tilt: float, most: float) -> tuple[float, float]:
    """The chance that a vCPU of a closed loop demands a CPU, and the speed that it then has.

    At a speed below 1, `most` CPUs are shared with the other vCPUs that want one: chance and speed are the root of a
    quadratic equation.
    """
    each = min(demand / vcpus, MOST_BUSY)
    asks = tilt * each / (1 - each)
    busy = asks / (asks + 1)
    if most >= vcpus or most >= 1 + (vcpus - 1) * busy:
        return busy, 1.0
    others = asks * (vcpus - 1)
    half = 0.5 * (asks + most - others)
    busy = asks / (half + math.sqrt(half * half + others * asks))
    return busy, most / (1 + (vcpus - 1) * busy)


def served(loop: int, vcpus: float, demand: float, weight: float, tilt: float, level: float) -> tuple[float, float]:
    """CPUs that a consumer is served on average at a level of CPUs per weight, and how that grows with log `tilt`.

    `tilt` multiplies the rate at which its work arrives.
    """
    most = min(vcpus, level * weight)
    if loop == HOG:
        return most, 0.0
    if loop == OPEN:
        asks = tilt * demand
        return (asks, asks) if asks < most else (most, 0.0)
    busy, speed = closed_busy(vcpus, demand, tilt, most)
    got = vcpus * busy * speed
    return min(got, most), got * (1 - busy) / (1 + (vcpus - 1) * busy * busy if speed < 1 else 1)


def state(
    loop: int, vcpus: float, demand: float, weight: float, tilt: float, level: float
) -> tuple[float, float, float, float, float]:
    """Of one consumer: vCPUs that want a CPU, CPUs served, rates of K up and down by it, and the chance that it is
    short.

    An open loop is a queue of `vcpus` servers that together get at most `most` CPUs; how likely all of them are busy is
    Sakasegawa's approximation (Annals of the Institute of Statistical Mathematics 29, 1977), which is exact for one.
    """
    most = min(vcpus, level * weight)
    held_back = most < vcpus * (1 - 1e-12)
    if loop == HOG:
        return vcpus, most, 0.0, 0.0, 1.0 if held_back else 0.0
    if loop == OPEN:
        asks = tilt * demand
        if asks >= most * ALMOST:
            return vcpus, most, 0.0, max(most - demand, 0.0), 1.0 if held_back else 0.0
        load = asks / most
        short = 0.0
        if not held_back:
            wants = asks
            full = load ** (math.sqrt(2 * (vcpus + 1)) - 1)
        elif most >= 1:
            queue, rest = load ** (math.sqrt(2 * (most + 1)) - 1), load ** (vcpus - most)
            wants = asks + queue * load * (1 - rest) / (1 - load)
            full, short = queue * rest, queue * load ** (math.floor(most) + 1 - most)
        else:
            full = load**vcpus
            wants = load * (1 - full) / (1 - load)
            short = load
        return wants, asks, demand * (1 - full), max(asks - demand * full, 0.0), short
    busy, speed = closed_busy(vcpus, demand, tilt, most)
    each = min(demand / vcpus, MOST_BUSY)
    wants = vcpus * busy
    got = min(wants * speed, most)
    short = 0.0
    if held_back and most < 1:
        short = 1 - (1 - busy) ** vcpus
    elif held_back:
        over = (math.floor(most) + 0.5 - wants) / math.sqrt(2 * max(wants * (1 - busy), 1e-9))
        short = 0.5 * math.erfc(over)
    return wants, got, (vcpus - wants) * each / (1 - each), got, short


def fair_level(cpus: float, asked: Floats, weight: Floats) -> float:
    """The CPUs per weight at which `cpus` are used up, where more is asked (weighted max-min fairness)."""
    low = high = 0.0
    for at in range(len(asked)):
        high = max(high, asked[at] / weight[at])
    for _ in range(44):
        middle = 0.5 * (low + high)
        total = 0.0
        for at in range(len(asked)):
            total += min(asked[at], middle * weight[at])
        if total > cpus:
            high = middle
        else:
            low = middle
    left, together = cpus, 0.0  # and exactly, once it is known which are satisfied
    for at in range(len(asked)):
        if asked[at] <= low * weight[at]:
            left -= asked[at]
        else:
            together += weight[at]
    return left / together if together > 0 else high


def level_of_backlog(cpus: float, vcpus: Floats, demand: Floats, loop: Ints, weight: Floats, low: float) -> float:
    """The CPUs per weight, at least `low`, at which `cpus` are used up, where closed loops ask for less the slower they
    are: so much every open loop gets that always has work."""
    high = low
    for at in range(len(vcpus)):
        high = max(high, vcpus[at] / weight[at])
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        total = 0.0
        for at in range(len(vcpus)):
            total += served(loop[at], vcpus[at], demand[at], weight[at], 1.0, middle)[0]
        if total > cpus:
            high = middle
        else:
            low = middle
    return low


def between(at: float, places: Floats, values: Floats, first: int) -> float:
    """`values` at a place between ordered `places` from number `first` on, linear between them, constant beyond."""
    if at <= places[first]:
        return float(values[first])
    for right in range(first + 1, len(places)):
        if at <= places[right]:
            gap = places[right] - places[right - 1]
            if gap < 1e-12:
                return float(values[right])
            part = (at - places[right - 1]) / gap
            return float(values[right - 1] * (1 - part) + values[right] * part)
    return float(values[-1])


def tilt_at_full(cpus: float, hogs: float, vcpus: Floats, demand: Floats, loop: Ints, weight: Floats) -> float:
    """By how much work would have to arrive faster for as many vCPUs to want a CPU as there are CPUs."""
    low, high, tilt = 1e-4, 2 * MOST_TILT, 1.0
    while high / low > 1 + 1e-7 and low < MOST_TILT:  # Newton's method, halving where that leaves what is known
        total, slope = hogs, 0.0
        for at in range(len(vcpus)):
            if loop[at] != HOG:
                got, grows = served(loop[at], vcpus[at], demand[at], weight[at], tilt, FREE)
                total += got
                slope += grows
        if abs(cpus - total) <= CLOSE * cpus:
            return tilt
        low, high = (low, tilt) if total > cpus else (tilt, high)
        further = tilt * math.exp(max(min((cpus - total) / max(slope, 1e-9), 2.0), -2.0))
        tilt = further if low < further < high else math.sqrt(low * high)
    return high


def tilt_at_level(
    cpus: float, level: float, tilt: float, vcpus: Floats, demand: Floats, loop: Ints, weight: Floats
) -> float:
    """The least tilt, from `tilt` on, at which consumers that are held to `level` use all CPUs (Newton's method)."""
    for _ in range(30):
        total = slope = 0.0
        for at in range(len(vcpus)):
            got, grows = served(loop[at], vcpus[at], demand[at], weight[at], tilt, level)
            total += got
            slope += grows
        if total >= cpus * (1 - 1e-7) or tilt > MOST_TILT:
            break
        tilt *= math.exp(min((cpus - total) / max(slope, 1e-9), 1.0))
    return tilt


def steady_state(cpus: float, hogs: float, ready: Floats, up: Floats, down: Floats, first: int, part: Floats) -> float:
    """Fill in each node's part of the time, (J,), from the rates of K there; returns that of K above both
    `cpus` and `hogs`."""
    start = max(math.floor(ready[first] - hogs + 1e-6), 0.0) + hogs
    points = max(int(ready[-1] - start + 0.5) + 1, 1)  # the last node is a little short of all that there are
    stride = max(1.0, points / POINTS)
    chance = np.zeros(int(points / stride) + 1)
    highest, last = 0.0, 0
    for point in range(1, len(chance)):
        if stride * point > points - 1 + 1e-9:
            break
        middle = start + stride * (point - 0.5)
        rise = math.log(max(between(middle - 0.5, ready, up, first), 1e-12))
        fall = math.log(max(between(middle + 0.5, ready, down, first), 1e-12))
        chance[point] = chance[point - 1] + stride * (rise - fall)
        last = point
        highest = max(highest, chance[point])
        if chance[point] < highest - NEVER:  # rates of K only ever turn against it
            break
    total = crowded = 0.0
    left, most = first, max(cpus, hogs)
    for point in range(last + 1):
        here, demanded = math.exp(chance[point] - highest), start + stride * point
        total += here
        if demanded > most + 1e-9:
            crowded += here
        while left < len(ready) - 2 and ready[left + 1] < demanded:
            left += 1
        gap = ready[left + 1] - ready[left]
        right = min(max((demanded - ready[left]) / gap, 0.0), 1.0) if gap > 1e-12 else 0.0
        part[left] += here * (1 - right)
        part[left + 1] += here * right
    for node in range(len(part)):
        part[node] /= total
    return crowded / total


def bursts_meet(
    cpus: float, vcpus: Floats, demand: Floats, kind: Ints, weight: Floats, run: Floats, want: Floats, short: Floats
) -> float:
    """`share_cpus` where every open loop's work is served in the end: the steady state of the birth-death process.

    Returns the part of the time in which more vCPUs want a CPU than there are CPUs, and than hogs have.
    """
    count, nodes = len(vcpus), BELOW + ABOVE
    hogs = usual = top = 0.0
    of_hogs = np.zeros(count)
    for at in range(count):
        if kind[at] == HOG:
            hogs += vcpus[at]
            of_hogs[at] = vcpus[at]
        else:
            usual += demand[at]
        top = max(top, vcpus[at] / weight[at])
    first, tilt = BELOW, 1e-4
    tilts, levels = np.zeros(nodes), np.zeros(nodes)
    if hogs < cpus:
        first, tilt = 0, tilt_at_full(cpus, hogs, vcpus, demand, kind, weight)
        reach = (cpus - hogs - usual + 6 * math.sqrt(usual) + 2) / (cpus - hogs)
        reach = max(min(1 - 1e-3, reach), 0.02)
        for node in range(BELOW):
            tilts[node], levels[node] = tilt * (1 - reach * (1 - node / (BELOW - 1.0))), FREE
    else:  # they alone use all CPUs
        top = fair_level(cpus, of_hogs, weight)
    high, low = math.log(top), math.log(fair_level(cpus, vcpus, weight))
    for step in range(ABOVE):
        along = (step + 0.02) / (ABOVE - 0.96)
        level = math.exp(high * (1 - along) + low * along)
        tilt = tilt_at_level(cpus, level, tilt, vcpus, demand, kind, weight)
        tilts[BELOW + step], levels[BELOW + step] = tilt, level
    demanded, got, lacking = np.zeros((nodes, count)), np.zeros((nodes, count)), np.zeros((nodes, count))
    ready, up, down = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    for node in range(first, nodes):
        for at in range(count):
            wants, gets, rises, falls, lacks = state(
                kind[at], vcpus[at], demand[at], weight[at], tilts[node], levels[node]
            )
            demanded[node, at], got[node, at], lacking[node, at] = wants, gets, lacks
            ready[node] += wants
            up[node] += rises
            down[node] += falls
        if node > first:
            ready[node] = max(ready[node], ready[node - 1])
    part = np.zeros(nodes)
    over = steady_state(cpus, hogs, ready, up, down, first, part)
    average(part, got, run)
    average(part, demanded, want)
    average(part, lacking, short)
    left = conserve(cpus, vcpus, demand, kind, run, want)
    if hogs >= cpus:
        share_rest(left, of_hogs, weight, run, want)
    return over


def average(part: Floats, values: Floats, found: Floats) -> None:
    """Fill in (N,) the mean of `values` (K, N) over nodes, which have `part` (K,) of the time."""
    for at in range(len(found)):
        found[at] = 0.0
        for node in range(len(part)):
            found[at] += part[node] * values[node, at]


def share_rest(cpus: float, of_hogs: Floats, weight: Floats, run: Floats, want: Floats) -> None:
    """Share what CPUs are left among hogs, whose vCPUs are `of_hogs` (N,), 0 for others."""
    level = fair_level(cpus, of_hogs, weight)
    for at in range(len(of_hogs)):
        if of_hogs[at] > 0:
            run[at], want[at] = min(of_hogs[at], level * weight[at]), of_hogs[at]


def conserve(cpus: float, vcpus: Floats, demand: Floats, kind: Ints, run: Floats, want: Floats) -> float:
    """Make what consumers run add up, each at the share that was found: nodes are means of what comes and goes.

    An open loop runs what arrives, a closed one what it asks for at that speed. Returns the CPUs left for hogs.
    """
    others = 0.0
    for at in range(len(vcpus)):
        if kind[at] == HOG or want[at] <= 0:
            continue
        share = run[at] / want[at]
        if kind[at] == OPEN:
            run[at] = demand[at]
        else:
            each = min(demand[at] / vcpus[at], MOST_BUSY)
            asks = each / (1 - each)
            run[at] = vcpus[at] * share * asks / (asks + share)
        want[at] = run[at] / share
        others += run[at]
    return max(cpus - others, 0.0)
