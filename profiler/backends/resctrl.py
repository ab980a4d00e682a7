"""Last-level cache and memory bandwidth of instances, by the monitoring groups that others made in resctrl; read-only.

libvirt makes a group for each `<monitor>` of a guest's `<cachetune>`, container runtimes one for a container whose
`intelRdt` asks for monitoring. Their names do not matter here: the threads in a group say whose it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from profiler.backends.linux import or_none, read_parsed
from profiler.backends.source import HostSource
from profiler.backends.stalls import CounterGrowth
from profiler.parse.resctrl import parse_monitor, parse_tasks

RESCTRL = "/sys/fs/resctrl"
_NOT_GROUPS = frozenset({"info", "mon_groups", "mon_data"})
_ENOUGH = 0.9  # of an instance's threads that must be in its groups: new threads may come between two files


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """What resctrl counts for one instance: bytes in the last-level caches now, bytes moved to and from memory so far.

    None where the processor does not count it.
    """

    cache_bytes: int | None
    memory_bytes: int | None


class ResctrlReader:
    """Reads the groups of instances, reading after reading."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._growths: dict[str, CounterGrowth] = {}

    def is_there(self) -> bool:
        """Whether resctrl is mounted and monitors."""
        return or_none(self._source.names, f"{RESCTRL}/info/L3_MON") is not None

    def read(self, threads: Mapping[str, Collection[int]], absent: dict[str, str]) -> dict[str, CacheCounters]:
        """Counters by instance, from the threads that each of them has; `absent` says why one has none."""
        groups = self._groups()
        counters: dict[str, CacheCounters] = {}
        owners = {thread: name for name, tids in threads.items() for thread in tids}
        for name, tids in threads.items():
            folders = _own(groups, frozenset(tids), owners)
            if not folders:
                absent[name] = "no monitoring group of resctrl holds its threads and no others"
                continue
            cache = [self._sum(folder, "llc_occupancy") for folder in folders]
            memory = [self._memory(folder) for folder in folders]
            counters[name] = CacheCounters(
                sum(value or 0 for value in cache) if None not in cache else None,
                sum(value or 0 for value in memory) if None not in memory else None,
            )
        self._growths = {folder: growth for folder, growth in self._growths.items() if folder in groups}
        return counters

    def _groups(self) -> dict[str, frozenset[int]]:
        """Threads by folder of a group; a control group holds those of its monitoring groups as well."""
        groups: dict[str, frozenset[int]] = {}
        for folder in self._folders():
            threads = read_parsed({}, folder, self._source, f"{folder}/tasks", parse_tasks)
            if threads:
                groups[folder] = threads
        return groups

    def _folders(self) -> Iterator[str]:
        """Monitoring groups, and control groups except the root, which holds every task that is in no other."""
        controls = [name for name in self._names(RESCTRL) if name not in _NOT_GROUPS]
        for above in (RESCTRL, *(f"{RESCTRL}/{name}" for name in controls)):
            if above != RESCTRL:
                yield above
            yield from (f"{above}/mon_groups/{name}" for name in self._names(f"{above}/mon_groups"))

    def _names(self, folder: str) -> list[str]:
        return or_none(self._source.names, folder) or []

    def _sum(self, folder: str, event: str) -> int | None:
        """Of all domains (caches) of the host; None where one has no value."""
        values = self._values(folder, event)
        return None if values is None else sum(values.values())

    def _memory(self, folder: str) -> int | None:
        values = self._values(folder, "mbm_total_bytes")
        if values is None:
            return None
        return self._growths.setdefault(folder, CounterGrowth()).add(values)

    def _values(self, folder: str, event: str) -> dict[str, int] | None:
        domains = [name for name in self._names(f"{folder}/mon_data") if name.startswith("mon_L3_")]
        values: dict[str, int] = {}
        for domain in domains:
            where = f"{folder}/mon_data/{domain}/{event}"
            value = read_parsed({}, where, self._source, where, parse_monitor)
            if value is None:
                return None
            values[domain] = value
        return values or None


def _own(groups: Mapping[str, frozenset[int]], tids: frozenset[int], owners: Mapping[int, str]) -> list[str]:
    """The groups that hold threads of this instance and of no other, if together they hold nearly all of its threads.

    A control group that is the instance's alone stands for its monitoring groups. Threads without an owner may be new.
    """
    own = [
        folder
        for folder, threads in groups.items()
        if len(threads & tids) >= _ENOUGH * len(threads) and all(tid in tids for tid in threads if tid in owners)
    ]
    tops = [folder for folder in own if not any(folder.startswith(f"{other}/") for other in own if other != folder)]
    held = {thread for folder in tops for thread in groups[folder] if thread in tids}
    return tops if tids and len(held) >= _ENOUGH * len(tids) else []
