"""Substitutes for Xen's event channel on KVM: exits and injected interrupts, or wake-ups of QEMU's threads."""

from __future__ import annotations

from collections.abc import Mapping

from profiler.backends.base import TaskCounters
from profiler.backends.linux import GONE, reason
from profiler.backends.source import HostSource
from profiler.parse.proc import parse_counter, parse_status
from profiler.parse.text import ParseError

# Sums over all VMs that run (kernel: virt/kvm/kvm_main.c, vcpu_stat_get).
KVM_COUNTERS = ("/sys/kernel/debug/kvm/exits", "/sys/kernel/debug/kvm/irq_injections")
_ENDED = "a VM ended and took its counts out of KVM's sums"


class Events:
    """Makes a count that only grows of sources that do not; stays with the source that the first reading found.

    `kvm` False: the guests are emulated, so that KVM's sums are those of other guests.
    """

    def __init__(self, source: HostSource, *, kvm: bool = True) -> None:
        self._source = source
        self._kvm: bool | None = None if kvm else False
        self._last = 0
        self._wakes = 0
        self._threads: dict[str, tuple[int, int]] = {}  # timeslices and voluntary switches by thread

    def read(self, threads: Mapping[str, TaskCounters], absent: dict[str, str], hidden: str = "") -> int | None:
        """Events so far; `threads` are all QEMU threads by number, `hidden` says why some of them are not seen."""
        if self._kvm is None:
            self._kvm = self._kvm_total({}) is not None
        if self._kvm:
            return self._by_kvm(absent)
        if hidden:
            absent["events"] = hidden
            return None
        return self._by_wakes(threads, absent)

    def _kvm_total(self, absent: dict[str, str]) -> int | None:
        try:
            return sum(parse_counter(self._source.read(path), path) for path in KVM_COUNTERS)
        except (OSError, ParseError) as error:
            absent["events"] = reason(error)
            return None

    def _by_kvm(self, absent: dict[str, str]) -> int | None:
        total = self._kvm_total(absent)
        if total is None:
            return None
        ended, self._last = total < self._last, total
        if ended:  # how much was lost is unknown, and so are the events of this reading
            absent["events"] = _ENDED
            return None
        return total

    def _by_wakes(self, threads: Mapping[str, TaskCounters], absent: dict[str, str]) -> int | None:
        """Voluntary switches: each ends with a wake by an eventfd, a signal, a timer or a lock.

        `status` is read only of threads that ran, as it costs several times as much as `schedstat`. The history of a
        thread that is seen for the first time is not counted.
        """
        seen: dict[str, tuple[int, int]] = {}
        for tid, task in threads.items():
            before = self._threads.get(tid)
            if before is not None and before[0] == task.timeslices:
                seen[tid] = before
                continue
            where = f"/proc/{tid}/task/{tid}/status"
            try:
                voluntary = parse_status(self._source.read(where), where).voluntary
            except (OSError, ParseError) as error:
                if isinstance(error, OSError) and error.errno in GONE:
                    continue  # it ended
                absent["events"] = reason(error)
                return None
            self._wakes += max(0, voluntary - before[1]) if before is not None else 0
            seen[tid] = (task.timeslices, voluntary)
        self._threads = seen
        return self._wakes
