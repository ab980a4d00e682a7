"""What a migration costs, in the unit of what a move gains: harm, on average over the time in which it must pay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.domain import Band
from advisor.planning.assignment.packing_problem import Kinds, PackingProblem
from advisor.planning.migration_limits import network_of
from advisor.planning.migration_time import MB_PER_MBIT, PAUSE_S, copy_time
from advisor.scheduling.scoring import harm

# A VM loses about a tenth of its CPU while its memory is copied (Beloglazov and Buyya, Concurrency and Computation 24,
# 2012, after the measurements of Voorsluys et al., CloudCom 2009).
SLOWED = 0.1
# CPUs that copying takes on each of both hosts: vSphere sets 30 % of a core apart for vMotion over 1 Gbit/s, and a
# whole core over 10 Gbit/s (VMware, vSphere vMotion Architecture, Performance and Best Practices, 2011).
CPUS_AT_1_GBIT, CPUS_AT_10_GBIT = 0.3, 1.0
ASSUMED_MBIT = 1000.0  # of a host whose network is not known
RESTART_S = 30.0  # a container is stopped and started anew: without service for so long; assumed
UNPAYABLE = Band(math.inf, math.inf, math.inf)  # its memory is written faster than it is copied


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """The costs of moves in one problem, each spread over `pays_within_s` seconds.

    `host_mbit` is the most that moves may use of a host's network, None = as the host says.
    """

    problem: PackingProblem
    pays_within_s: float
    host_mbit: float | None = None

    def of(self, kind: int, source: int, target: int, residents: tuple[Kinds, Kinds]) -> Band:
        """The cost of a move; `residents` are those of both hosts before it.

        While its memory is copied the instance is slowed, at the end it pauses, and others lose what copying takes of
        CPUs that they want. The range is that of the copy's duration; nothing pays for one that never ends.
        """
        ends = [self.problem.snapshot.hosts[at] for at in (source, target)]
        if any(host.kind == "lxc" for host in ends):
            return Band(*(3 * (RESTART_S / self.pays_within_s,)))
        mbit = min(network_of(host, self.host_mbit) or ASSUMED_MBIT for host in ends)
        seconds = copy_time(self.problem.kinds[kind], mbit * MB_PER_MBIT)
        if seconds is None:
            return UNPAYABLE
        others = sum(self._lost(at, there, mbit, kind) for at, there in zip((source, target), residents, strict=True))

        def cost(copied_s: float) -> float:
            own = SLOWED * copied_s + min(PAUSE_S, copied_s)
            return float(harm(own, own + others * copied_s)) / self.pays_within_s

        return Band(cost(seconds.expected), cost(seconds.lower), cost(seconds.upper))

    def _lost(self, host: int, residents: Kinds, mbit: float, mover: int) -> float:
        """What all residents but the mover lose together of their speed while a host copies, per second.

        What copying takes of busy CPUs is missing from all that want them, in proportion to what each wants.
        """
        demands = [float(self.problem.cpus[kind, self.problem.class_of_host[host]]) for kind in residents]
        takes, pcpus = copying_cpus(mbit), self.problem.snapshot.hosts[host].pcpus
        asked = sum(demands) + takes
        missing = min(max(asked - pcpus, 0.0), takes)
        others = sum(cpus > 0 for cpus in demands) - (mover in residents)
        return max(others, 0) * missing / asked


def copying_cpus(mbit: float) -> float:
    """CPUs that a host uses to send or receive memory at so many Mbit/s."""
    gbit = mbit / 1000
    if gbit <= 1:
        return CPUS_AT_1_GBIT * gbit
    return CPUS_AT_1_GBIT + (CPUS_AT_10_GBIT - CPUS_AT_1_GBIT) * (gbit - 1) / 9


def less(gain: Band, costs: Sequence[Band]) -> Band:
    """A gain without what it costs, at the edges of both that are worse together."""
    if not costs:
        return gain
    return Band(
        gain.expected - sum(cost.expected for cost in costs),
        gain.lower - sum(cost.upper for cost in costs),
        gain.upper - sum(cost.lower for cost in costs),
    )
