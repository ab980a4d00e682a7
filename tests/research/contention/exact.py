"""Exact results of queueing theory, and sharing by definition, that the simulator is held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.sparse import lil_matrix
from scipy.sparse.linalg import spsolve


def many_servers(load: float, cpus: int, states: int = 4000) -> tuple[float, float]:
    """Share and part of the time with more bursts than CPUs of M/M/c (Erlang), of `load` a CPU."""
    weight, weights = 1.0, [1.0]
    for busy in range(1, states):
        weight *= load * cpus / min(busy, cpus)
        weights.append(weight)
    chance = np.array(weights) / sum(weights)
    count = np.arange(states)
    return float((chance @ np.minimum(count, cpus)) / (chance @ count)), float(chance[cpus + 1 :].sum())


def machine_repair(alone: Sequence[float], cpus: int) -> tuple[list[float], float]:
    """Share of each single-vCPU closed loop that runs `alone` of the time by itself, and part of the time short.

    Product form of a processor-sharing station of `cpus` CPUs and thinking (BCMP 1975).
    """
    members = range(len(alone))
    total, crowded = 0.0, 0.0
    run, runnable = np.zeros(len(alone)), np.zeros(len(alone))
    for size in range(len(alone) + 1):
        factor = math.prod(busy / min(busy, cpus) for busy in range(1, size + 1))
        for chosen in combinations(members, size):
            chance = factor * math.prod(alone[i] / (1.0 - alone[i]) for i in chosen)
            total += chance
            crowded += chance * (size > cpus)
            for i in chosen:
                runnable[i] += chance
                run[i] += chance * min(1.0, cpus / size)
    return list(run / runnable), crowded / total


def two_weighted_queues(
    loads: tuple[float, float], weights: tuple[float, float], vcpus: int, most: int = 80
) -> list[float]:
    """Shares of two open loops of exponential bursts on one CPU that is divided by weight while both have work.

    The Markov chain of both queues, cut at `most` bursts each, solved as it is.
    """
    side = most + 1
    chain = lil_matrix((side * side, side * side))
    for first in range(side):
        for second in range(side):
            here = first * side + second
            rates = _rates(first, second, weights)
            moves = [
                (loads[0] * (first < most), here + side),
                (loads[1] * (second < most), here + 1),
                (rates[0], here - side),
                (rates[1], here - 1),
            ]
            for rate, there in moves:
                if rate:
                    chain[there, here] += rate
                    chain[here, here] -= rate
    chain[0, :] = 1.0
    right = np.zeros(side * side)
    right[0] = 1.0
    chance = spsolve(chain.tocsc(), right).reshape(side, side)
    runnable = np.minimum(np.arange(side), vcpus)
    wanted = (float(chance.sum(axis=1) @ runnable), float(chance.sum(axis=0) @ runnable))
    return [loads[0] / wanted[0], loads[1] / wanted[1]]


def _rates(first: int, second: int, weights: tuple[float, float]) -> tuple[float, float]:
    if first and second:
        return weights[0] / sum(weights), weights[1] / sum(weights)
    return float(first > 0), float(second > 0)


def filled_progressively(
    wanted: Sequence[float], weights: Sequence[float], pins: Sequence[frozenset[int]], cpus: int
) -> list[float]:
    """Weighted max-min by its definition: rates rise together by weight, and stop where Hall's condition stops them."""
    sets = [frozenset(s) for size in range(1, cpus + 1) for s in combinations(range(cpus), size)]
    fixed: dict[int, float] = {}

    def at(height: float) -> list[float]:
        return [
            fixed.get(i, min(want, weight * height))
            for i, (want, weight) in enumerate(zip(wanted, weights, strict=True))
        ]

    def over(rates: Sequence[float], slack: float) -> frozenset[int]:
        """VMs inside a set of CPUs that is used beyond what it has, or that is as good as full."""
        for one in sets:
            inside = [i for i, pin in enumerate(pins) if pin <= one]
            if sum(rates[i] for i in inside) > len(one) + slack:
                return frozenset(inside)
        return frozenset()

    while len(fixed) < len(wanted):
        if not over(at(1e6), 1e-9):
            return at(1e6)
        low, high = 0.0, 1e6
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (low, middle) if over(at(middle), 1e-9) else (middle, high)
        rates = at(low)
        full = over(at(high * (1 + 1e-7)), 1e-9)
        fixed |= {i: rates[i] for i in full if i not in fixed}
    return [fixed[i] for i in range(len(wanted))]
