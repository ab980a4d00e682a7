"""How bursty consumers share CPUs: how much of the CPU time that each demands it gets, and for how much of the time it
is short; on sets of CPUs and over moments of demand (`cpu_bursts` has what happens within one set).

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
from models.physics.cpu_bursts import ALMOST, CLOSED, HOG, OPEN, bursts_meet, fair_level, level_of_backlog

LEAST_CPUS = 1e-3  # driver threads that could use all CPUs still leave something
LATE = 0.95 + 1e-9  # of the time: what comes after it is the worst twentieth


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

    Consumers want `demand` CPUs alone (a hog all of its `vcpus`), and may use all `cpus`. `weight` decides which gets
    more where demand is never met, and `brief` where bursts meet. By `astray` a wait is longer while some CPU idles
    or has only a hog, for work does not find it at once. `fair` is the weighted max-min share of the means, in CPUs, as
    if there were no bursts. Returns the part of the time in which more vCPUs want a CPU than there are CPUs.

    `loop` and `brief` are changed: one that is never served in the end, though closed loops yield, becomes a hog, and
    hogs heed weights in full, others the more the nearer they are to that.
    """
    count = len(vcpus)
    cpus = max(cpus, LEAST_CPUS)
    most = 0.0
    for at in range(count):
        most += vcpus[at]
    total = unhindered(vcpus, demand, loop, run, want, short, fair)
    if most <= cpus + 1e-9 or total + 6 * math.sqrt(total) + 2 < cpus:  # never, or as good as never
        return 0.0
    if total > cpus:  # whose work arrives faster than it is ever served always demands all its vCPUs
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
        if loop[at] != HOG:  # which always demands all its vCPUs, no more
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
    each has, (K,), and which may not leave it, (K, N).

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
    """`share_cpus` where each consumer may use some of the CPUs only; `room` and `inside` as `sets_of` gives them.

    Sets of CPUs are shared from the smallest to the whole host, each among those that may not leave it. One that never
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
    """The demand of each of N consumers of a host in M moments, from the calmest to the busiest one, as factors of its
    mean; (M, N), or (1, N) where no instance's demand changes.

    Beside the `day` (N, D), factors of the parts of a day, demand moves by exp(`moves` (N,) z) with what all want
    together, at z = `moments` (M,), which have `chances` (M,) of the time. All z of all parts of the day, by what all
    want then, are put together into M moments again: of each the mean is what every instance demands in it.
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
