"""Chooses groups of workloads at random, reproducibly, and so that each workload is used about equally often."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

_MOST_CANDIDATES = 2000  # candidates per choice; more hardly improve the balance


def choose(names: Sequence[str], size: int, count: int | None, seed: int) -> list[tuple[str, ...]]:
    """`count` different combinations of `size` different names, None = all; ValueError where that is impossible.

    Each next combination is the one whose names were used least so far, and among equals the one whose pairs of names
    were. The order within a combination is random, so that no workload always has the same position.
    """
    if not 2 <= size <= len(names):
        raise ValueError(f"size {size} is not between 2 and the {len(names)} workloads to choose from")
    possible = math.comb(len(names), size)
    if count is not None and count > possible:
        raise ValueError(f"count {count} is above the {possible} combinations that there are")
    if count is None and possible > _MOST_CANDIDATES:
        raise ValueError(f"needs a count: all would be {possible} combinations, above {_MOST_CANDIDATES}")
    draw = random.Random(f"{seed}:{size}")  # noqa: S311 - a choice of runs, not a secret
    candidates = _candidates(names, size, draw)
    uses: Counter[str] = Counter()
    pair_uses: Counter[tuple[str, str]] = Counter()
    chosen: list[tuple[str, ...]] = []
    while candidates and len(chosen) < (possible if count is None else count):
        best = min(candidates, key=lambda entry: _cost(entry, uses, pair_uses))
        candidates.remove(best)
        uses.update(best)
        pair_uses.update(itertools.combinations(best, 2))
        chosen.append(tuple(draw.sample(best, size)))
    return chosen


def _candidates(names: Sequence[str], size: int, draw: random.Random) -> list[tuple[str, ...]]:
    """All combinations in random order, or a random part of them where there are too many to look at."""
    if math.comb(len(names), size) <= _MOST_CANDIDATES:
        candidates = list(itertools.combinations(names, size))
    else:
        drawn: dict[tuple[str, ...], None] = {}  # a set that keeps the order of drawing
        while len(drawn) < _MOST_CANDIDATES:
            drawn[tuple(names[i] for i in sorted(draw.sample(range(len(names)), size)))] = None
        candidates = list(drawn)
    draw.shuffle(candidates)
    return candidates


def _cost(entry: tuple[str, ...], uses: Counter[str], pair_uses: Counter[tuple[str, str]]) -> tuple[int, int]:
    return sum(uses[name] for name in entry), sum(pair_uses[pair] for pair in itertools.combinations(entry, 2))
