"""Dom0 of an emulated machine as the profiler's Xen backend reads it, without the cost of reading in what is measured.

While guests work, each command takes an emulated Dom0 seconds. So what stays the same is read before they begin; the
agent in Dom0 reads what changes, all at once, and keeps it there; and that is fetched when they are done.
"""

from __future__ import annotations

import base64
import errno
import json
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

from lab.emulated_xen.dom0_channel import Dom0Channel, Dom0Order
from profiler.backends.sources import RecordedReading, RecordedSource, RecordingSource
from profiler.backends.xen.backend import XenBackend
from profiler.backends.xen.scheduling import xentrace_argv

T = TypeVar("T")
How = Literal["read", "names", "link"]

_TRACE = "/tmp/trace"  # noqa: S108 - of Dom0, used by nothing else
_SNAPSHOT = "/tmp/snapshot.{number}"  # noqa: S108
_BUFFERS = ("-S", "512")  # pages for each pCPU, 16 times the default: a busy emulated Dom0 empties them late
_START_S = 1.2  # that xentrace takes until it writes
_MOST_S = 600.0


class Dom0Source:
    """See `profiler.backends.sources.HostSource`: each look and each tool is an order to Dom0."""

    def __init__(self, dom0: Dom0Channel) -> None:
        self._dom0 = dom0

    def read(self, path: str) -> str:
        return str(self._dom0.look("read", path))

    def names(self, path: str) -> list[str]:
        return list(self._dom0.look("names", path))

    def link(self, path: str) -> str:
        return str(self._dom0.look("link", path))

    def value(self, key: str, read: Callable[[], T], /) -> T:
        """What a tool prints in Dom0; `key` is its command. `read`, which asks this host, is not used."""
        del read
        done = self._dom0.run(key.split(" "), timeout_s=20)
        if done.code != 0:
            raise OSError(errno.EIO, f"{key} failed with {done.code}: {done.errors.strip()[-200:]}")
        return cast(T, done.text)

    def clock(self) -> tuple[float, float]:
        return time.time(), time.monotonic()

    def sweep(self, *, ended: bool = False) -> None:
        """Nothing to do: no file is kept open."""

    def close(self) -> None:
        """Nothing to do: no file is kept open."""


class Dom0Snapshots:
    """Readings of one Dom0: `start`, `take`, `finish`; `learn` before them when its domains or vCPUs have changed."""

    def __init__(self, dom0: Dom0Channel) -> None:
        self._dom0 = dom0
        self._known = RecordedReading()
        self._trace: Dom0Order | None = None
        self._taken = 0

    def learn(self) -> None:
        """Find out which files the profiler reads, and ask the tools; while no guest works."""
        source = RecordingSource(Dom0Source(self._dom0))
        backend = XenBackend(source, "emulated", "off")
        try:
            for _ in range(2):  # some files are read from the second time on
                backend.read_counters()
        finally:
            backend.close()
        self._known = source.readings[0]

    def start(self) -> None:
        """Start xentrace, which writes to Dom0's memory."""
        name, *arguments = xentrace_argv("full")
        self._dom0.run(["rm", "-f", _TRACE])
        self._trace = self._dom0.start([name, *_BUFFERS, *arguments[:-1], _TRACE], timeout_s=_MOST_S)
        self._taken = 0
        time.sleep(_START_S)

    def take(self) -> None:
        """One reading, which stays in Dom0."""
        self._dom0.snapshot(self._looks(), _TRACE, _SNAPSHOT.format(number=self._taken))
        self._taken += 1

    def finish(self) -> RecordedSource:
        """End xentrace and fetch the readings."""
        if self._trace is not None:
            self._dom0.run(["pkill", "-INT", "-x", "xentrace"])
            self._dom0.wait(self._trace)
        snapshots = [json.loads(self._dom0.fetch(_SNAPSHOT.format(number=number))) for number in range(self._taken)]
        ends = [snapshot["size"] for snapshot in snapshots]
        trace = self._dom0.fetch(_TRACE, ends[-1])
        pieces = [trace[begin:end] for begin, end in pairwise([0, *ends])]
        return RecordedSource(list(map(self._reading, snapshots, pieces)))

    def _looks(self) -> list[tuple[str, str]]:
        known = self._known
        looks = [("read", path) for path in known.files] + [("names", path) for path in known.directories]
        return looks + [("link", path) for path in known.links]

    def _reading(self, snapshot: dict[str, Any], trace: bytes) -> RecordedReading:
        piece = {"stream": 1, "data": base64.b64encode(trace).decode(), "problem": ""}
        reading = RecordedReading(
            clock=tuple(snapshot["clock"]),
            values={**self._known.values, "xentrace": [piece]},
        )
        parts: dict[str, dict[str, Any]] = {
            "read": reading.files, "names": reading.directories, "link": reading.links,
        }  # fmt: skip
        for (how, path), answer in zip(self._looks(), snapshot["found"], strict=True):
            parts[how][path] = answer.get("found", answer.get("errno"))
        return reading
