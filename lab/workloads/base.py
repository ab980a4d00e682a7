"""The interface of the lab's workloads: programs to run, a readiness check, and how to read the result."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

from lab.errors import RunError
from lab.fields import Fields

Listens = tuple[Literal["tcp", "udp"], int]
"""Transport and port that a server waits on."""

ENDLESS_S = 3600
"""Longer than any measured window: who works so long is ended by the lab."""
PROGRAMS = Path(__file__).with_name("programs")
"""Where the lab's own programs are, each a file that runs by itself."""
Progress = Literal["counted", "sent", "packets", "io"]
"""What grows with the work while it runs: a counter that the program keeps in a file, what its server sent in bytes or
packets, or the bytes that its system calls have read and written."""
_CHUNK = 1 << 20
_SHOWN = 300  # characters of a tool's output that an error repeats


@dataclass(frozen=True, slots=True)
class Site:
    """Where a workload runs: `files` are kept over the whole campaign, `directory` is this instance's own."""

    position: int
    files: Path
    directory: Path
    address: str
    vcpus: int


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """What a workload reached in its measured time, throughput in the workload's unit; None = not reported.

    `further` is what a workload tells beyond the outcomes of the dataset format: name -> (value, unit).
    """

    throughput: float
    latency_mean_ms: float | None = None
    latency_p95_ms: float | None = None
    jitter_ms: float | None = None
    timeouts_percent: float | None = None
    runtime_s: float | None = None
    further: Mapping[str, tuple[float, str]] = field(default_factory=dict)

    def outcomes(self) -> dict[str, float]:
        """Outcomes of the dataset format that are known."""
        values = {
            "throughput": self.throughput,
            "latency_mean_ms": self.latency_mean_ms,
            "latency_p95_ms": self.latency_p95_ms,
            "jitter_ms": self.jitter_ms,
            "timeouts_percent": self.timeouts_percent,
            "runtime_s": self.runtime_s,
        }
        return {name: value for name, value in values.items() if value is not None}


class Workload(Protocol):
    """A kind of work with its parameters. Frozen: all state lies in the Site.

    Every program stays in the foreground, so that it dies with the lab, and writes only below the Site's folders.
    """

    __slots__ = ()

    kind: ClassVar[str]
    lead_s: ClassVar[float] = 0.0
    """How long the measuring program needs from its start until it works; it is started that much earlier."""
    takes_rate: ClassVar[bool] = True
    """Whether it can be asked for less than it reaches at most; who cannot has no part load."""

    @property
    def progress(self) -> Progress | None:
        """By what on/off measurement follows it; None = by nothing, it can only be measured in blocks."""
        return None

    @property
    def unit(self) -> str:
        """Of its throughput."""

    @property
    def fixed(self) -> bool:
        """Whether the measuring program ends when its work is done, rather than after the time it is given."""
        return False

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        """Read its own parameters of a campaign file; CampaignError names a wrong one."""

    @property
    def has_generator(self) -> bool:
        """Whether the load comes from outside the instance."""

    @property
    def listens(self) -> Listens | None:
        """What the server waits on once it is ready; None = nothing serves."""

    def tools(self, load: float, /) -> tuple[str, ...]:
        """Programs it needs."""

    def disk_mb(self) -> float:
        """Space that its files need."""
        return 0.0

    def prepare(self, _site: Site, /) -> None:
        """Make the files it needs, once per campaign."""
        return

    def server(self, site: Site, /) -> list[str] | None:
        """Program that serves, inside the instance; None = the work itself is the program."""

    def ready_check(self, _site: Site, /) -> list[str] | None:
        """Program on the load generators' side that succeeds once the server answers; None = that it waits will do."""
        return None

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        """Program that works, or makes the load; `rate` is in the workload's unit, None = as fast as it can."""

    def fill(self, site: Site, rate: float | None, /) -> list[str] | None:
        """The program that does the same work before and after the measured time, until it is ended; None = no
        program."""
        return self.work(site, ENDLESS_S, rate)

    def read(self, output: str, rate: float | None, /) -> WorkloadResult:
        """What the working program printed; RunError when it is not what it should be."""


class LocalWorkload(Workload, Protocol):
    """A workload that works by itself: nothing serves, and no load comes from outside."""

    __slots__ = ()

    @property
    def has_generator(self) -> bool:
        return False

    @property
    def listens(self) -> Listens | None:
        return None

    def server(self, _site: Site, /) -> list[str] | None:
        return None


class ServedWorkload(Workload, Protocol):
    """A server in the instance, and a load generator outside it."""

    __slots__ = ()

    @property
    def has_generator(self) -> bool:
        return True


def program(name: str, *arguments: object) -> list[str]:
    """Command that runs one of the lab's own programs: a file that needs nothing but Python's standard library."""
    return [sys.executable, "-I", "-S", "-B", str(PROGRAMS / f"{name}.py"), *map(str, arguments)]


def whole_seconds(seconds: float) -> int:
    """For tools that take whole seconds only."""
    return max(1, round(seconds))


def find_number(pattern: str, output: str, tool: str) -> float:
    """The number that a pattern's first group finds in a tool's output."""
    match = re.search(pattern, output)
    if match is None:
        raise RunError(f"{tool} printed no {pattern!r}: {excerpt(output)}")
    return float(match[1])


def read_report(output: str, tool: str) -> dict[str, Any]:
    """The JSON object at the end of a tool's output; RunError when there is none."""
    try:
        report = json.loads(output[output.index("{") :])
    except ValueError:
        raise RunError(f"{tool} printed no report: {excerpt(output)}") from None
    if not isinstance(report, dict):
        raise RunError(f"{tool} printed no report: {excerpt(output)}")
    return report


def excerpt(output: str) -> str:
    """The end of a tool's output on one line."""
    return " ".join(output.split())[-_SHOWN:] or "nothing at all"


def fill_file(path: Path, size: int) -> None:
    """Make a file of random data, which no layer below can compress or leave out; one that has its size is kept."""
    if path.exists() and path.stat().st_size == size:
        return
    chunk = os.urandom(min(size, _CHUNK))
    with path.open("wb") as file:
        left = size
        while left > 0:
            left -= file.write(chunk[:left])
        file.flush()
        os.fsync(file.fileno())
