"""Reads a container's network traffic: at the host's ends of its veth pairs, or inside its namespace."""

from __future__ import annotations

from profiler.backends.linux import attempt, or_none, read_interfaces
from profiler.backends.netlink import namespace_id, veths_by_namespace
from profiler.backends.source import HostSource
from profiler.backends.stalls import HostQueues, InterfaceStalls
from profiler.parse.proc import InterfaceBytes

_KEEP_S = 60.0  # how long the owner of an interface is taken as known, while the interface exists
_HOSTS_OWN = "it uses the host's own network, where its traffic cannot be separated"
_UNSEEN = "it has no task whose network namespace could be read"
_MOVED = "its traffic is counted at another place since this reading"


class HostInterfaces:
    """The host's interfaces, read at most once per reading, and only when needed."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self.network: str | None = None  # the host's network namespace
        self.queues = HostQueues(source)
        self._bytes: dict[str, InterfaceBytes] | None = None
        self._veths: dict[str, list[str]] | None = None

    def begin(self) -> None:
        """A new reading."""
        self._bytes = self._veths = None
        self.queues.begin()
        # Where even root may not see the first process's namespace, it is our own.
        links = (or_none(self._source.link, f"/proc/{process}/ns/net") for process in ("1", "self"))
        self.network = next((link for link in links if link is not None), None)

    def total(self, names: tuple[str, ...]) -> int | None:
        """Bytes in both directions over these interfaces; None when one of them is not there."""
        counts = self.find(names)
        return None if counts is None else sum([link.received + link.sent for link in counts.values()])

    def find(self, names: tuple[str, ...]) -> dict[str, InterfaceBytes] | None:
        """What these interfaces counted; None when one of them is not there."""
        if self._bytes is None:
            self._bytes = or_none(read_interfaces, self._source) or {}
        counts = {name: self._bytes[name] for name in names if name in self._bytes}
        return counts if names and len(counts) == len(names) else None

    def ends_of(self, tid: int) -> tuple[str, ...]:
        """This side of the veth pairs whose other side is in the network namespace of a task."""
        if self._veths is None:
            self._veths = or_none(self._source.value, "veths by namespace", veths_by_namespace) or {}
        if not self._veths:
            return ()
        number = or_none(self._source.value, f"network namespace of {tid}", lambda: namespace_id(tid))
        return tuple(self._veths.get(str(number), ()))


class ContainerTraffic:
    """Bytes in and out of one container.

    The host's ends of its veth pairs are read where they are known to carry everything: that takes one file for all
    containers, and opens nothing in a container's namespace. Else its own namespace is read.
    """

    def __init__(self, source: HostSource, host: HostInterfaces) -> None:
        self._source = source
        self._host = host
        self._ends: tuple[str, ...] = ()
        self._task: int | None = None  # one in the container's network namespace
        self._looked_s = 0.0
        self._place: object = None  # where the last count was taken: counts of two places have no difference
        self._stalls = InterfaceStalls(host.queues)
        self._stalls_inside = InterfaceStalls(None)

    def read(self, tids: tuple[int, ...], now_s: float, absent: dict[str, str]) -> int | None:
        """Cumulative bytes; None, with a reason in `absent`, where unknown or not comparable with the last count."""
        if self._task not in tids or not 0 <= now_s - self._looked_s < _KEEP_S:
            self._look(tids, now_s, absent)
        total, place = self._host.total(self._ends), self._ends
        if total is None and self._ends:  # its interface was exchanged
            self._look(tids, now_s, absent)
            total, place = self._host.total(self._ends), self._ends
        if total is None and self._task is not None:
            inside = self._inside(self._task, absent)
            total, place = (None if inside is None else sum(inside.values())), ("inside",)
        if total is None:
            self._task = None
            return None
        moved = self._place is not None and self._place != place
        self._place = place
        if moved:
            absent["net_bytes"] = _MOVED
        return None if moved else total

    def read_stalls(self, counters: dict[str, int], gauges: dict[str, float], absent: dict[str, str]) -> None:
        """Add drops and backlog, from the place where its bytes were counted in the same reading, if any."""
        outside = self._host.find(self._ends)
        if outside is not None:
            self._stalls.read(outside, counters, gauges, absent)
        elif self._task is not None and (inside := self._interfaces(self._task, {})) is not None:
            absent["net_backlog_bytes"] = "its interfaces have no end on the host that carries everything"
            self._stalls_inside.read(inside, counters, gauges, absent)

    def _look(self, tids: tuple[int, ...], now_s: float, absent: dict[str, str]) -> None:
        """Find a task that shows the container's namespace, and the host's ends of its pairs."""
        self._looked_s = now_s
        self._ends = ()
        self._task = self._find_task(tids, absent)
        if self._task is None:
            return
        ends = self._host.ends_of(self._task)
        inside = self._inside(self._task, {}) if ends else None
        if inside is not None and sum(1 for count in inside.values() if count) <= len(ends):
            self._ends = ends  # no interface of another kind carried anything

    def _find_task(self, tids: tuple[int, ...], absent: dict[str, str]) -> int | None:
        if self._host.network is None:
            absent["net_bytes"] = "the host's own network namespace could not be read (run as root)"
            return None
        for tid in tids:
            network = or_none(self._source.link, f"/proc/{tid}/ns/net")
            if network == self._host.network:
                absent["net_bytes"] = _HOSTS_OWN
                return None
            if network is not None:
                return tid
        absent["net_bytes"] = _UNSEEN
        return None

    def _inside(self, tid: int, absent: dict[str, str]) -> dict[str, int] | None:
        """Bytes by interface in a task's network namespace, without the loopback."""
        counts = self._interfaces(tid, absent)
        return None if counts is None else {name: link.received + link.sent for name, link in counts.items()}

    def _interfaces(self, tid: int, absent: dict[str, str]) -> dict[str, InterfaceBytes] | None:
        counts = attempt(absent, "net_bytes", read_interfaces, self._source, str(tid))
        return None if counts is None else {name: link for name, link in counts.items() if name != "lo"}
