"""Loops of one kind of work that count what they have done: compiled by sysbench's LuaJIT (programs/loop.lua)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from lab.fields import Fields
from lab.workloads.base import PROGRAMS, LocalWorkload, Progress, Site, WorkloadResult, find_number, whole_seconds

_USUAL_KB = {"spin": 0, "stream": 131_072, "chase": 256, "sort": 16_384, "garbage": 8_192, "encode": 4_096}
_LEAST_KB = 64
_MOST_KB = 1 << 20


@dataclass(frozen=True, slots=True)
class LoopWorkload(LocalWorkload):
    """`work` on `kb` of memory: prime numbers (`spin`), copying (`stream`), a walk from cache line to cache line
    (`chase`), sorting, trees of objects for a garbage collector, or the motion search of a video encoder."""

    kind: ClassVar[str] = "loop"
    unit: ClassVar[str] = "events/s"
    takes_rate: ClassVar[bool] = True
    progress: ClassVar[Progress] = "counted"

    work_kind: str = "spin"
    kb: int = 0

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        work = fields.choice("work", tuple(_USUAL_KB), "spin")
        usual = _USUAL_KB[work]
        return cls(work, fields.whole("kb", usual, least=_LEAST_KB, most=_MOST_KB) if usual else 0)

    def tools(self, _load: float, /) -> tuple[str, ...]:
        return ("sysbench",)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        return [
            "sysbench", str(PROGRAMS / "loop.lua"), f"--work={self.work_kind}", f"--kb={self.kb}",
            f"--threads={site.vcpus}", f"--time={whole_seconds(seconds)}", "--percentile=95",
            *([] if rate is None else [f"--rate={max(1, round(rate))}"]), "run",
        ]  # fmt: skip

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        events = find_number(r"total number of events:\s+(\d+)", output, "sysbench")
        seconds = find_number(r"total time:\s+([\d.]+)s", output, "sysbench")
        p95_ms = find_number(r"95th percentile:\s+([\d.]+)", output, "sysbench")
        return WorkloadResult(events / seconds, latency_p95_ms=p95_ms)
