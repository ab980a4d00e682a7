"""Counters of stalls, shared by all backends: when to read them, where from, and by how much they grew."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from profiler.backends.linux import attempt, or_none, read_parsed
from profiler.backends.netlink import queues_by_interface
from profiler.backends.source import HostSource
from profiler.parse.proc import DiskTimes, InterfaceBytes, parse_blkio_ticks, parse_counter

_AGAIN_S = 9.5  # with a reading per second, they are read in every tenth
_LOOK_AGAIN_S = 60.0  # between two looks whether the kernel counts delays
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DELAYS_SWITCH = "/proc/sys/kernel/task_delayacct"
DELAYS_OFF = "delays are not counted (sysctl kernel.task_delayacct=1, before 5.14 without nodelayacct)"


class SlowCounters:
    """Counters beyond the eight metrics, with those of the reading before. They are read in the first two readings and
    then every ten seconds, over which their rates are taken."""

    def __init__(self) -> None:
        self.counters: Mapping[str, int] = {}
        self.gauges: Mapping[str, float] = {}
        self.absent: Mapping[str, str] = {}
        self.since: tuple[Mapping[str, int], float] | None = None
        self._read_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Whether they are to be read now."""
        return self._read_s is None or self.since is None or not 0 <= now_s - self._read_s < _AGAIN_S

    def take(
        self, counters: Mapping[str, int], gauges: Mapping[str, float], absent: Mapping[str, str], now_s: float
    ) -> None:
        """Keep what was read now."""
        before, before_s = self.counters, self._read_s
        self.counters, self.gauges, self.absent, self._read_s = counters, gauges, absent, now_s
        self.since = None if before_s is None or now_s <= before_s else (before, now_s - before_s)


class CounterGrowth:
    """By how much counters grew, all together. One that ran backwards began anew; a new one grew by nothing yet."""

    def __init__(self) -> None:
        self._total = 0
        self._last: Mapping[str, int] = {}

    def add(self, counts: Mapping[str, int]) -> int:
        """The growth so far, after these counts by key."""
        for key, now in counts.items():
            before = self._last.get(key, now)
            self._total += now - before if now >= before else now
        self._last = dict(counts)
        return self._total


class DiskRequests:
    """Requests and flushes of one instance's disks, and for how long they waited."""

    def __init__(self) -> None:
        self._waits, self._requests, self._flushes = CounterGrowth(), CounterGrowth(), CounterGrowth()

    def add(self, disks: Mapping[str, DiskTimes], counters: dict[str, int]) -> None:
        """Add what these disks show: disk_wait_us, disk_requests and disk_flushes."""
        counters["disk_wait_us"] = self._waits.add({name: disk.waited_ns for name, disk in disks.items()}) // 1000
        counters["disk_requests"] = self._requests.add({name: disk.requests for name, disk in disks.items()})
        counters["disk_flushes"] = self._flushes.add({name: disk.flushes for name, disk in disks.items()})


class TaskWaits:
    """For how long tasks waited, all together, in ticks.

    A step longer than the time that passed is left out: a task that was moved here brings its past, and Linux 6.18 was
    seen to add the time since boot once. A task that ends takes its last wait with it.
    """

    def __init__(self) -> None:
        self._total = 0
        self._last: Mapping[str, int] | None = None
        self._last_s = 0.0

    def add(self, ticks: Mapping[str, int], now_s: float) -> int:
        """The waits so far, after these ticks by task."""
        most = (now_s - self._last_s) * _TICKS_PER_S + 1
        if self._last is not None:
            steps = [now - self._last.get(task, 0) for task, now in ticks.items()]
            self._total += sum(step for step in steps if 0 <= step <= most)
        self._last, self._last_s = dict(ticks), now_s
        return self._total


class HostQueues:
    """The queues of this host's interfaces, read at most once in a reading, and only when needed."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._found: Mapping[str, Sequence[int]] | None = None
        self._absent: dict[str, str] = {}
        self._asked = False

    def begin(self) -> None:
        """A new reading."""
        self._asked = False

    def find(self, absent: dict[str, str]) -> Mapping[str, Sequence[int]] | None:
        """Bytes that wait and packets dropped by interface; None with the reason in `absent`."""
        if not self._asked:
            self._asked, self._absent = True, {}
            self._found = attempt(
                self._absent, "net_backlog_bytes", self._source.value, "queues by interface", queues_by_interface
            )
        absent.update(self._absent)
        return self._found


class InterfaceStalls:
    """Packets that one instance's interfaces and their queues dropped, and bytes that wait in these now."""

    def __init__(self, queues: HostQueues | None) -> None:
        """`queues` None: the interfaces are in another namespace, and their backlog is not known."""
        self._queues = queues
        self._drops = CounterGrowth()

    def read(
        self,
        interfaces: Mapping[str, InterfaceBytes],
        counters: dict[str, int],
        gauges: dict[str, float],
        absent: dict[str, str],
    ) -> None:
        """Add what these interfaces show: net_drops and net_backlog_bytes."""
        drops = {name: interface.dropped for name, interface in interfaces.items()}
        queues = self._queues.find(absent) if self._queues else None
        if queues is not None:
            own = {name: queues[name] for name in interfaces if name in queues}
            drops |= {f"queue of {name}": queue[1] for name, queue in own.items()}
            gauges["net_backlog_bytes"] = float(sum(queue[0] for queue in own.values()))
        counters["net_drops"] = self._drops.add(drops)


class TaskDelays:
    """Whether this kernel counts for how long tasks wait for block I/O: it is off by default since 5.14."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._looked_s: float | None = None
        self._off = ""

    def off(self, now_s: float) -> str:
        """Why the kernel does not count them; empty = it does."""
        if self._looked_s is None or not 0 <= now_s - self._looked_s < _LOOK_AGAIN_S:
            self._looked_s, self._off = now_s, "" if self._counts() else DELAYS_OFF
        return self._off

    def _counts(self) -> bool:
        text = or_none(self._source.read, DELAYS_SWITCH)
        if text is not None:
            return or_none(parse_counter, text, DELAYS_SWITCH) == 1
        # the first process has surely waited for a disk
        return bool(read_parsed({}, "", self._source, "/proc/1/stat", parse_blkio_ticks))
