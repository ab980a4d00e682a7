"""The agent's log: one line per event on standard error, as `key=value` or JSON, with repeats suppressed for a
minute."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

EVERY_S = 60.0  # the same message is not logged more often
_REMEMBERED = 1000  # messages; more kinds than this in a minute may repeat earlier
_NUMBERS = re.compile(r"\d+")
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+,=-]+\Z")

Value = str | int | float | None


class Log:
    """Writes events; safe to use from every thread, and never raises: a host without a log is still measured."""

    def __init__(
        self, stream: TextIO | None = None, *, as_json: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._as_json = as_json
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # when logged last, how often suppressed since

    def info(self, event: str, **fields: Value) -> None:
        """Log an event at level info. Such events are rare and never suppressed."""
        self._write("info", event, fields)

    def warn(self, event: str, same: str = "", **fields: Value) -> None:
        """Log what went wrong. Within a minute, a repeat of an event with the same `same` is only counted.

        Numbers in `same` make no difference: process ids and times would make every message a new one.
        """
        now, same = self._clock(), _NUMBERS.sub("0", same)
        with self._lock:
            last, suppressed = self._logged.get((event, same), (-EVERY_S, 0))
            if now - last < EVERY_S:
                self._logged[event, same] = (last, suppressed + 1)
                return
            if len(self._logged) >= _REMEMBERED:
                del self._logged[next(iter(self._logged))]
            self._logged.pop((event, same), None)  # so that the oldest stands first
            self._logged[event, same] = (now, 0)
        self._write("warning", event, {**fields, "repeated": suppressed} if suppressed else fields)

    def _write(self, level: str, event: str, fields: dict[str, Value]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line: dict[str, Value] = {"time": stamp, "level": level, "event": event, **fields}
        text = json.dumps(line) if self._as_json else " ".join(f"{name}={_shown(line[name])}" for name in line)
        with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the disk is full
            self._stream.write(text + "\n")
            self._stream.flush()


def _shown(value: Value) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _PLAIN.match(text) else json.dumps(text)  # one line, whatever text a tool or a server gave
