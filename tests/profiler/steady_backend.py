"""A backend in memory whose instances use exactly half a CPU by its own clock, and that misbehaves when asked to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from profiler.backends import Counters, DomainCounters, HostCounters, TaskCounters
from profiler.observed import Instance, IsolationSettings


class SteadyBackend:
    """`trouble` runs before each reading with its number; `names` are the instances; `skew_s` bends the wall clock."""

    name = "recorded"
    host = "h1"

    def __init__(self, trouble: Callable[[int], object] = lambda _number: None) -> None:
        self.trouble = trouble
        self.names: tuple[str, ...] = ("a",)
        self.skew_s = 0.0
        self.stopped_s = 0.0  # how much longer ago the last reading seems
        self.begun: list[float] = []
        self.threads: set[str] = set()
        self.closed = threading.Event()

    def list_instances(self) -> list[Instance]:
        return [Instance(name) for name in self.names]

    def read_counters(self) -> Counters:
        number = len(self.begun)
        self.begun.append(time.monotonic())
        self.threads.add(threading.current_thread().name)
        self.trouble(number)
        now = time.monotonic() + self.stopped_s
        used = int(now * 5e8)
        domain = DomainCounters(1, {"1": TaskCounters(used, 0, number)}, used, net_bytes=0, disk_bytes=0)
        whole = HostCounters(number, used, 0, 1)
        wall = time.time() + self.stopped_s + self.skew_s
        return Counters(self.host, wall, now, dict.fromkeys(self.names, domain), None, whole)

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        return IsolationSettings()

    def close(self) -> None:
        self.closed.set()
