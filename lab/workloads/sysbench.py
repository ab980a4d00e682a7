"""sysbench: prime numbers for the CPU, blocks beyond the caches for memory, and loops of several kinds in LuaJIT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import PROGRAMS, LocalWorkload, Progress, Site, WorkloadResult, find_number, whole_seconds

_MB_PER_MIB = 1.048576
_ENDLESS = "--memory-total-size=1000000T"  # the time ends it, not the amount
_USUAL_KB = {"spin": 0, "stream": 131_072, "chase": 256, "sort": 16_384, "garbage": 8_192, "encode": 4_096}
_LEAST_KB = 64
_MOST_KB = 1 << 20


def _command(site: Site, seconds: float, rate: float | None, test: list[str]) -> list[str]:
    limit = [] if rate is None else [f"--rate={max(1, round(rate))}"]
    timing = [f"--threads={site.vcpus}", f"--time={whole_seconds(seconds)}", "--percentile=95", *limit]
    return ["sysbench", *test, *timing, "run"]


def _latency(output: str) -> tuple[float, float]:
    """Mean and 95th percentile in ms; the mean from its parts, because sysbench prints only two decimals of it."""
    total_ms = find_number(r"sum:\s+([\d.]+)", output, "sysbench")
    events = find_number(r"total number of events:\s+([\d.]+)", output, "sysbench")
    if events == 0:
        raise RunError("sysbench finished no event in its time")
    return total_ms / events, find_number(r"95th percentile:\s+([\d.]+)", output, "sysbench")


class _Sysbench(LocalWorkload, Protocol):
    """What all of them share."""

    __slots__ = ()

    tools: ClassVar[tuple[str, ...]] = ("sysbench",)


@dataclass(frozen=True, slots=True)
class CpuWorkload(_Sysbench):
    """Counts prime numbers: no memory, no I/O."""

    kind: ClassVar[str] = "cpu"
    unit: ClassVar[str] = "events/s"

    max_prime: int = 10_000

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        return cls(fields.whole("max_prime", 10_000))

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        return _command(site, seconds, rate, ["cpu", f"--cpu-max-prime={self.max_prime}"])

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        return WorkloadResult(find_number(r"events per second:\s+([\d.]+)", output, "sysbench"), *_latency(output))


@dataclass(frozen=True, slots=True)
class MemoryWorkload(_Sysbench):
    """Writes a block from end to end, again and again; `block_mb` above the last cache makes it memory-bound."""

    kind: ClassVar[str] = "memory"
    unit: ClassVar[str] = "MB/s"

    block_mb: int = 64

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        return cls(fields.whole("block_mb", 64, most=1 << 20))

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        blocks = None if rate is None else rate / self.block_mb / _MB_PER_MIB
        test = ["memory", f"--memory-block-size={self.block_mb}M", _ENDLESS, "--memory-oper=write"]
        return _command(site, seconds, blocks, test)

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        mib_s = find_number(r"transferred \(([\d.]+) MiB/sec\)", output, "sysbench")
        return WorkloadResult(mib_s * _MB_PER_MIB, *_latency(output))


@dataclass(frozen=True, slots=True)
class LoopWorkload(_Sysbench):
    """A loop of one kind of work that counts what it has done (programs/loop.lua), on `kb` of memory.

    `work_kind` is prime numbers (`spin`), copying (`stream`), a walk from cache line to cache line (`chase`), sorting
    (`sort`), trees of objects for a garbage collector (`garbage`), or the motion search of a video encoder (`encode`).
    """

    kind: ClassVar[str] = "loop"
    unit: ClassVar[str] = "events/s"
    progress: ClassVar[Progress] = "counted"

    work_kind: str = "spin"
    kb: int = 0

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        work = fields.choice("work", tuple(_USUAL_KB), "spin")
        usual = _USUAL_KB[work]
        return cls(work, fields.whole("kb", usual, least=_LEAST_KB, most=_MOST_KB) if usual else 0)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        script = str(PROGRAMS / "loop.lua")
        return _command(site, seconds, rate, [script, f"--work={self.work_kind}", f"--kb={self.kb}"])

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        events = find_number(r"total number of events:\s+(\d+)", output, "sysbench")
        seconds = find_number(r"total time:\s+([\d.]+)s", output, "sysbench")
        p95_ms = find_number(r"95th percentile:\s+([\d.]+)", output, "sysbench")
        return WorkloadResult(events / seconds, latency_p95_ms=p95_ms)
