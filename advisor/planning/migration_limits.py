"""Limits of migrations: how many at once in all, per host and per rack, and how much network they may use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from advisor.domain import Host, PlanRequest
from advisor.planning.label_number import label_number

NETWORK_LABEL = "migration_mbit"  # of a host: the speed of the network that its migrations use


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """At most `at_once` moves in a stage, `per_host` to or from one host, `per_rack` to or from one rack.

    A rack is one value of the label `rack_label`; hosts without it are in no rack. `host_mbit` and `rack_mbit` are the
    Mbit/s that all moves into, or out of, a host or a rack may use together. None = not limited.
    """

    at_once: int
    per_host: int = 1
    per_rack: int | None = None
    rack_label: str = "rack"
    host_mbit: float | None = None
    rack_mbit: float | None = None

    @classmethod
    def of(cls, request: PlanRequest) -> MigrationLimits:
        """As a request demands."""
        return cls(
            request.at_once,
            request.at_once_per_host,
            request.at_once_per_rack,
            request.rack_label,
            request.migration_mbit,
            request.rack_mbit,
        )

    def rack(self, host: Host) -> str:
        """The rack of a host, "" = none."""
        return host.labels.get(self.rack_label, "")

    def most(self, what: object) -> float:
        """How many moves may share this: "moves" = a stage, ("rack", name), or the position of a host."""
        if what == "moves":
            return self.at_once
        if isinstance(what, tuple):
            return math.inf if self.per_rack is None or not what[1] else self.per_rack
        return self.per_host

    def network_mbit(self, host: Host) -> float | None:
        """What moves may use of a host's network, None where its speed is not known."""
        return network_of(host, self.host_mbit)


def network_of(host: Host, most_mbit: float | None) -> float | None:
    """Mbit/s of a host's network for its moves, at most `most_mbit`; None where its speed is not known."""
    labelled = label_number(host.labels, NETWORK_LABEL)
    speeds = [speed for speed in (most_mbit, labelled or host.nic_mbit) if speed]
    return min(speeds, default=None)
