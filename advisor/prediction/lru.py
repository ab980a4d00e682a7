"""A cache that drops the values that were not used for longest."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

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
