"""sysbench as CPU task (prime numbers) and as memory-bandwidth task (writing blocks beyond the caches)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import LocalWorkload, Site, WorkloadResult, find_number, whole_seconds

_MB_PER_MIB = 1.048576
_ENDLESS = "--memory-total-size=1000000T"  # the time ends it, not the amount


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
    """What both tasks share."""

    __slots__ = ()

    def tools(self, _load: float, /) -> tuple[str, ...]:
        return ("sysbench",)


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
