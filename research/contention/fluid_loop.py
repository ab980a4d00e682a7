"""The fluid simulator's inner loop, compiled by numba.

Every runnable vCPU of a VM runs at the same speed. Speeds change at events only: a burst arrives, a burst is done, a
window ends. A VM's virtual time is the CPU time that each of its running vCPUs has had, so a burst is done when the
virtual time meets the tag that it was given at its start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

from models.arrays import Bools, Floats, Ints

try:
    from numba import njit
except ModuleNotFoundError as error:
    needs = "the fluid simulator needs numba, which only development installs: pip install 'cotenant[dev]'"
    raise ModuleNotFoundError(needs, name="numba") from error

P = ParamSpec("P")
R = TypeVar("R")

OPEN, CLOSED, HOG, PERIODIC = 0, 1, 2, 3
CONSTANT, EXPONENTIAL, HYPEREXPONENTIAL, LOGNORMAL = 0, 1, 2, 3
RUN, WAIT, SHORT, SHORT_95 = 0, 1, 2, 3
"""What is collected per window and VM."""
SLACK = 1e-7
"""CPUs: sums of rates that differ by less are equal."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """`function` compiled by numba at its first call; later processes find it compiled."""
    made: Callable[P, R] = njit(cache=True, error_model="numpy")(function)
    return made


@compiled
def draw_burst(rng: Any, mean_s: float, law: int, cv2: float) -> float:
    """CPU seconds of one burst with that mean and squared coefficient of variation (of the two heavier laws)."""
    if law == CONSTANT:
        return mean_s
    if law == HYPEREXPONENTIAL:  # two phases of balanced means
        first = 0.5 * (1.0 + math.sqrt((cv2 - 1.0) / (cv2 + 1.0)))
        chosen = first if rng.random() < first else 1.0 - first
        return mean_s * rng.standard_exponential() / (2.0 * chosen)  # type: ignore[no-any-return]
    if law == LOGNORMAL:
        sigma2 = math.log(1.0 + cv2)
        return mean_s * math.exp(math.sqrt(sigma2) * rng.standard_normal() - 0.5 * sigma2)
    return mean_s * rng.standard_exponential()  # type: ignore[no-any-return]


@compiled
def level(demanded: Floats, weight: Floats, some: Ints, count: int, cpus: float, guess: float) -> float:
    """The level at which min(wanted, weight * level) of the first `count` VMs in `some` add up to `cpus`.

    They want more than that together. Newton's method on a concave, piecewise linear function: after its first step it
    rises to the root and ends there, from whatever `guess`.
    """
    weights = 0.0
    for k in range(count):
        weights += weight[some[k]]
    lowest = cpus / weights
    current = guess if lowest < guess < math.inf else lowest
    for _ in range(2 * count + 2):
        full, limited = 0.0, 0.0
        for k in range(count):
            i = some[k]
            if weight[i] * current >= demanded[i]:
                full += demanded[i]
            else:
                limited += weight[i]
        following = max((cpus - full) / limited if limited > 0.0 else lowest, lowest)
        if abs(following - current) <= 1e-12 * current:
            return following
        current = following
    return current


@compiled
def share_by_sets(  # noqa: PLR0912
    demanded: Floats, weight: Floats, group: Ints, member: Bools, cpus: Floats, rate: Floats
) -> None:
    """Weighted max-min rates where VMs of group g may use the CPUs of their set only; written to `rate`.

    Exact: rates are feasible when every constraint f holds, that groups `member[f]` together get at most `cpus[f]`.
    The constraint that binds at the lowest level fixes its groups; then the others rise on.
    """
    groups = member.shape[1]
    fixed = np.zeros(groups, np.bool_)
    demand, taken = np.zeros(groups), np.zeros(groups)
    free, chosen, left = np.zeros(demanded.size, np.int64), np.zeros(demanded.size, np.int64), 0
    for i in range(demanded.size):
        rate[i] = demanded[i]
        if demanded[i] > 0.0:
            free[left] = i
            left += 1
    for _ in range(groups):
        current, binding = math.inf, -1
        for _step in range(member.shape[0] + 1):
            demand[:] = taken
            for k in range(left):
                i = free[k]
                demand[group[i]] += min(demanded[i], weight[i] * current)
            worst, excess = -1, SLACK
            for f in range(member.shape[0]):
                used = 0.0
                for g in range(groups):
                    if member[f, g]:
                        used += demand[g]
                if used - cpus[f] > excess:
                    excess, worst = used - cpus[f], f
            if worst < 0:
                break
            binding, room, count = worst, cpus[worst], 0
            for g in range(groups):
                if member[worst, g]:
                    room -= taken[g]
            for k in range(left):
                if member[worst, group[free[k]]]:
                    chosen[count] = free[k]
                    count += 1
            current = level(demanded, weight, chosen, count, max(room, 0.0), current)
        if binding < 0:
            return
        before, left = left, 0
        for g in range(groups):
            fixed[g] |= member[binding, g]
        for k in range(before):
            i = free[k]
            if fixed[group[i]]:
                rate[i] = min(demanded[i], weight[i] * current)
                taken[group[i]] += rate[i]
            else:
                free[left] = i
                left += 1


@compiled
def run_windows(  # noqa: PLR0912, PLR0915
    rng: Any,
    cpus: float,
    window_s: float,
    demand: Floats,
    kind: Ints,
    vcpus: Ints,
    weight: Floats,
    limit: Floats,
    burst_s: Floats,
    law: Ints,
    cv2: Floats,
    period_s: Floats,
    group: Ints,
    member: Bools,
    member_cpus: Floats,
    busy: Ints,
    backlog: Ints,
    tag: Floats,
    virtual: Floats,
    alarm: Floats,
    start_s: float,
) -> tuple[Floats, Floats, int]:
    """Go on from the state (`busy` to `alarm`, changed in place) for as many windows as `demand` has rows.

    demand: (W, n) CPUs of each VM in each window; tag: (n, most vCPUs), the first busy[i] are in use.
    Returns (W, 4, n) seconds of run, wait, short, short_95; (W,) seconds with more runnable vCPUs than CPUs; events.
    """
    windows, n = demand.shape
    collected = np.zeros((windows, 4, n))
    crowded = np.zeros(windows)
    pinned = member.shape[0] > 1 or member_cpus[0] < cpus
    demanded, rate, since = np.zeros(n), np.zeros(n), np.full(n, start_s)
    earliest, done = np.full(n, math.inf), np.full(n, math.inf)
    fresh, arrivals, size_s, think_s = np.zeros(n), np.zeros(n), burst_s.copy(), np.zeros(n)
    now, current, contended, events = start_s, 0.0, True, 0
    running, active, place, count = 0, np.zeros(n, np.int64), np.full(n, -1), 0
    mine = np.zeros((n, 4))
    for i in range(n):
        if kind[i] == HOG and busy[i] == 0:
            busy[i] = vcpus[i]
            tag[i, : vcpus[i]] = math.inf
        if busy[i] > 0:
            active[count], place[i] = i, count
            count += 1
        running += busy[i]
        demanded[i] = min(float(busy[i]), limit[i])
        for k in range(busy[i]):
            earliest[i] = min(earliest[i], tag[i, k])
    changed = -1  # -1: every instance
    for window in range(windows):
        end = start_s + (window + 1) * window_s
        rates, rung, alarm_at = 0.0, -1, math.inf
        for i in range(n):
            want = min(demand[window, i], float(vcpus[i]))
            if kind[i] == OPEN:
                rates += want / burst_s[i]
            elif kind[i] == CLOSED:
                think_s[i] = burst_s[i] * max(vcpus[i] / max(want, 1e-9) - 1.0, 1e-3)
                alarm[i] = _next_thought(rng, now, think_s[i], vcpus[i] - busy[i])
            elif kind[i] == PERIODIC:
                size_s[i] = want * period_s[i] / vcpus[i]
            arrivals[i] = rates
        arrival = now + rng.standard_exponential() / rates if rates > 0.0 else math.inf
        while True:
            # 1. speeds, from what is runnable now
            if changed >= -1:
                total = 0.0
                for a in range(count):
                    total += demanded[active[a]]
                was, contended = contended, total > cpus + SLACK or pinned
                all_change = contended or was or changed < 0
                if pinned:
                    share_by_sets(demanded, weight, group, member, member_cpus, fresh)
                elif contended:
                    current = level(demanded, weight, active, count, cpus, current)
                if changed >= 0 and busy[changed] == 0:
                    rate[changed], done[changed] = 0.0, math.inf
                for a in range(count if all_change else 1):
                    i = active[a] if all_change else changed
                    if pinned:
                        speed = fresh[i]
                    elif contended:
                        speed = min(demanded[i], weight[i] * current)
                    else:
                        speed = demanded[i]
                    if speed == rate[i] and i != changed:
                        continue
                    if i != changed:
                        _collect(i, now, mine, busy, rate, since, virtual)
                    rate[i] = speed
                    done[i] = math.inf
                    if speed > 0.0 and earliest[i] < math.inf:
                        done[i] = now + max(earliest[i] - virtual[i], 0.0) * busy[i] / speed
            # 2. what comes next
            finished, finish = -1, math.inf
            for a in range(count):
                if done[active[a]] < finish:
                    finished = active[a]
                    finish = done[finished]
            if rung < 0:
                alarm_at = math.inf
                for i in range(n):
                    if alarm[i] < alarm_at:
                        rung, alarm_at = i, alarm[i]
            then = min(finish, arrival, alarm_at, end)
            if running > cpus:
                crowded[window] += then - now
            now = then
            events += 1
            changed = -2  # -2: no instance
            if then == end:
                break
            # 3. do it
            if then == finish:
                changed = finished
                _collect(changed, now, mine, busy, rate, since, virtual)
                last = busy[changed] - 1
                slot = 0
                for k in range(1, last + 1):
                    if tag[changed, k] < tag[changed, slot]:
                        slot = k
                if backlog[changed] > 0:
                    backlog[changed] -= 1
                    work = draw_burst(rng, size_s[changed], law[changed], cv2[changed])
                    tag[changed, slot] = virtual[changed] + work
                else:
                    tag[changed, slot] = tag[changed, last]
                    busy[changed] -= 1
                    running -= 1
            else:
                if then == alarm_at:
                    changed, come = rung, 1
                    if kind[rung] == PERIODIC:
                        come = vcpus[rung]
                        alarm[rung] += period_s[rung]
                        rung = -1
                else:
                    arrival = now + rng.standard_exponential() / rates
                    changed, come = np.searchsorted(arrivals, rng.random() * rates, side="right"), 1
                    changed = min(changed, n - 1)
                _collect(changed, now, mine, busy, rate, since, virtual)
                for _ in range(come):
                    if busy[changed] == vcpus[changed]:
                        backlog[changed] += 1
                    else:
                        work = draw_burst(rng, size_s[changed], law[changed], cv2[changed])
                        tag[changed, busy[changed]] = virtual[changed] + work
                        busy[changed] += 1
                        running += 1
            if kind[changed] == CLOSED:
                alarm[changed] = _next_thought(rng, now, think_s[changed], vcpus[changed] - busy[changed])
                if changed == rung or alarm[changed] < alarm_at:
                    rung = -1
            if busy[changed] > 0 and place[changed] < 0:
                active[count], place[changed] = changed, count
                count += 1
            elif busy[changed] == 0 and place[changed] >= 0:
                count -= 1
                moved = active[count]
                active[place[changed]], place[moved] = moved, place[changed]
                place[changed] = -1
            demanded[changed] = min(float(busy[changed]), limit[changed])
            earliest[changed] = math.inf
            for k in range(busy[changed]):
                earliest[changed] = min(earliest[changed], tag[changed, k])
        for i in range(n):
            _collect(i, now, mine, busy, rate, since, virtual)
            collected[window, :, i] = mine[i]
        mine[:] = 0.0
    return collected, crowded, events


@compiled
def _next_thought(rng: Any, now: float, think_s: float, thinking: int) -> float:
    """When the first of the vCPUs that think asks for a burst."""
    if thinking <= 0:
        return math.inf
    return now + rng.standard_exponential() * think_s / thinking  # type: ignore[no-any-return]


@compiled
def _collect(i: int, now: float, mine: Floats, busy: Ints, rate: Floats, since: Floats, virtual: Floats) -> None:
    """Count what VM i got since its speed last changed."""
    length = now - since[i]
    since[i] = now
    if length <= 0.0 or busy[i] == 0:
        return
    virtual[i] += length * rate[i] / busy[i]
    mine[i, RUN] += length * rate[i]
    mine[i, WAIT] += length * (busy[i] - rate[i])
    if rate[i] < busy[i] - SLACK:
        mine[i, SHORT] += length
        if rate[i] < 0.95 * busy[i]:
            mine[i, SHORT_95] += length
