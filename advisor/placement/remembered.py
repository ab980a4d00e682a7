"""Remembered: what was predicted, by what it is about, so that nothing is predicted twice; bounded."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Candidate
from advisor.recent import Recent

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_BYTES = 32 * 2**20  # of numbers, for each kind: 10,000 hosts with eight residents, no two alike, take 13 MB
MOST_TOLD = 2000  # candidates


class Remembered:
    """What a predictor said about host situations, before a newcomer came and after, and in full of those that an
    answer has shown; one per predictor in use.

    Nothing in it goes stale: all that a prediction depends on is part of its key, so that what changed is not found
    any more, and dropped when there is no room, the longest unused first. Safe to share between threads. `told` is what
    was made of that: candidates with their reasons.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._lock = threading.Lock()
        self.before = _Blocks(self._lock, most_bytes)
        self.after = _Blocks(self._lock, most_bytes)
        self.shown = _Blocks(self._lock, most_bytes)
        self.told: Recent[object, tuple[object, tuple[Candidate, ...]]] = Recent(MOST_TOLD, lambda one: len(one[1]))

    def counts(self) -> tuple[int, int]:
        """How many keys were found and how many were not, of all that were ever looked for."""
        kinds = (self.before, self.after, self.shown)
        with self._lock:
            return sum(kind.found for kind in kinds), sum(kind.missed for kind in kinds)


class _Blocks:
    """Blocks of numbers by key, all of one shape; another shape starts anew."""

    def __init__(self, lock: threading.Lock, most_bytes: int) -> None:
        self._lock = lock
        self._most_bytes = most_bytes
        self.found = self.missed = 0
        self._empty(())

    def _empty(self, shape: tuple[int, ...]) -> None:
        self._row: dict[bytes, int] = {}
        self._values = np.zeros((0, *shape))
        self._used = np.zeros(0, dtype=np.int64)  # the turn in which each row was last asked for
        self._turn = 0

    def __len__(self) -> int:
        return len(self._row)

    def find(self, keys: Sequence[bytes], shape: tuple[int, ...]) -> tuple[Bools, Floats]:
        """Which of K keys are known, (K,), and their blocks (K, *shape), nan where nothing is known."""
        with self._lock:
            if shape != self._values.shape[1:] or not len(self._values):
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
        """Keep blocks (K, ...) under K different keys, as many as there is room for."""
        with self._lock:
            if blocks.shape[1:] != self._values.shape[1:]:
                self._empty(blocks.shape[1:])
            most = self._most_bytes // max(blocks[:1].nbytes, 1)
            new = [number for number, key in enumerate(keys) if key not in self._row][:most]
            rows = self._rows_for(len(new), most)
            self._values[rows] = blocks[new]
            self._turn += 1
            self._used[rows] = self._turn
            self._row.update(zip((keys[number] for number in new), rows.tolist(), strict=True))

    def _rows_for(self, count: int, most: int) -> NDArray[np.int64]:
        """Rows to write to: new ones while there is room, then those that were not asked for longest."""
        there, held = len(self._values), len(self._row)
        grown = min(max(there + count, 2 * there), most) if held + count > there else there
        if grown > there:
            self._values = np.concatenate([self._values, np.empty((grown - there, *self._values.shape[1:]))])
            self._used = np.concatenate([self._used, np.zeros(grown - there, dtype=np.int64)])
        if held + count <= grown:  # rows are taken one after the other, and given up only where none is left
            return np.arange(held, held + count)
        rows = np.argsort(self._used, kind="stable")[:count]
        lost = set(rows.tolist())
        self._row = {key: row for key, row in self._row.items() if row not in lost}
        return rows
