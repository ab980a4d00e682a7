"""CPU use of an endpoint of a transfer, and the time it waited for a CPU although it was runnable."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.observed import Quantity
from profiler.probes.framing import number

BUSY_PERCENT = 90.0  # of a CPU: above, a single-threaded end cannot go much faster
WAITED_PERCENT = 2.0  # of the time: above, pauses may be this system's scheduler and not the hypervisor's
_SCHEDSTAT = Path("/proc/self/schedstat")  # ns on CPU, ns waiting, timeslices (Documentation/scheduler/sched-stats.rst)


@dataclass(frozen=True, slots=True)
class EndpointCpu:
    """Seconds of CPU, and seconds of waiting for it (None = this kernel does not tell), of the main thread."""

    cpu_s: float
    waited_s: float | None

    @classmethod
    def now(cls) -> EndpointCpu:
        """So far, since this process began."""
        try:
            waited: float | None = int(_SCHEDSTAT.read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            waited = None
        return cls(time.thread_time(), waited)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> EndpointCpu:
        """From the far end's answer; FramingError when that makes no sense."""
        waited = None if answer.get("waited_s") is None else number(answer, "waited_s", None, 0.0, 1e6)
        return cls(number(answer, "cpu_s", None, 0.0, 1e6), waited)

    def since(self, before: EndpointCpu) -> EndpointCpu:
        """The difference between two readings of one process."""
        known = self.waited_s is not None and before.waited_s is not None
        return EndpointCpu(self.cpu_s - before.cpu_s, self.waited_s - before.waited_s if known else None)  # type: ignore[operator]

    def document(self) -> dict[str, float | None]:
        """As it goes over the wire."""
        return {"cpu_s": max(0.0, self.cpu_s), "waited_s": self.waited_s}

    def values(self, end: str, seconds: float) -> dict[str, Quantity]:
        """Percent of `seconds` for the `sender` or the `receiver`."""
        used_s = {f"{end}_cpu": self.cpu_s, f"{end}_waited": self.waited_s}
        return {name: Quantity(100 * s / max(seconds, 1e-9), "%") for name, s in used_s.items() if s is not None}


def marks(values: Mapping[str, Quantity]) -> list[str]:
    """Marks for an end that used its CPU nearly all the time, or that waited for a CPU of its own system."""
    texts = []
    for end in ("sender", "receiver"):
        cpu, waited = values.get(f"{end}_cpu"), values.get(f"{end}_waited")
        if cpu is not None and cpu.value > BUSY_PERCENT:
            texts.append(f"the {end} used {cpu.value:.0f} % of a CPU: it may have been the limit, not the path")
        if waited is not None and waited.value > WAITED_PERCENT:
            texts.append(
                f"the {end} waited {waited.value:.1f} % of the time for a CPU of its own system (processes beside it,"
                " a cap): pauses may be that, and not the hypervisor below"
            )
    return texts
