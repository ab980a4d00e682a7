"""The interface of the lab's workloads: programs to run, a readiness check, and how to read the result."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, Self

from lab.errors import RunError
from lab.fields import Fields

Listens = tuple[Literal["tcp", "udp"], int]
"""Transport and port that a server waits on."""

ENDLESS_S = 3600
"""Longer than any measured window: the lab ends a program that works so long."""
PROGRAMS = Path(__file__).with_name("programs")
"""The lab's own programs, each a file that runs by itself."""
Progress = Literal["counted", "sent", "packets", "io"]
"""What grows with the work while it runs.

A counter that the program keeps in a file, the bytes or the packets that its server sent, or the bytes that its system
calls read and wrote.
"""
_CHUNK = 1 << 20
_SHOWN = 300  # characters of a tool's output that an error repeats


@dataclass(frozen=True, slots=True)
class Site:
    """Where a workload runs: what is in `files` stays for the whole campaign, `directory` is this instance's own."""

    position: int
    files: Path
    directory: Path
    address: str
    vcpus: int


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """What a workload reached in its measured time, throughput in the workload's unit; None = not reported.

    `further` is what a workload reports beyond the outcomes of the dataset format: name -> (value, unit).
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
    """Whether it can be asked for less than the most it reaches; a kind that cannot has no part load."""
    tools: ClassVar[tuple[str, ...]]
    """Programs it needs."""

    @property
    def progress(self) -> Progress | None:
        """What an on/off measurement reads its progress from; None = it shows none and is measured in blocks."""
        return None

    @property
    def unit(self) -> str:
        """The unit of its throughput."""

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

    def disk_mb(self) -> float:
        """Space that its files need."""
        return 0.0

    def prepare(self, _site: Site, /) -> None:
        """Make the files it needs, once per campaign."""
        return

    def server(self, site: Site, /) -> list[str] | None:
        """The program that serves, inside the instance; None = nothing serves."""

    def ready_check(self, _site: Site, /) -> list[str] | None:
        """A program on the load generators' side that succeeds once the server answers; None = an open port will do."""
        return None

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        """The program that works, or makes the load; `rate` is in the workload's unit, None = as fast as it can."""

    def fill(self, site: Site, rate: float | None, /) -> list[str] | None:
        """The program that does the same work before and after the measured time, until it is ended; None = none."""
        return self.work(site, ENDLESS_S, rate)

    def read(self, output: str, rate: float | None, /) -> WorkloadResult:
        """The result from what `work` printed; RunError when that is not its report."""


class LocalWorkload(Workload, Protocol):
    """A workload that works by itself: nothing serves, and no load comes from outside."""

    __slots__ = ()

    has_generator: ClassVar[bool] = False

    @property
    def listens(self) -> Listens | None:
        return None

    def server(self, _site: Site, /) -> list[str] | None:
        return None


class ServedWorkload(Workload, Protocol):
    """A server in the instance, and a load generator outside it."""

    __slots__ = ()

    has_generator: ClassVar[bool] = True


def program(name: str, *arguments: object) -> list[str]:
    """The command that runs one of the lab's own programs, which need Python's standard library only."""
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


@contextmanager
def report_of(output: str, tool: str) -> Iterator[Any]:
    """The JSON object at the end of a tool's output; RunError where it is missing, or has not what is read from it."""
    try:
        yield json.loads(output[output.index("{") :])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise RunError(f"{tool} printed no report: {excerpt(output)}") from None


def excerpt(output: str) -> str:
    """The end of a tool's output on one line."""
    return " ".join(output.split())[-_SHOWN:] or "nothing at all"


def fill_file(path: Path, size: int) -> None:
    """Make a file of random data, which no layer below can compress or leave out; a file of this size is kept."""
    if path.exists() and path.stat().st_size == size:
        return
    chunk = os.urandom(min(size, _CHUNK))
    with path.open("wb") as file:
        left = size
        while left > 0:
            left -= file.write(chunk[:left])
        file.flush()
        os.fsync(file.fileno())
