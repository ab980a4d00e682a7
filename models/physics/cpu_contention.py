"""How bursty consumers share CPUs: how much of the CPU time that each wants it gets, and for how much of the time it
is short.

The state of a host is K, the number of vCPUs that want a CPU. K is taken for a birth-death process, whose steps up
and down are summed over the consumers as they are on average when K want one. For closed loops of one vCPU with equal
weights this is the product form of a machine-repair queue with processor sharing, which no distribution of bursts
changes (Baskett, Chandy, Muntz and Palacios, JACM 22, 1975); for one open loop it is M/M/1. Everything else is
approximated, and `research/contention` measures how well.

The functions here are written for single hosts, with plain loops. cpu_contention.c says the same in C, and is
`fastest` where it was compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.physics import compiled_contention

CLOSED, OPEN, HOG = 0, 1, 2
BELOW, ABOVE = 6, 10  # nodes below and above the number of CPUs at which consumers are looked at
POINTS = 2000.0  # of K at most; larger ranges are gone through in larger steps
NEVER = 30.0  # of log chance below the likeliest K
FREE = 1e9  # a level that holds no instance back
MOST_TILT = 1e6
HALVINGS = 30  # of a level
CLOSE = 1e-9  # of all CPUs: a total that far off is theirs
ALMOST = 1 - 1e-9
LEAST_CPUS = 1e-3  # driver threads that could use all CPUs still leave something
MOST_BUSY = 0.999  # of its vCPUs that a consumer wants, on average, unless it is a hog
LATE = 0.95 + 1e-9  # of the time: what comes after it is the worst twentieth


def closed_busy(vcpus: float, demand: float, tilt: float, most: float) -> tuple[float, float]:
    """The chance that a vCPU of a closed loop wants a CPU, and the speed that it then has.

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
    left, together = cpus, 0.0  # and exactly, once it is known who is satisfied
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


def unhindered(
    vcpus: Floats, demand: Floats, loop: Ints, run: Floats, want: Floats, short: Floats, fair: Floats
) -> float:
    """Fill in what N consumers have where no instance is in their way, as `share_cpus` does; returns what all ask
    for."""
    total = 0.0
    for at in range(len(vcpus)):
        asked = vcpus[at] if loop[at] == HOG else demand[at]
        run[at] = want[at] = fair[at] = asked
        short[at] = 0.0
        total += asked
    return total


def share_cpus(
    cpus: float,
    vcpus: Floats,
    demand: Floats,
    loop: Ints,
    weight: Floats,
    brief: Floats,
    astray: float,
    run: Floats,
    want: Floats,
    short: Floats,
    fair: Floats,
) -> float:
    """Fill in what N consumers run and want, in CPUs, for how long each is short, and its fair part; (N,).

    Consumers want `demand` CPUs alone (a hog all of its `vcpus`), and may use all `cpus`. `weight` decides who gets
    more where demand is never met, and `brief` where bursts meet. By `astray` a wait is longer while some CPU idles
    or has only a hog, for work does not find it at once. `fair` is the weighted max-min share of the means, in CPUs, as
    if there were no bursts. Returns the part of the time in which more vCPUs want a CPU than there are CPUs.

    `loop` and `brief` are changed: who is never served in the end, though closed loops yield, becomes a hog, and hogs
    heed weights in full, others the more the nearer they are to that.
    """
    count = len(vcpus)
    cpus = max(cpus, LEAST_CPUS)
    most = 0.0
    for at in range(count):
        most += vcpus[at]
    total = unhindered(vcpus, demand, loop, run, want, short, fair)
    if most <= cpus + 1e-9 or total + 6 * math.sqrt(total) + 2 < cpus:  # never, or as good as never
        return 0.0
    if total > cpus:  # whose work arrives faster than it is ever served always wants all its vCPUs
        level = fair_level(cpus, fair, weight)
        yields = piles_up = False
        for at in range(count):
            fair[at] = min(fair[at], level * weight[at])
            yields = yields or loop[at] == CLOSED
            piles_up = piles_up or (loop[at] == OPEN and demand[at] >= level * weight[at] * ALMOST)
        if yields and piles_up:
            level = level_of_backlog(cpus, vcpus, demand, loop, weight, level)
        for at in range(count):
            near = demand[at] / (level * weight[at])
            if loop[at] == OPEN and max(near, demand[at] / vcpus[at]) >= ALMOST:
                loop[at] = HOG
            elif loop[at] == OPEN and brief[at] != weight[at]:  # the longer its backlog, the less brief its bursts
                brief[at] *= (weight[at] / brief[at]) ** (near * near)
    hogs = 0.0
    for at in range(count):
        if loop[at] == HOG:
            brief[at] = weight[at]
            hogs += vcpus[at]
    over = bursts_meet(cpus, vcpus, demand, loop, brief, run, want, short)
    if cpus >= 2:
        go_astray(cpus, vcpus, loop, brief, astray * (1 - over), run, want)
    return 1.0 if hogs > cpus + 1e-9 else over


def go_astray(cpus: float, vcpus: Floats, loop: Ints, weight: Floats, astray: float, run: Floats, want: Floats) -> None:
    """Lengthen waits by `astray` times what they would be with one hog on each CPU, the heaviest.

    Further hogs are waited for as well, but work finds its CPU neither later nor sooner for them: on two CPUs, three
    hogs must not leave a burst more than two do.
    """
    heaviest = weigh = 0.0
    for at in range(len(vcpus)):
        if loop[at] == HOG:
            heaviest = max(heaviest, weight[at])
            weigh += vcpus[at] * weight[at]
    behind = max(weigh / cpus - heaviest, 0.0)  # on each CPU
    for at in range(len(vcpus)):
        if loop[at] != HOG:  # which always wants all its vCPUs, no more
            want[at] += astray * max(want[at] - run[at] * (1 + behind / weight[at]), 0.0)


def ordered(values: Floats) -> Ints:
    """Where `values` (N,) stand, from the least to the greatest; equal ones stay in order (insertion sort)."""
    order = np.zeros(len(values), np.int64)
    for at in range(len(values)):
        place = at
        while place > 0 and values[order[place - 1]] > values[at]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = at
    return order


def sets_of(cpus: float, allowed: Bools, sizes: Floats) -> tuple[Floats, Bools]:
    """The sets of CPUs of a host that an instance may not leave, from the smallest to the whole host: how many CPUs
    each has, (K,), and who may not leave it, (K, N).

    Each of N consumers may use some of P CPUs, `allowed` (N, P), which are `sizes` (N,).
    """
    count, most = allowed.shape
    whole = min(cpus, float(most))
    pinned = 0
    for at in range(count):
        pinned += sizes[at] < whole
    room, inside = np.zeros(pinned + 1), np.zeros((pinned + 1, count), np.bool_)
    kept = 0
    order = ordered(sizes)
    for step in range(pinned):
        one, new = order[step], True
        for other in range(count):
            within = sizes[other] <= sizes[one]
            cpu = 0
            while within and cpu < most:
                within = allowed[one, cpu] or not allowed[other, cpu]
                cpu += 1
            inside[kept, other] = within
            if within and other < one and sizes[other] == sizes[one]:  # their set was found before
                new = False
                break
        if new:
            room[kept] = sizes[one]
            kept += 1
    room[kept], inside[kept] = cpus, True
    return room[: kept + 1], inside[: kept + 1]


def share_host(
    room: Floats,
    inside: Bools,
    vcpus: Floats,
    demand: Floats,
    loop: Ints,
    weight: Floats,
    brief: Floats,
    astray: float,
    run: Floats,
    want: Floats,
    short: Floats,
    fair: Floats,
) -> float:
    """`share_cpus` where each consumer may use some of the CPUs only; `room` and `inside` as `sets_of` tells.

    Sets of CPUs are shared from the smallest to the whole host, each among those who may not leave it. Whoever never
    has its demand met in a set asks of larger ones for what it gets there. The scarcest set decides what each one
    has. That is max-min where sets are nested, and an approximation where they overlap otherwise.
    """
    asks, kind, size = demand.copy(), loop.copy(), vcpus.copy()
    unhindered(vcpus, demand, loop, run, want, short, fair)
    crowded = 0.0
    for one in range(len(room)):
        crowded = share_set(room[one], inside[one], size, asks, kind, weight, brief, astray, run, want, short, fair)
    return crowded


def share_set(
    cpus: float,
    inside: Bools,
    size: Floats,
    asks: Floats,
    kind: Ints,
    weight: Floats,
    brief: Floats,
    astray: float,
    run: Floats,
    want: Floats,
    short: Floats,
    fair: Floats,
) -> float:
    """Share one set of CPUs among the consumers `inside` it, and keep what is worse for each than what it has, (N,).

    `size`, `asks` and `kind` of those whose demand is never met there become what they get there.
    """
    who, count = np.zeros(len(inside), np.int64), 0
    for at in range(len(inside)):
        if inside[at]:
            who[count] = at
            count += 1
    vcpus, demand, heavy, light = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    ran, demanded, lacked, owed = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    loop = np.zeros(count, np.int64)
    for place in range(count):
        one = who[place]
        vcpus[place], demand[place], loop[place] = size[one], asks[one], kind[one]
        heavy[place], light[place] = weight[one], brief[one]
    crowded = share_cpus(cpus, vcpus, demand, loop, heavy, light, astray, ran, demanded, lacked, owed)
    for place in range(count):
        one = who[place]
        if ran[place] * want[one] < run[one] * demanded[place]:
            run[one], want[one] = ran[place], demanded[place]
        short[one] = max(short[one], lacked[place])
        fair[one] = min(fair[one], owed[place])
        asked = size[one] if kind[one] == HOG else asks[one]
        if owed[place] < asked * ALMOST:
            size[one] = asks[one] = max(owed[place], 1e-9)
            kind[one] = HOG
    return crowded


def moved(moves: Floats, moments: Floats, chances: Floats) -> Floats:
    """exp(`moves` z) at each z of `moments`, over its mean; (M, N)."""
    factors = np.empty((len(moments), len(moves)))
    for at in range(len(moves)):
        mean = 0.0
        for moment in range(len(moments)):
            factors[moment, at] = math.exp(moves[at] * moments[moment])
            mean += chances[moment] * factors[moment, at]
        for moment in range(len(moments)):
            factors[moment, at] /= mean
    return factors


def moment_factors(usual: Floats, moves: Floats, day: Floats, moments: Floats, chances: Floats) -> Floats:
    """How much each of N consumers of a host wants in M moments, from the calmest to the busiest one, as factors of its
    mean; (M, N), or (1, N) where no instance's demand changes.

    Beside the `day` (N, D), factors of the parts of a day, demand moves by exp(`moves` (N,) z) with what all want
    together, at z = `moments` (M,), which have `chances` (M,) of the time. All z of all parts of the day, by what all
    want then, are put together into M moments again: of each the mean is what every instance wants in it.
    """
    consumers, parts, count = len(usual), day.shape[1], len(moments)
    vary = move = False
    for at in range(consumers):
        move = move or moves[at] != 0
        for part in range(1, parts):
            vary = vary or day[at, part] != day[at, 0]
    if not (vary or move):
        return np.ones((1, consumers))
    beside = moved(moves, moments, chances)
    if not vary:
        return beside
    together = np.zeros(parts * count)
    for at in range(consumers):
        for part in range(parts):
            now = usual[at] * day[at, part]
            for moment in range(count):
                together[part * count + moment] += now * beside[moment, at]
    factors = np.zeros((count, consumers))
    into, left = 0, chances[0]
    for point in ordered(together):
        part, moment = point // count, point % count
        rest = chances[moment] / parts
        while rest > 0:
            taken = rest if into == count - 1 else min(rest, left)
            for at in range(consumers):
                factors[into, at] += taken / chances[into] * (day[at, part] * beside[moment, at])
            rest, left = rest - taken, left - taken
            if left <= 0 and into < count - 1:
                into += 1
                left = chances[into]
    return factors


def share_hosts(
    cpus: Floats,
    counts: Ints,
    vcpus: Floats,
    demand: Floats,
    growth: Floats,
    day: Floats,
    most: Floats,
    loop: Ints,
    weight: Floats,
    brief: Floats,
    astray: Floats,
    allowed: Bools,
    sizes: Floats,
    moments: Floats,
    chances: Floats,
    run: Floats,
    want: Floats,
    short: Floats,
    fair: Floats,
    asked: Floats,
    worst: Floats,
    crowded: Floats,
) -> None:
    """Fill in what the T consumers of S hosts `run` and `want`, how long they are `short`, their `fair` parts and what
    they `asked` for of what they may have, (T,), the mean of M moments; how much of what they want they get in the
    `worst` twentieth of the time; and how long each host is `crowded`, (S,).

    Consumers are in the order of their hosts, of which each has `counts` (S,); `astray` is of each host as well, (S,).
    In a moment a consumer's demand is `demand` (T,) times its factor then (`moment_factors`), and at most `most` (T,).
    """
    first = 0
    for host in range(len(cpus)):
        count = counts[host]
        own = slice(first, first + count)
        first += count
        room, inside = sets_of(cpus[host], allowed[own], sizes[own])
        usual, highest = demand[own], most[own]
        factors = moment_factors(usual, growth[own], day[own], moments, chances)
        now, ran, demanded = np.empty(count), np.empty(count), np.empty(count)
        lacked, owed = np.empty(count), np.empty(count)
        late_run, late_want = np.zeros(count), np.zeros(count)
        steady, passed = len(factors) == 1, 0.0
        for moment in range(len(factors)):
            part = 1.0 if steady else chances[moment]
            passed += part
            for at in range(count):
                now[at] = min(usual[at] * factors[moment, at], highest[at])
            crowded[host] += part * share_host(
                room, inside, vcpus[own], now, loop[own], weight[own], brief[own], astray[host], ran, demanded, lacked,
                owed,
            )  # fmt: skip
            for at in range(count):
                slot = own.start + at
                run[slot] += part * ran[at]
                want[slot] += part * demanded[at]
                short[slot] += part * lacked[at]
                fair[slot] += part * owed[at]
                asked[slot] += part * now[at]
                if passed > LATE:
                    late_run[at] += part * ran[at]
                    late_want[at] += part * demanded[at]
        for at in range(count):
            if late_want[at] > 0:
                worst[own.start + at] = late_run[at] / late_want[at]


fastest: Callable[..., None] = compiled_contention.load(Path(__file__).parent) or share_hosts
