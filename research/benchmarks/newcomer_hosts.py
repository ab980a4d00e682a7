"""Hosts made of control groups whose containers come one after the other, and an agent on each of them.

A CPU of a host is a small part of a real one. An agent's monotonic clock therefore goes slower than ours: by it, a
container that has all of a host's CPUs uses as many CPUs as the host has. What is waited for counts by that clock, too.
A container's one process stands for all its vCPUs, which run and wait together.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from lab.errors import RunError
from lab.signals import deaf
from models.arrays import Floats
from profiler.agent.announcement import Announcer
from profiler.agent.loop import Log
from profiler.agent.spool import SampleBatch
from profiler.backends.base import Counters, DomainCounters, HostCounters
from profiler.backends.host_description import HostDescription
from profiler.backends.lxc.backend import LxcBackend
from profiler.backends.sources import LiveSource
from profiler.collectors.samples import collect
from profiler.observed import DEFAULT_WEIGHT, Instance, IsolationSettings
from research.arena.evenings import HOST_CPUS, HOSTS, MEMORY_MB, VCPUS, DailyContainer, Evening
from research.contention.container_groups import HostGroups
from research.contention.container_mixes import MixHost, PlannedContainer
from research.contention.container_runs import RunningContainer
from research.contention.host_spec import InstanceSpec

QUOTA_CPUS = 0.16  # real CPUs of a host
SLOWER = HOST_CPUS / QUOTA_CPUS  # than a real CPU is one of a host
WAITS_SLOWER = SLOWER / VCPUS  # so much less is what a process waits than all its vCPUs together do by a host's clock
BURST_MS = 1.5  # of a real CPU
PERIOD_MS = 100  # of a host's bandwidth
_LEAD_S = 1.0
_DAYS_CLOCK = 12.0  # by this an agent's day is slower than all others': it reports what is new at once, all each 5 s
_EVERY_S = 1500.0  # that an announcement says: twice as long as 5 s are in the day
Clock = Callable[[], float]


class SlowSource(LiveSource):
    """This machine with a clock of the day that passes, and one that goes as slowly as a host's CPUs."""

    def __init__(self, day: Clock) -> None:
        super().__init__()
        self._day = day

    def clock(self) -> tuple[float, float]:
        return self._day(), time.monotonic() / SLOWER


@dataclass(frozen=True, slots=True)
class WatchedHost:
    """One host as its agent sees it."""

    host: str
    instances: Sequence[Instance]
    name: str = "lxc"

    def list_instances(self) -> list[Instance]:
        return list(self.instances)

    def read_isolation(self, _instance: Instance) -> IsolationSettings:
        return IsolationSettings(weight=DEFAULT_WEIGHT)

    def read_counters(self) -> Counters:
        raise NotImplementedError("all hosts are read together")

    def close(self) -> None:
        """Do nothing: nothing is open."""


class LivingHosts:
    """Context manager: the hosts of a world. On exit nothing of them is left.

    `day` is the epoch time of the day that passes, in seconds; None = it is not needed.
    """

    def __init__(self, groups: HostGroups, program: Path, day: Clock | None) -> None:
        self._groups = groups
        self._program = program
        self._day = day or time.time
        self._hosts = [MixHost(f"h{host}", (host % 2,), (), QUOTA_CPUS, PERIOD_MS) for host in range(HOSTS)]
        self._running: dict[str, RunningContainer] = {}
        self._host_of: dict[str, int] = {}
        self._daily: dict[str, DailyContainer] = {}
        self._residents: frozenset[str] = frozenset()
        self._start = self._end = 0.0
        self._phases: list[tuple[float, float, int]] = []  # hour at which it begins, hours a second, seconds
        self._source = SlowSource(self._day)
        self._backend: LxcBackend | None = None
        self._announcers: dict[str, Announcer] = {}
        self.late_s = 0.0  # the most that the process of a new VM began after its work

    def __enter__(self) -> LivingHosts:
        for host in self._hosts:
            self._groups.make(host)
            description = HostDescription("lxc", pcpus=HOST_CPUS, memory_mb=MEMORY_MB)
            self._announcers[host.id] = Announcer(
                lambda description=description: description,  # type: ignore[misc]
                Log(as_json=False),
                version="",
                clock=lambda: self._day() / _DAYS_CLOCK,
                machine=host.id,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with deaf():
            self._source.close()
            for each in self._running.values():
                each.stop()
            self._groups.remove()

    def populate(
        self, world: Evening, begin_h: float, step_h: float, seconds: int, then: tuple[float, int] | None = None
    ) -> float:
        """Start the residents, with work for some seconds from an hour on, and `then` for a day in other steps.

        Returns the time of the monotonic clock at which the work begins.
        """
        self._phases = [(begin_h, step_h, seconds)]
        if then is not None:
            self._phases.append((math.ceil(begin_h / 24 + 1) * 24.0, *then))
        self._start = time.monotonic() + _LEAD_S
        self._end = self._start + sum(count for *_, count in self._phases) + 1
        for container, host in zip(world.residents, world.host_of, strict=True):
            self._launch(container, host, 0)
        if time.monotonic() > self._start:
            raise RunError("the containers were not ready in time")
        self._residents = frozenset(self._running)
        return self._start

    def come(self, container: DailyContainer, host: int, at: float) -> None:
        """Start a new VM on a host; it works from the first whole second after `at` on."""
        begin = math.floor(at - self._start) + 1
        self._launch(container, host, begin)
        self.late_s = max(self.late_s, time.monotonic() - (self._start + begin))

    def _launch(self, container: DailyContainer, host: int, begin: int) -> None:
        demand = np.concatenate([container.demand(*phase) for phase in self._phases]) / SLOWER
        demand[:begin] = 0.0
        planned = planned_container(container, demand)
        made = self._groups.add(self._hosts[host], planned)
        running = RunningContainer(planned, made, self._groups.mounts)
        running.start(self._program, self._start, self._end)
        self._running[container.name] = running
        self._host_of[container.name], self._daily[container.name] = host, container
        self._backend = None

    def there(self, host: int) -> list[str]:
        """The names of a host's containers."""
        return [name for name, at in self._host_of.items() if at == host]

    def free_mb(self, host: int) -> float:
        return MEMORY_MB - sum(self._daily[name].memory_mb for name in self.there(host))

    def read(self) -> list[Counters]:
        """One reading of each host."""
        if self._backend is None:
            known = {one.path: self._instance(name) for name, one in self._running.items()}
            self._backend = LxcBackend(self._source, "all", known)
        everything = self._backend.read_counters()
        return [self._of_host(host, everything) for host in range(HOSTS)]

    def _instance(self, name: str) -> Instance:
        return Instance(name, VCPUS, self._daily[name].memory_mb, host=f"h{self._host_of[name]}")

    def _of_host(self, host: int, everything: Counters) -> Counters:
        there = {name: _slow(everything.instances[name]) for name in self.there(host) if name in everything.instances}
        whole = HostCounters(None, self._used_ns(host), 0, HOST_CPUS, absent={"events": "not counted"})
        return replace(everything, host=f"h{host}", instances=there, driver=None, whole=whole, vanished=())

    def _used_ns(self, host: int) -> int:
        group = f"{self._groups.prefix}-h{host}"
        return int(Path(self._groups.mounts["cpuacct"], group, "cpuacct.usage").read_text("ascii"))

    def announcements(self) -> Iterator[bytes]:
        """What the agent of each host reports of it now, as JSON."""
        for host, announcer in self._announcers.items():
            number = int(host[1:])
            announcer.look(WatchedHost(host, [self._instance(name) for name in self.there(number)]))
            document = announcer.due()
            if document is not None:
                time_of_day = _rfc3339(self._day())
                yield json.dumps({**json.loads(document), "time": time_of_day, "every_s": _EVERY_S}).encode()
                announcer.done()

    def open(self) -> None:
        """Prepare to sample every instance."""
        for one in self._running.values():
            one.open_tasks()
            one.count()

    def sample(self) -> None:
        """Read what every instance ran and waited so far."""
        for one in self._running.values():
            one.sample()

    def used_s(self) -> float:
        """Real CPU seconds of all hosts so far."""
        return sum(self._used_ns(host) for host in range(HOSTS)) / 1e9

    def outcomes(self, seconds: float) -> dict[str, Any]:
        """What each container got in the samples."""
        found = {}
        for name, one in self._running.items():
            one.count()
            found[name] = one.outcome(seconds, WAITS_SLOWER) | {
                "host": f"h{self._host_of[name]}", "kind": self._daily[name].kind, "resident": name in self._residents,
            }  # fmt: skip
        return found


def _slow(counters: DomainCounters) -> DomainCounters:
    """With times that were waited by the clock of the host; what ran is CPU time, which is the same by both."""
    tasks = {name: replace(task, wait_ns=round(task.wait_ns / WAITS_SLOWER)) for name, task in counters.tasks.items()}
    times = {
        name: round(value / SLOWER) if name.endswith(("_ns", "_us")) else value
        for name, value in counters.further.items()
    }
    return replace(counters, tasks=tasks, further=times, further_since=None)


def planned_container(container: DailyContainer, demand: Floats) -> PlannedContainer:
    """A container that asks for `demand`, real CPUs in each second."""
    values = tuple(float(value) for value in demand)
    spec = InstanceSpec(
        container.name, 1, max(statistics.fmean(values), 1e-4), "open", BURST_MS, float(np.std(demand)), 0.0, 256.0,
        math.inf, (),
    )  # fmt: skip
    return PlannedContainer(spec, "trace", "exponential", values, container.seed)


def busy(before: Sequence[Counters], now: Sequence[Counters]) -> dict[str, dict[str, float]]:
    """CPUs of a host that each of its containers used between two readings, by host and name."""
    found: dict[str, dict[str, float]] = {}
    for first, second in zip(before, now, strict=True):
        seconds = second.monotonic_s - first.monotonic_s
        found[first.host] = {
            name: ((counters.cpu_ns or 0) - (first.instances[name].cpu_ns or 0)) / 1e9 / seconds
            for name, counters in second.instances.items()
            if name in first.instances
        }
    return found


def announced(before: Sequence[Counters], now: Sequence[Counters]) -> Iterator[list[Mapping[str, Any]]]:
    """The samples that the agent of each host pushes after two readings."""
    for first, second in zip(before, now, strict=True):
        batch = SampleBatch(second.host, _rfc3339(second.time_s), collect(first, second).rows)
        yield list(batch.samples())


def _rfc3339(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
