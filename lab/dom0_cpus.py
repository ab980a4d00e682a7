"""Which pCPUs the driver domain of a Xen host has: its vCPUs, one for each pCPU, and their affinity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.campaign import Cpus
from lab.errors import PreparationError
from profiler.observed import format_cpus
from profiler.parse.xen import parse_vcpu_list

DOM0 = "Domain-0"


@dataclass(frozen=True, slots=True)
class Dom0Cpus:
    """Dom0's vCPUs: how many are online, the most that the boot line lets it have, and the pCPUs they may use.

    `cpus` None = all of them.
    """

    online: int
    most: int
    cpus: Cpus | None

    @classmethod
    def parse(cls, listed: str) -> Dom0Cpus:
        """From what `xl vcpu-list Domain-0` prints; ParseError for anything else."""
        rows = [row for (domain, _), row in parse_vcpu_list(listed, "xl vcpu-list").items() if domain == 0]
        allowed = {row.hard for row in rows if row.cpu is not None}
        cpus = None if not allowed or None in allowed else sorted({cpu for hard in allowed for cpu in hard or ()})
        return cls(sum(row.cpu is not None for row in rows), len(rows), None if cpus is None else tuple(cpus))

    def check(self, cpus: Cpus) -> None:
        """Raise PreparationError where Dom0 was not booted with so many vCPUs."""
        if len(cpus) > self.most:
            raise PreparationError(
                f"driver {format_cpus(cpus)} takes {len(cpus)} vCPUs of Dom0, which was booted with {self.most}:"
                f" boot it with dom0_max_vcpus={len(cpus)}, or name fewer CPUs"
            )


def move_commands(now: int, then: int, cpus: Sequence[int] | None) -> list[list[str]]:
    """Commands that give Dom0 `then` vCPUs, not `now`, on these pCPUs (None = all), as the advisor renders them."""
    count = ["xl", "vcpu-set", DOM0, str(then)]
    pin = ["xl", "vcpu-pin", DOM0, "all", "all" if cpus is None else format_cpus(tuple(cpus))]
    if now == then:
        return [pin]
    return [count, pin] if then < now else [pin, count]
