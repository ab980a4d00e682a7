"""A cloud of identical hosts during a replay, and lower bounds on the number of hosts."""

from __future__ import annotations

import math

import numpy as np

from advisor.domain import Host
from advisor.replay.trace import Trace
from advisor.rounding import with_slack
from models.arrays import Bools, Floats


class PackedCloud:
    """H identical hosts during a replay.

    `where` (I,) is the host of each instance, -1 = none; `used_vcpus` and `used_memory_mb` (H,) are what they hold.
    """

    def __init__(self, host: Host, hosts: int, trace: Trace) -> None:
        self.host = host
        self.where = np.full(len(trace), -1, dtype=np.int64)
        self.used_vcpus, self.used_memory_mb = np.zeros(hosts), np.zeros(hosts)
        self._vcpus, self._memory_mb = trace.vcpus, trace.memory_mb
        self.room_vcpus, self.room_memory_mb = room(host)

    def fits(self, who: int) -> Bools:
        """The hosts with room for an instance, (H,); every policy must respect it."""
        if self._vcpus[who] > self.host.pcpus:
            return np.zeros(len(self.used_vcpus), dtype=bool)
        return np.asarray(
            (self.used_vcpus + self._vcpus[who] <= with_slack(self.room_vcpus))
            & (self.used_memory_mb + self._memory_mb[who] <= with_slack(self.room_memory_mb))
        )

    def put(self, who: int, host: int) -> None:
        """Move an instance to a host, or remove it, -1."""
        for place, sign in ((int(self.where[who]), -1), (host, 1)):
            if place >= 0:
                self.used_vcpus[place] += sign * self._vcpus[who]
                self.used_memory_mb[place] += sign * self._memory_mb[who]
        self.where[who] = host


def room(host: Host) -> tuple[float, float]:
    """The vCPUs and MB that may be promised on a host."""
    return host.pcpus * host.cpu_overcommit, host.memory_mb * host.memory_overcommit


def fewest_by_size(trace: Trace, host: Host, step: int) -> int:
    """A lower bound by size on the hosts for one step."""
    there = trace.there(step)
    return max(
        bin_bound(size[there].astype(np.float64), most)
        for size, most in zip((trace.vcpus, trace.memory_mb), room(host), strict=True)
    )


def fewest_kept(trace: Trace, host: Host, step: int, keep_ratio: float) -> int:
    """A lower bound on the hosts that hold a step and serve every instance with `keep_ratio` of its demand."""
    there = trace.there(step)
    demand = float((np.minimum(trace.cpu[step][there], 1.0) * trace.vcpus[there]).sum())
    return max(fewest_by_size(trace, host, step), math.ceil(demand * keep_ratio / host.pcpus - 1e-9))


def bin_bound(sizes: Floats, room: float) -> int:
    """The bound L2 of Martello and Toth (1990) on the bins of `room`, at least the sum.

    Items larger than room - a share with none of at least a; items larger than half share with none of their like.
    """
    room = with_slack(room)
    sizes = np.sort(sizes[(sizes > 0) & (sizes <= room)])  # instances that fit nowhere are refused by every policy
    summed = np.concatenate([[0.0], np.cumsum(sizes)])
    half = int(np.searchsorted(sizes, room / 2, side="right"))  # from here on they are larger than half
    a = np.unique(sizes[:half])
    small, large = np.searchsorted(sizes, a), np.searchsorted(sizes, room - a, side="right")  # where each begins
    left = summed[half] - summed[small] - ((large - half) * room - (summed[large] - summed[half]))
    more = np.ceil(left / room).max(initial=0.0)
    return max(math.ceil(float(summed[-1]) / room), len(sizes) - half + int(more))
