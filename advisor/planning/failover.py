"""Failover reserve: how many of a mix fit while every instance of hosts that fail together still finds another host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, combinations

from advisor.domain import SpareCapacity, WhatIf
from advisor.planning.assignment.local_search import SearchClock
from advisor.planning.place_beside import place_beside
from advisor.planning.plan_context import PlanContext
from advisor.planning.what_if import imagine
from advisor.snapshot import ClusterSnapshot

MAX_FAILURES = 2_000  # sets of hosts that fail together: with more, each number would take minutes
Failure = tuple[str, ...]  # ids of the hosts that fail together
Filled = Callable[[int], ClusterSnapshot]  # the cloud with so many of the mix


def failures_of(snapshot: ClusterSnapshot, spare_hosts: int, spare_label: str | None) -> list[Failure]:
    """Every set of hosts that may fail together: so many at a time, or all of so many values of a label.

    Hosts without the label fail alone. An empty host that fails loses no instance, but others lose its room.
    """
    groups: dict[str, list[str]] = {}
    for host in snapshot.hosts:
        groups.setdefault(host.labels.get(spare_label or "", f" {host.id}"), []).append(host.id)
    together = combinations(groups.values(), min(spare_hosts, len(groups)))
    return [tuple(chain.from_iterable(several)) for several in together]


@dataclass(slots=True)
class FailoverSearch:
    """Looks for the largest number of the mix with which every failure is survived.

    `first` is the failure that was not survived last: it is tried first, because it likely is not survived again.
    """

    context: PlanContext
    clock: SearchClock
    filled: Filled
    first: Failure = ()

    def most(self, fit: int) -> SpareCapacity:
        """From 0 by bisection up to what fits without a reserve; a number counts only where all failures were tried."""
        best, too_many, reason, number = -1, fit + 1, "", 0
        while best + 1 < too_many and not self.clock.over:
            why = self._not_survived(self.filled(number))
            if why is None:
                break
            if why:
                too_many, reason = number, why
            else:
                best = number
            number = (best + too_many) // 2
        request = self.context.request
        reason = reason or ("no further instance fits at all" if best == fit else _LATE)
        return SpareCapacity(
            request.spare_hosts, request.spare_label, None if best < 0 else best, min(too_many, fit + 1), reason
        )

    def _not_survived(self, cloud: ClusterSnapshot) -> str | None:
        """What happens in a failure that is not survived, "" = all are; None where the time ended before that."""
        request = self.context.request
        failures = failures_of(cloud, request.spare_hosts, request.spare_label)
        for failure in sorted(failures, key=lambda hosts: hosts != self.first):
            if self.clock.over:
                return None
            homeless, unplaced = self._homeless(cloud, failure)
            if unplaced and self.clock.over:
                return None  # an instance that was not tried in time may still find a host
            if unplaced:
                self.first = failure
                names = " and ".join(failure[:3]) + (f" and {len(failure) - 3} more" if len(failure) > 3 else "")
                fail = "fails" if len(failure) == 1 else "fail"
                find = "finds" if unplaced == 1 else "find"
                return f"if {names} {fail}, {unplaced} of {homeless} instances {find} no other host"
        return ""

    def _homeless(self, cloud: ClusterSnapshot, failure: Failure) -> tuple[int, int]:
        """How many instances lose their hosts, and for how many of them no other host is found."""
        lost = sum(
            len(residents) for host, residents in zip(cloud.hosts, cloud.residents, strict=True) if host.id in failure
        )
        if not lost or len(failure) == len(cloud.hosts):
            return lost, lost
        left, homeless, _ = imagine(cloud, WhatIf(remove=failure))
        return len(homeless), len(place_beside(self.context, left, homeless, self.clock).refused)


_LATE = "the time limit was reached before all failures were tried"
