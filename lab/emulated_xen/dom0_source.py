"""Dom0 of an emulated machine as a source of the profiler's Xen backend, which then works outside at its full speed."""

from __future__ import annotations

import base64
import errno
import time
from collections.abc import Callable
from typing import TypeVar, cast

from lab.emulated_xen.dom0_channel import Dom0Channel
from profiler.backends.xen.trace import xentrace_argv

T = TypeVar("T")

_TRACE = "/tmp/trace"  # noqa: S108 - of Dom0, which nobody else uses
_START_S = 1.2  # until xentrace writes, in an emulated Dom0 that has other work
_STAYING = ("xl info", "xenstore-ls -f /local/domain")  # the same as long as the domains are the same
_MOST_S = 600.0


class Dom0Source:
    """See `profiler.backends.source.HostSource`. Its xentrace writes to a file of Dom0's memory until `close`."""

    def __init__(self, dom0: Dom0Channel, known: dict[str, str] | None = None) -> None:
        """`known` keeps what stays the same over the sources of one machine."""
        self._dom0 = dom0
        self._known = {} if known is None else known
        self._taken = 0
        name, *arguments = xentrace_argv("full")
        dom0.run(["rm", "-f", _TRACE])
        self._trace = dom0.start([name, *arguments[:-1], _TRACE], timeout_s=_MOST_S)
        time.sleep(_START_S)

    def read(self, path: str) -> str:
        return str(self._dom0.look("read", path))

    def names(self, path: str) -> list[str]:
        return list(self._dom0.look("names", path))

    def link(self, path: str) -> str:
        return str(self._dom0.look("link", path))

    def value(self, key: str, read: Callable[[], T], /) -> T:
        """What a tool prints in Dom0, by its command; `read` would ask this host instead."""
        del read
        if key == "xentrace":
            return cast(T, self._piece())  # as a recording holds it
        if key in self._known:
            return cast(T, self._known[key])
        done = self._dom0.run(key.split(" "), timeout_s=20)
        if done.code != 0:
            raise OSError(errno.EIO, f"{key} failed with {done.code}: {done.errors.strip()[-200:]}")
        if key in _STAYING:
            self._known[key] = done.text
        return cast(T, done.text)

    def _piece(self) -> dict[str, object]:
        done = self._dom0.run(["tail", "-c", f"+{self._taken + 1}", _TRACE], timeout_s=60)
        self._taken += len(done.output)
        return {"stream": 1, "data": base64.b64encode(done.output).decode(), "problem": ""}

    def clock(self) -> tuple[float, float]:
        return time.time(), time.monotonic()

    def sweep(self, *, ended: bool = False) -> None:
        """Nothing is kept open."""

    def close(self) -> None:
        self._dom0.run(["pkill", "-INT", "-x", "xentrace"])
        self._dom0.wait(self._trace)
