"""What a workload of the lab is: programs to run, when it is ready, and how its outcome is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from profiler.lab.errors import RunError


@dataclass(frozen=True, slots=True)
class Site:
    """Where a workload runs: `files` are kept over the whole campaign, `directory` is this instance's own."""

    position: int
    files: Path
    directory: Path
    address: str
    vcpus: int


@dataclass(frozen=True, slots=True)
class Reached:
    """What a workload reached in its measured time, in the workload's unit; None = its tool does not tell."""

    throughput: float
    latency_mean_ms: float | None = None
    latency_p95_ms: float | None = None

    def outcomes(self) -> dict[str, float]:
        """Outcomes of the dataset format that are known."""
        values = {
            "throughput": self.throughput,
            "latency_mean_ms": self.latency_mean_ms,
            "latency_p95_ms": self.latency_p95_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


class Workload(Protocol):
    """A kind of work with its parameters. Frozen: all state lies in the Site."""

    kind: ClassVar[str]
    unit: ClassVar[str]
    lead_s: ClassVar[float]
    """How long the measuring program needs from its start until it works; it is started that much earlier."""

    @property
    def has_generator(self) -> bool:
        """Whether the load comes from outside the instance."""

    def tools(self, load: float, /) -> tuple[str, ...]:
        """Programs it needs."""

    def disk_mb(self) -> float:
        """Space that its files need."""

    def prepare(self, site: Site, /) -> None:
        """Make the files it needs, once per campaign."""

    def server(self, site: Site, /) -> list[str] | None:
        """Program that serves, inside the instance; None = the work itself is the program."""

    def is_ready(self, pid: int, /) -> bool:
        """Whether the server takes requests."""

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        """Program that works, or makes the load; `rate` is in the workload's unit, None = as fast as it can."""

    def read(self, output: str, rate: float | None, /) -> Reached:
        """What that program printed; RunError when it is not what it should be."""


class Local:
    """A workload that works by itself: nothing serves, and no load comes from outside."""

    __slots__ = ()

    @property
    def has_generator(self) -> bool:
        return False

    def server(self, _site: Site, /) -> list[str] | None:
        return None

    def is_ready(self, _pid: int, /) -> bool:
        return True


def find_number(pattern: str, output: str, tool: str) -> float:
    """The number that a pattern's first group finds in a tool's output."""
    match = re.search(pattern, output)
    if match is None:
        raise RunError(f"{tool} printed no {pattern!r}: {' '.join(output.split())[-300:] or 'nothing at all'}")
    return float(match[1])
