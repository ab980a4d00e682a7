"""The inner loop of the simulator with slices: what a kernel does that a fluid share leaves out.

Each CPU has a queue and runs one vCPU at a time, for a slice or until its burst is done; then comes, of those that are
owed time (virtual time not above the queue's mean), the one with the earliest virtual deadline, as in EEVDF. A VM's
weight is divided among its runnable vCPUs. One that wakes goes to an idle CPU, else to the shortest queue that it may
use, and waits for the running slice's end. A CPU that becomes idle takes from the longest queue, and every
`BALANCE_S` the vCPU that is owed most goes from the longest queue to the shortest: three on two CPUs take turns, though
not exactly evenly, for time that is owed counts within a queue only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from research.contention.fluid_loop import (
    CLOSED,
    HOG,
    OPEN,
    PERIODIC,
    RUN,
    SHORT,
    SHORT_95,
    WAIT,
    compiled,
    draw_burst,
)

BALANCE_S = 0.004


@compiled
def run_slices(  # noqa: PLR0912, PLR0915
    rng: Any,
    slice_s: float,
    window_s: float,
    demand: Floats,
    kind: Ints,
    first: Ints,
    weight: Floats,
    burst_s: Floats,
    law: Ints,
    cv2: Floats,
    period_s: Floats,
    allowed: Bools,
) -> tuple[Floats, Floats]:
    """All windows of `demand` (W, n), from an empty host.

    first: (n + 1,) the number of each VM's first vCPU; allowed: (n, C) the CPUs that it may use.
    Returns (W, 4, n) seconds of run, wait, short, short_95 and (W,) seconds with more runnable vCPUs than CPUs.
    """
    windows, n = demand.shape
    cpus, threads = allowed.shape[1], first[n]
    collected, crowded = np.zeros((windows, 4, n)), np.zeros(windows)
    owner = np.zeros(threads, np.int64)
    for i in range(n):
        owner[first[i] : first[i + 1]] = i
    where = np.full(threads, -1)  # the CPU in whose queue a vCPU is, running or not; -1: it wants nothing
    left, spent = np.zeros(threads), np.zeros(threads)
    current, until = np.full(cpus, -1), np.full(cpus, math.inf)
    queued, clock = np.zeros(cpus, np.int64), np.zeros(cpus)
    runnable, running, backlog = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    size_s, think_s, alarm, arrivals = burst_s.copy(), np.zeros(n), np.full(n, math.inf), np.zeros(n)
    now, total, balance = 0.0, 0, BALANCE_S
    for i in range(n):
        if kind[i] == PERIODIC:
            alarm[i] = rng.random() * period_s[i]
        elif kind[i] == HOG:
            backlog[i] = first[i + 1] - first[i]
    for window in range(windows):
        end, rates = (window + 1) * window_s, 0.0
        for i in range(n):
            vcpus = float(first[i + 1] - first[i])
            want = min(demand[window, i], vcpus)
            if kind[i] == OPEN:
                rates += want / burst_s[i]
            elif kind[i] == CLOSED:
                think_s[i] = burst_s[i] * max(vcpus / max(want, 1e-9) - 1.0, 1e-3)
                alarm[i] = _thought(rng, now, think_s[i], first[i + 1] - first[i] - runnable[i])
            elif kind[i] == PERIODIC:
                size_s[i] = want * period_s[i] / vcpus
            arrivals[i] = rates
        arrival = now + rng.standard_exponential() / rates if rates > 0.0 else math.inf
        while True:
            # bursts that wait go to vCPUs of their VM that want nothing
            for i in range(n):
                if backlog[i] > 0 and runnable[i] < first[i + 1] - first[i]:
                    for t in range(first[i], first[i + 1]):
                        if where[t] < 0 and backlog[i] > 0:
                            backlog[i] -= 1
                            left[t] = math.inf if kind[i] == HOG else draw_burst(rng, size_s[i], law[i], cv2[i])
                            runnable[i] += 1
                            total += 1
                            cpu = _place(allowed[i], queued)
                            where[t] = cpu
                            spent[t] = clock[cpu]
                            queued[cpu] += 1
            # a CPU without a running vCPU takes its own next one, or another's
            for cpu in range(cpus):
                if current[cpu] >= 0:
                    continue
                if queued[cpu] == 0:
                    _steal(cpu, allowed, owner, where, spent, queued, current, clock)
                t = _next(cpu, where, owner, spent, weight, runnable, slice_s)
                if t >= 0:
                    current[cpu] = t
                    running[owner[t]] += 1
                    until[cpu] = now + min(slice_s, left[t])
            then, at = min(arrival, balance, end), -1
            for cpu in range(cpus):
                if until[cpu] < then:
                    then, at = until[cpu], cpu
            rung = -1
            for i in range(n):
                if alarm[i] < then:
                    then, at, rung = alarm[i], -1, i
            length = then - now
            for i in range(n):
                if runnable[i] > 0:
                    collected[window, RUN, i] += length * running[i]
                    collected[window, WAIT, i] += length * (runnable[i] - running[i])
                    if running[i] < runnable[i]:
                        collected[window, SHORT, i] += length
                        if running[i] < 0.95 * runnable[i]:
                            collected[window, SHORT_95, i] += length
            if total > cpus:
                crowded[window] += length
            for cpu in range(cpus):
                t = current[cpu]
                if t >= 0:
                    left[t] -= length
                    spent[t] += length * runnable[owner[t]] / weight[owner[t]]
                    clock[cpu] = _mean(cpu, where, spent, queued[cpu])
            now = then
            if at >= 0:
                t = current[at]
                i = owner[t]
                current[at], until[at] = -1, math.inf
                running[i] -= 1
                if left[t] <= 1e-12:
                    where[t] = -1
                    queued[at] -= 1
                    runnable[i] -= 1
                    total -= 1
                    if kind[i] == CLOSED:
                        alarm[i] = _thought(rng, now, think_s[i], first[i + 1] - first[i] - runnable[i])
            elif rung >= 0:
                if kind[rung] == PERIODIC:
                    backlog[rung] += first[rung + 1] - first[rung]
                    alarm[rung] += period_s[rung]
                else:
                    backlog[rung] += 1
                    alarm[rung] = _thought(rng, now, think_s[rung], first[rung + 1] - first[rung] - runnable[rung] - 1)
            elif now == end:
                break
            elif now == balance:
                balance += BALANCE_S
                _steal(int(np.argmin(queued)), allowed, owner, where, spent, queued, current, clock)
            else:
                arrival = now + rng.standard_exponential() / rates
                i = min(np.searchsorted(arrivals, rng.random() * rates, side="right"), n - 1)
                backlog[i] += 1
    return collected, crowded


@compiled
def _thought(rng: Any, now: float, think_s: float, thinking: int) -> float:
    return now + rng.standard_exponential() * think_s / thinking if thinking > 0 else math.inf


@compiled
def _place(allowed: Bools, queued: Ints) -> int:
    """An idle CPU, else the one with the shortest queue."""
    best = -1
    for cpu in range(allowed.size):
        if allowed[cpu] and (best < 0 or queued[cpu] < queued[best]):
            best = cpu
    return best


@compiled
def _mean(cpu: int, where: Ints, spent: Floats, queued: int) -> float:
    """Mean virtual time of a queue."""
    total = 0.0
    for t in range(where.size):
        if where[t] == cpu:
            total += spent[t]
    return total / max(queued, 1)


@compiled
def _next(cpu: int, where: Ints, owner: Ints, spent: Floats, weight: Floats, runnable: Ints, slice_s: float) -> int:
    """Of a queue's vCPUs that are owed time, the one with the earliest virtual deadline."""
    mean, count = 0.0, 0
    for t in range(where.size):
        if where[t] == cpu:
            mean += spent[t]
            count += 1
    if count == 0:
        return -1
    mean /= count
    best, earliest = -1, math.inf
    for t in range(where.size):
        if where[t] == cpu and spent[t] <= mean + 1e-12:
            deadline = spent[t] + slice_s * runnable[owner[t]] / weight[owner[t]]
            if deadline < earliest:
                best, earliest = t, deadline
    return best


@compiled
def _steal(
    cpu: int,
    allowed: Bools,
    owner: Ints,
    where: Ints,
    spent: Floats,
    queued: Ints,
    current: Ints,
    clock: Floats,
) -> None:
    """Move to `cpu`, from the longest queue that is longer than its own, what waits there, is owed most and may go."""
    best, length, owed = -1, queued[cpu], -math.inf
    for t in range(where.size):
        if where[t] >= 0 and where[t] != cpu and allowed[owner[t], cpu]:
            source = where[t]
            mine = clock[source] - spent[t]
            longer = queued[source] > length or (best >= 0 and queued[source] == length and mine > owed)
            if current[source] != t and longer:
                best, length, owed = t, queued[source], mine
    if best >= 0:
        source = where[best]
        queued[source] -= 1
        queued[cpu] += 1
        spent[best] += clock[cpu] - clock[source]
        where[best] = cpu
