"""A Source whose answers fail or are garbled at random, for tests of what backends make of that."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from typing import Any, TypeVar

from profiler.backends.sources import HostSource

T = TypeVar("T")
_ERRORS = (errno.ENOENT, errno.EACCES, errno.ESRCH, errno.EIO, errno.ENODEV, errno.EINVAL)


class Unsteady:
    """Passes on what `source` answers, except for a `share` of the questions. The same seed gives the same failures."""

    def __init__(self, source: HostSource, seed: int, *, garbled: bool) -> None:
        self.share = 0.0
        self._source = source
        self._random = random.Random(seed)
        self._garbled = garbled

    def read(self, path: str) -> str:
        self._maybe_fail(path)
        return self._maybe_garble(self._source.read(path))

    def names(self, path: str) -> list[str]:
        self._maybe_fail(path)
        return self._source.names(path)

    def link(self, path: str) -> str:
        self._maybe_fail(path)
        return self._source.link(path)

    def value(self, key: str, read: Callable[[], T]) -> T:
        self._maybe_fail(key)
        value: Any = self._source.value(key, read)
        return self._maybe_garble(value) if isinstance(value, str) else value  # type: ignore[return-value]

    def clock(self) -> tuple[float, float]:
        return self._source.clock()

    def sweep(self, *, ended: bool = False) -> None:
        self._source.sweep(ended=ended)

    def close(self) -> None:
        self._source.close()

    def _maybe_fail(self, path: str) -> None:
        if not self._garbled and self._random.random() < self.share:
            number = self._random.choice(_ERRORS)
            raise OSError(number, os.strerror(number), path)

    def _maybe_garble(self, text: str) -> str:
        if not self._garbled or self._random.random() >= self.share:
            return text
        at = self._random.randrange(len(text) + 1)
        pieces = text[:at], text[at:], text[:at] + "-" + text[at:]
        return self._random.choice([*pieces, "", "\x00", "٣ ", text + "9" * 30, text.replace("\n", " ")])
