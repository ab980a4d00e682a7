"""Instances, programs and counters of a lab that only exist in memory, driven by the clock: for tests of measuring."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.campaign import Member
from lab.schedule import PlacedMember
from lab.workloads import Site, WorkloadResult
from profiler.backends import Backend, Counters, DomainCounters, HostCounters
from profiler.observed import IsolationSettings


class FakeProgram:
    """Runs for `lasts_s` from its release, or its start, and then has `code`."""

    def __init__(self, command: list[str], lasts_s: float, *, wait: bool, code: int = 0) -> None:
        self.command = tuple(command)
        self._lasts_s = lasts_s
        self._code = code
        self.began: float | None = None if wait else time.monotonic()
        self.stopped = False

    @property
    def returncode(self) -> int | None:
        ended = self.began is not None and time.monotonic() >= self.began + self._lasts_s
        return self._code if ended or self.stopped else None

    def release(self) -> None:
        self.began = time.monotonic()

    def output(self) -> str:
        return "reached"

    def errors(self) -> str:
        return "it broke"

    def stop(self, patience_s: float = 1.0) -> None:
        self.stopped = True

    def check(self) -> None:
        return None


@dataclass(frozen=True)
class FakeWorkload:
    """Work that takes as long as it is given, or, when it is fixed, `lasts_s`."""

    lasts_s: float = 0.0
    fixed: bool = False
    filler_code: int = 0
    filler_s: float = 3600.0
    late_s: float = 0.0
    lead_s: float = 0.0

    def work(self, _site: Site, seconds: float, _rate: float | None) -> list[str]:
        return ["work", str((self.lasts_s if self.fixed else seconds) + self.late_s), "0"]

    def fill(self, _site: Site, _rate: float | None) -> list[str] | None:
        return ["fill", str(self.filler_s), str(self.filler_code)]

    def read(self, _output: str, _rate: float | None) -> WorkloadResult:
        return WorkloadResult(100.0, further={"counted": (3.0, "things")})


@dataclass
class FakeRunning:
    """One instance; `started` are all programs that ran in it."""

    placed: PlacedMember
    workload: Any
    site: Site = field(default_factory=lambda: Site(0, Path(), Path(), "", 1))
    started: list[FakeProgram] = field(default_factory=list)

    @property
    def lead_s(self) -> float:
        return float(self.workload.lead_s)

    def start(self, command: list[str], *, wait: bool = False) -> FakeProgram:
        program = FakeProgram(command, float(command[1]), wait=wait, code=int(command[2]))
        self.started.append(program)
        return program


class FakeBackend:
    """Counters from rates: instance i used `rates[i](t)` CPU seconds t seconds after the backend was made."""

    name = "fake"
    host = "fake"

    def __init__(self, used_s: Mapping[str, Callable[[float], float]]) -> None:
        self._used_s = used_s
        self._began = time.monotonic()
        self.closed = False

    def read_counters(self) -> Counters:
        now = time.monotonic()
        instances = {
            name: DomainCounters(1, {}, cpu_ns=round(used(now - self._began) * 1e9), absent={"tasks": "none here"})
            for name, used in self._used_s.items()
        }
        return Counters("fake", time.time(), now, instances, None, HostCounters(None, 0, 0, 1))

    def close(self) -> None:
        self.closed = True


class FakeInstances:
    """As many instances as workloads, named a, b, c …"""

    def __init__(
        self, *workloads: FakeWorkload, used_s: Callable[[float], float] = lambda seconds: seconds / 2
    ) -> None:
        self.members = [FakeRunning(_placed(chr(ord("a") + i)), workload) for i, workload in enumerate(workloads)]
        self.running: Any = self.members
        self.backends: list[FakeBackend] = []
        self._used_s = used_s

    def backend(self) -> Backend:
        self.backends.append(FakeBackend({member.placed.instance: self._used_s for member in self.members}))
        backend: Any = self.backends[-1]
        return backend  # type: ignore[no-any-return]

    def generator_ns(self) -> dict[str, int]:
        return {}

    def all_tasks_ns(self) -> int | None:
        return None

    def own_programs_ns(self) -> int:
        return 0

    def host_cpus(self) -> frozenset[int]:
        return frozenset(cpu for member in self.members for cpu in member.placed.cpus)


def _placed(name: str) -> PlacedMember:
    return PlacedMember(name, Member(name, name, 1.0, 1, IsolationSettings()), (0,), None, f"solo:{name}:0")
