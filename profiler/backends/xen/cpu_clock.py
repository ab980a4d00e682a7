"""A monotonic CPU time of Xen domains, combined from two sources. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from profiler.backends.xen.trace import SchedulerTrace
from profiler.parse.xl import ListedDomain


@dataclass(slots=True)
class _DomainClock:
    total_ns: int
    listed_ns: int  # what xl list showed …
    base_ns: int  # … when the total was this
    traced_ns: int | None = None


class CpuClock:
    """Cumulative run time by domain: from the trace for each interval that it covers, else from `xl list`.

    The trace is exact; xl resolves 0.1 s. Each interval has one source, so that a change of source makes no jump.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, _DomainClock] = {}
        self.busy_ns = 0  # run time of all domains, ended ones included
        self.traced = False  # the trace knew all domains at the last reading, so it can know the next interval

    def count(self, domains: Mapping[int, ListedDomain], trace: SchedulerTrace) -> None:
        """Go on to the present reading. Rows of `domains` may be older than it while the trace covers the interval."""
        traced: dict[int, int] = {}
        if not trace.problem:
            by_domain = trace.states.times()
            traced = {domid: sum(vcpu.run_ns for vcpu in vcpus.values()) for domid, vcpus in by_domain.items()}
        for domid, row in domains.items():
            clock = self._clocks.get(domid)
            if clock is None:
                clock = self._clocks[domid] = _DomainClock(row.cpu_ns, row.cpu_ns, row.cpu_ns, traced.get(domid))
                self.busy_ns += row.cpu_ns
                continue
            self.busy_ns += self._advance(clock, row.cpu_ns, traced.get(domid))
        for domid in set(self._clocks) - set(domains):
            del self._clocks[domid]
        self.traced = traced.keys() >= domains.keys()

    @staticmethod
    def _advance(clock: _DomainClock, listed_ns: int, traced_ns: int | None) -> int:
        before = clock.total_ns
        if traced_ns is not None and clock.traced_ns is not None and traced_ns >= clock.traced_ns:
            clock.total_ns += traced_ns - clock.traced_ns
        else:
            clock.total_ns = max(before, clock.base_ns + listed_ns - clock.listed_ns)
        if listed_ns != clock.listed_ns:
            clock.listed_ns, clock.base_ns = listed_ns, clock.total_ns
        clock.traced_ns = traced_ns
        return clock.total_ns - before

    def total_ns(self, domid: int) -> int:
        """Run time of a domain that the last `count` was given."""
        return self._clocks[domid].total_ns
