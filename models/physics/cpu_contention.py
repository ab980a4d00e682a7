"""How bursty consumers share CPUs: how much of the CPU time that each wants it gets, and for how much of the time it
is short.

The state of a host is K, the number of vCPUs that want a CPU. K is taken for a birth-death process, whose steps up
and down are summed over the consumers as they are on average when K want one. For closed loops of one vCPU with equal
weights this is the product form of a machine-repair queue with processor sharing, which no distribution of bursts
changes (Baskett, Chandy, Muntz and Palacios, JACM 22, 1975); for one open loop it is M/M/1. Everything else is
approximated, and `research/contention` measures how well.

The functions here are written for single hosts in the part of Python that numba compiles. Without numba, or for few
hosts, they run as they are.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints

CLOSED, OPEN, HOG = 0, 1, 2
BELOW, ABOVE = 6, 10  # nodes below and above the number of CPUs at which consumers are looked at
POINTS = 2000.0  # of K at most; larger ranges are gone through in larger steps
NEVER = 30.0  # of log chance below the likeliest K
FREE = 1e9  # a level that holds nobody back
MOST_TILT = 1e6
ALMOST = 1 - 1e-9
MOST_BUSY = 0.999  # of its vCPUs that a consumer wants, on average, unless it is a hog
LATE = 0.95 + 1e-9  # of the time: what comes after it is the worst twentieth
CLOSED_ROUNDS = 6  # of the fixed point of a closed loop of several vCPUs; it halves its error in each


def closed_busy(vcpus: float, demand: float, tilt: float, most: float) -> tuple[float, float]:
    """The chance that a vCPU of a closed loop wants a CPU, and the speed that it then has."""
    each = min(demand / vcpus, MOST_BUSY)
    asks = tilt * each / (1 - each)
    speed, busy = 1.0, asks / (asks + 1)
    if vcpus > most:
        for _ in range(CLOSED_ROUNDS):
            speed = min(1.0, most / (1 + (vcpus - 1) * busy))
            busy = 0.5 * busy + 0.5 * asks / (asks + speed)
    return busy, speed


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
    return min(got, most), got * (1 - busy)


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
    low, high, growing = 1e-4, 1.0, True
    while high / low > 1 + 1e-7 and high < MOST_TILT:
        middle = high if growing else math.sqrt(low * high)
        total = hogs
        for at in range(len(vcpus)):
            if loop[at] != HOG:
                total += served(loop[at], vcpus[at], demand[at], weight[at], middle, FREE)[0]
        if total >= cpus:
            high, growing = middle, False
        elif growing:
            low, high = high, high * 2
        else:
            low = middle
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
    """Fill in each node's part of the time, (J,), from the rates of K there; returns that of K > `cpus`."""
    start = max(math.floor(ready[first] - hogs + 1e-6), 0.0) + hogs
    points = max(int(ready[-1] - start + 0.05) + 1, 1)
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
    left = first
    for point in range(last + 1):
        here, wanted = math.exp(chance[point] - highest), start + stride * point
        total += here
        if wanted > cpus + 1e-9:
            crowded += here
        while left < len(ready) - 2 and ready[left + 1] < wanted:
            left += 1
        gap = ready[left + 1] - ready[left]
        right = min(max((wanted - ready[left]) / gap, 0.0), 1.0) if gap > 1e-12 else 0.0
        part[left] += here * (1 - right)
        part[left + 1] += here * right
    for node in range(len(part)):
        part[node] /= total
    return crowded / total


def bursts_meet(
    cpus: float,
    vcpus: Floats,
    demand: Floats,
    kind: Ints,
    weight: Floats,
    run: Floats,
    want: Floats,
    short: Floats,
) -> float:
    """`share_cpus` where every open loop's work is served in the end: the steady state of the birth-death process."""
    count = len(vcpus)
    hogs = usual = 0.0
    for at in range(count):
        if kind[at] == HOG:
            hogs += vcpus[at]
        else:
            usual += demand[at]
    first, tilt = BELOW, 1e-4
    tilts, levels = np.zeros(BELOW + ABOVE), np.full(BELOW + ABOVE, FREE)
    top = (vcpus / weight).max()
    if hogs < cpus:
        first, tilt = 0, tilt_at_full(cpus, hogs, vcpus, demand, kind, weight)
        reach = (cpus - hogs - usual + 6 * math.sqrt(usual) + 2) / (cpus - hogs)
        reach = max(min(1 - 1e-3, reach), 0.02)
        for node in range(BELOW):
            tilts[node] = tilt * (1 - reach * (1 - node / (BELOW - 1.0)))
    else:  # they alone use all CPUs
        top = fair_level(cpus, np.where(kind == HOG, vcpus, 0.0), weight)
    high, low = math.log(top), math.log(fair_level(cpus, vcpus, weight))
    for step in range(ABOVE):
        along = (step + 0.02) / (ABOVE - 0.96)
        level = math.exp(high * (1 - along) + low * along)
        tilt = tilt_at_level(cpus, level, tilt, vcpus, demand, kind, weight)
        tilts[BELOW + step], levels[BELOW + step] = tilt, level
    nodes = BELOW + ABOVE
    wanted, got, lacking = np.zeros((nodes, count)), np.zeros((nodes, count)), np.zeros((nodes, count))
    ready, up, down = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    for node in range(first, nodes):
        for at in range(count):
            wants, gets, rises, falls, lacks = state(
                kind[at], vcpus[at], demand[at], weight[at], tilts[node], levels[node]
            )
            wanted[node, at], got[node, at], lacking[node, at] = wants, gets, lacks
            ready[node] += wants
            up[node] += rises
            down[node] += falls
        if node > first:
            ready[node] = max(ready[node], ready[node - 1])
    part = np.zeros(nodes)
    crowded = steady_state(cpus, hogs, ready, up, down, first, part)
    for at in range(count):
        run[at] = want[at] = short[at] = 0.0
        for node in range(first, nodes):
            run[at] += part[node] * got[node, at]
            want[at] += part[node] * wanted[node, at]
            short[at] += part[node] * lacking[node, at]
    conserve(cpus, hogs, vcpus, demand, kind, weight, run, want)
    return crowded


def conserve(
    cpus: float, hogs: float, vcpus: Floats, demand: Floats, kind: Ints, weight: Floats, run: Floats, want: Floats
) -> None:
    """Make what consumers run add up, each at the share that was found: nodes are means of what comes and goes.

    An open loop runs what arrives, a closed one what it asks for at that speed, and hogs that fill all CPUs the rest.
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
    if hogs < cpus:
        return
    asked = np.where(kind == HOG, vcpus, 0.0)
    level = fair_level(max(cpus - others, 0.0), asked, weight)
    for at in range(len(vcpus)):
        if kind[at] == HOG:
            run[at], want[at] = min(vcpus[at], level * weight[at]), vcpus[at]


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
    more where demand is never met, and `brief` where bursts meet. By `astray` a wait is longer while some CPU idles,
    for work does not find it at once. `fair` is the weighted max-min share of the means, in CPUs, as if there were no
    bursts. Returns the part of the time in which more vCPUs want a CPU than there are CPUs.
    """
    count = len(vcpus)
    asked = np.where(loop == HOG, vcpus, demand)
    total = asked.sum()
    run[:], want[:], short[:], fair[:] = asked, asked, 0.0, asked
    if vcpus.sum() <= cpus + 1e-9 or total + 6 * math.sqrt(total) + 2 < cpus:  # never, or as good as never
        return 0.0
    kind, force = loop.copy(), brief.copy()
    if total > cpus:  # whose work arrives faster than it is ever served always wants all its vCPUs
        level = fair_level(cpus, asked, weight)
        for at in range(count):
            fair[at] = min(asked[at], level * weight[at])
            if kind[at] == OPEN and demand[at] >= level * weight[at] * ALMOST:
                kind[at] = HOG
    for at in range(count):
        if kind[at] == HOG:
            force[at] = weight[at]
    crowded = bursts_meet(cpus, vcpus, demand, kind, force, run, want, short)
    if cpus >= 2:
        for at in range(count):
            if kind[at] != HOG:  # which always wants all its vCPUs, no more
                want[at] = run[at] + (want[at] - run[at]) * (1 + astray * (1 - crowded))
    return crowded


def share_host(
    cpus: float,
    vcpus: Floats,
    demand: Floats,
    loop: Ints,
    weight: Floats,
    brief: Floats,
    astray: float,
    allowed: Bools,
    run: Floats,
    want: Floats,
    short: Floats,
    fair: Floats,
) -> float:
    """`share_cpus` where each consumer may use some of the CPUs only, `allowed` (N, P).

    Sets of CPUs are shared from the smallest to the whole host, each among those who may not leave it. Whoever never
    has its demand met in a set asks of larger ones for what it gets there. The scarcest set decides what each one
    has. That is max-min where sets are nested, and an approximation where they overlap otherwise.
    """
    count = len(vcpus)
    sizes = np.zeros(count, np.int64)
    for at in range(count):
        sizes[at] = allowed[at].sum()
    asks, kind, size = demand.copy(), loop.copy(), vcpus.copy()
    alone = np.where(loop == HOG, vcpus, demand)
    run[:], want[:], short[:], fair[:] = alone, alone, 0.0, alone
    for at in np.argsort(sizes, kind="mergesort"):
        if sizes[at] >= allowed.shape[1] or sizes[at] >= cpus:
            break
        inside = np.zeros(count, np.bool_)
        seen = False
        for other in range(count):
            if sizes[other] <= sizes[at] and not (allowed[other] & ~allowed[at]).any():
                inside[other] = True
                if other < at and sizes[other] == sizes[at]:
                    seen = True
                    break
        if not seen:
            who = np.flatnonzero(inside)
            share_set(float(sizes[at]), who, size, asks, kind, weight, brief, astray, run, want, short, fair)
    everybody = np.arange(count)
    return share_set(cpus, everybody, size, asks, kind, weight, brief, astray, run, want, short, fair)


def share_set(
    cpus: float,
    who: Ints,
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
    """Share one set of CPUs among the consumers `who` (M,), and keep what is worse for each than what it has, (N,).

    `size`, `asks` and `kind` of those whose demand is never met there become what they get there.
    """
    ran, wanted, lacked, owed = np.empty(len(who)), np.empty(len(who)), np.empty(len(who)), np.empty(len(who))
    crowded = share_cpus(
        cpus, size[who], asks[who], kind[who], weight[who], brief[who], astray, ran, wanted, lacked, owed
    )
    for place in range(len(who)):
        one = who[place]
        if ran[place] * want[one] < run[one] * wanted[place]:
            run[one], want[one] = ran[place], wanted[place]
        short[one] = max(short[one], lacked[place])
        fair[one] = min(fair[one], owed[place])
        asked = size[one] if kind[one] == HOG else asks[one]
        if owed[place] < asked * ALMOST:
            size[one] = asks[one] = max(owed[place], 1e-9)
            kind[one] = HOG
    return crowded


def moment_factors(usual: Floats, moves: Floats, day: Floats, moments: Floats, chances: Floats) -> Floats:
    """How much each of N consumers of a host wants in M moments, from the calmest to the busiest one, as factors of its
    mean; (M, N), or (1, N) where nobody's demand changes.

    Beside the `day` (N, D), factors of the parts of a day, demand moves by exp(`moves` (N,) z) with what all want
    together, at z = `moments` (M,), which have `chances` (M,) of the time. All z of all parts of the day, by what all
    want then, are put together into M moments again: of each the mean is what everybody wants in it.
    """
    parts, count = day.shape[1], len(moments)
    vary = (day != day[:, :1]).any()
    if not (vary or moves.any()):
        return np.ones((1, len(usual)))
    beside = np.zeros((count, len(usual)))
    means = np.zeros(len(usual))
    for moment in range(count):
        beside[moment] = np.exp(moves * moments[moment])
        means += chances[moment] * beside[moment]
    beside /= means
    if not vary:
        return beside
    together = np.zeros(parts * count)
    for part in range(parts):
        now = usual * day[:, part]
        for moment in range(count):
            together[part * count + moment] = (now * beside[moment]).sum()
    factors = np.zeros((count, len(usual)))
    into, left = 0, chances[0]
    for point in np.argsort(together, kind="mergesort"):
        part, moment = point // count, point % count
        rest, factor = chances[moment] / parts, day[:, part] * beside[moment]
        while rest > 0:
            taken = rest if into == count - 1 else min(rest, left)
            factors[into] += taken / chances[into] * factor
            rest, left = rest - taken, left - taken
            if left <= 0 and into < count - 1:
                into += 1
                left = chances[into]
    return factors


def share_hosts(
    cpus: Floats,
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
    """Fill in (S, N) what consumers `run` and `want`, how long they are `short`, their `fair` parts and what they
    `asked` for of what they may have on S hosts, the mean of M moments; how much of what they want they get in the
    `worst` twentieth of the time; and how long each host is `crowded`, (S,).

    In a moment a consumer's demand is `demand` (S, N) times its factor then (`moment_factors`), and at most `most`
    (S, N). Slots whose `vcpus` are 0 are empty; `astray` is (S,).
    """
    for host in range(len(cpus)):
        who = np.flatnonzero(vcpus[host] > 0)
        if not len(who):
            continue
        size, kind, may = vcpus[host][who], loop[host][who], allowed[host][who]
        heavy, light = weight[host][who], brief[host][who]
        usual, moves, highest = demand[host][who], growth[host][who], most[host][who]
        factors = moment_factors(usual, moves, day[host][who], moments, chances)
        ran, wanted, lacked, owed = np.zeros(len(who)), np.zeros(len(who)), np.zeros(len(who)), np.zeros(len(who))
        late_run, late_want = np.zeros(len(who)), np.zeros(len(who))
        steady, passed = len(factors) == 1, 0.0
        for moment in range(len(factors)):
            part = 1.0 if steady else chances[moment]
            passed += part
            now = np.minimum(usual * factors[moment], highest)
            crowded[host] += part * share_host(
                cpus[host], size, now, kind, heavy, light, astray[host], may, ran, wanted, lacked, owed
            )
            for place in range(len(who)):
                at = who[place]
                run[host, at] += part * ran[place]
                want[host, at] += part * wanted[place]
                short[host, at] += part * lacked[place]
                fair[host, at] += part * owed[place]
                asked[host, at] += part * now[place]
                if passed > LATE:
                    late_run[place] += part * ran[place]
                    late_want[place] += part * wanted[place]
        for place in range(len(who)):
            if late_want[place] > 0:
                worst[host, who[place]] = late_run[place] / late_want[place]


_tried = threading.Event()
_compiling = threading.Lock()
_FUNCTIONS = (  # in the order in which they call each other
    "closed_busy", "served", "state", "fair_level", "between", "tilt_at_full", "tilt_at_level", "steady_state",
    "conserve", "bursts_meet", "share_cpus", "share_set", "share_host", "moment_factors", "share_hosts",
)  # fmt: skip
log = logging.getLogger(__name__)


def compile_all() -> None:
    """Replace the functions here by compiled ones, once; they stay as they are where they cannot be compiled."""
    with _compiling:
        if _tried.is_set():
            return
        _tried.set()
        plain = {name: globals()[name] for name in _FUNCTIONS}
        try:
            _replace(plain)
            _share_one_host()
        except Exception as error:  # noqa: BLE001 - a host may forbid it and still answers
            globals().update(plain)
            log.warning("predictions are slower, for they cannot be compiled here: %s", type(error).__name__)


def _replace(plain: Mapping[str, Callable[..., Any]]) -> None:
    import numba

    for name, function in plain.items():
        try:
            globals()[name] = numba.njit(cache=True, error_model="numpy", nogil=True)(function)
        except RuntimeError:  # there is nowhere to keep what was compiled: it is compiled in every process
            globals()[name] = numba.njit(error_model="numpy", nogil=True)(function)


def _share_one_host() -> None:
    ones, half, tenth = (np.full((1, 2), value) for value in (1.0, 0.5, 0.1))
    run, want, short, fair, asked, worst = (np.zeros((1, 2)) for _ in range(6))
    share_hosts(
        np.ones(1), ones, half, tenth, np.ones((1, 2, 2)), ones, np.full((1, 2), OPEN), ones, ones, np.zeros(1),
        np.ones((1, 2, 1), dtype=bool), np.array([-1.0, 1.0]), np.full(2, 0.5), run, want, short, fair, asked,
        worst, np.zeros(1),
    )  # fmt: skip
