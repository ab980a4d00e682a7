"""Caches predictions by everything that they depend on, so that nothing is predicted twice; bounded."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Candidate
from models.arrays import Bools, Floats

# A cache that drops the values that were not used for longest.

K = TypeVar("K")
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """At most `most` in all, by what each value counts; safe to share between threads."""

    def __init__(self, most: int, counts: Callable[[V], int] = lambda _: 1) -> None:
        self._lock = threading.Lock()
        self._most, self._counts = most, counts
        self._there = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def find(self, key: K) -> V | None:
        """The value under a key, None where there is none."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: K, value: V) -> None:
        """Put a value under a key; it goes at once where it alone is too much."""
        with self._lock:
            former = self._values.pop(key, None)
            self._values[key] = value
            self._there += self._counts(value) - (0 if former is None else self._counts(former))
            while self._there > self._most:
                self._there -= self._counts(self._values.popitem(last=False)[1])

    def drop(self, is_over: Callable[[V], bool]) -> None:
        """Let go of values that are not asked for again."""
        with self._lock:
            for key in [key for key, value in self._values.items() if is_over(value)]:
                self._there -= self._counts(self._values.pop(key))

    def __len__(self) -> int:
        return len(self._values)


MOST_BYTES = 32 * 2**20  # with the new VM; 10,000 hosts with eight residents, no two alike, take 15 MB
KEY_BYTES = 200  # what a key of 48 bytes takes as an object, with its place in the table and the turn of its last use
MOST_PARTS = 20_000  # parts of candidates as `_parts` counts them, of less than 1 KB each


class PredictionCache:
    """What a predictor said about host situations, before a new VM came and after, and in full of those that an
    answer has shown; one per predictor in use.

    Nothing in it goes stale: all that a prediction depends on is part of its key, so that what changed is not found
    any more, and dropped when there is no room, the longest unused first. Safe to share between threads. `candidates`
    are what was made of that, with their reasons.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self.after = _Blocks(self._lock, most_bytes)  # one for each host and question
        self.before = _Blocks(self._lock, most_bytes // 4)  # one for each host
        self.shown = _Blocks(self._lock, most_bytes // 4)  # some for each question
        self.candidates: LRUCache[bytes, tuple[Candidate, ...]] = LRUCache(MOST_PARTS, _parts)

    def counts(self) -> tuple[int, int]:
        """How many keys were found and how many were not, of all that were ever looked for."""
        kinds = (self.before, self.after, self.shown)
        with self._lock:
            return sum(kind.found for kind in kinds), sum(kind.missed for kind in kinds)


def _parts(candidates: Sequence[Candidate]) -> int:
    """How much candidates hold: neighbours, reasons, commands, and steps of the ladder with the instances that they
    touch."""
    return sum(
        1
        + len(candidate.neighbours)
        + len(candidate.reasons)
        + len(candidate.commands)
        + len(candidate.changes)
        + sum(1 + len(rung.effects) + len(rung.changes) for rung in candidate.mitigation)
        for candidate in candidates
    )


class _Blocks:
    """Blocks of numbers by key, all of one shape; another shape starts anew.

    They lie in one array, as large as it may become, for as long as this is there. The system gives memory only where
    blocks are written, while arrays that grow and replace each other leave holes in the heap that nothing else fills.
    """

    def __init__(self, lock: threading.Lock, most_bytes: int) -> None:
        self._lock = lock
        self._most_bytes = most_bytes
        self.found = self.missed = 0
        self._numbers = np.empty(0)
        self._empty(())

    def _empty(self, shape: tuple[int, ...]) -> None:
        self._row: dict[bytes, int] = {}
        size = math.prod(shape)
        self._most = self._most_bytes // (size * self._numbers.itemsize + KEY_BYTES) if shape else 0
        self._values = self._numbers[: self._most * size].reshape(self._most, *shape)
        self._used = np.zeros(self._most, dtype=np.int64)  # the turn in which each row was last asked for
        self._turn = 0

    def __len__(self) -> int:
        return len(self._row)

    def find(self, keys: Sequence[bytes], shape: tuple[int, ...]) -> tuple[Bools, Floats]:
        """Which of K keys are known, (K,), and their blocks (K, *shape), nan where nothing is known."""
        with self._lock:
            if shape != self._values.shape[1:] or not self._row:
                self.missed += len(keys)
                return np.zeros(len(keys), dtype=bool), np.full((len(keys), *shape), np.nan)
            rows = np.fromiter(map(self._row.get, keys, repeat(-1)), dtype=np.int64, count=len(keys))
            known = rows >= 0
            count = int(known.sum())
            self.found += count
            self.missed += len(keys) - count
            found = self._values[rows]  # whatever the last row holds where nothing is known
            found[~known] = np.nan
            self._turn += 1
            self._used[rows[known]] = self._turn
            return known, found

    def keep(self, keys: Sequence[bytes], blocks: Floats) -> None:
        """Keep blocks (K, ...) under K different keys, as many as there is room for; of a known key the last one."""
        with self._lock:
            if not len(self._numbers):
                self._numbers = np.empty(self._most_bytes // self._numbers.itemsize)
            if blocks.shape[1:] != self._values.shape[1:]:
                self._empty(blocks.shape[1:])
            for number, key in enumerate(keys):
                if key in self._row:
                    self._values[self._row[key]] = blocks[number]
            new = [number for number, key in enumerate(keys) if key not in self._row][: self._most]
            rows = self._rows_for(len(new))
            self._values[rows] = blocks[new]
            self._turn += 1
            self._used[rows] = self._turn
            self._row.update(zip((keys[number] for number in new), rows.tolist(), strict=True))

    def _rows_for(self, count: int) -> NDArray[np.int64]:
        """Rows to write to: new ones while there is room, then those that were not asked for longest."""
        held = len(self._row)
        if held + count <= self._most:  # rows are taken one after the other, and given up only where none is left
            return np.arange(held, held + count)
        rows = np.argsort(self._used, kind="stable")[:count]
        lost = set(rows.tolist())
        self._row = {key: row for key, row in self._row.items() if row not in lost}
        return rows
