"""The workloads that campaigns can name, by kind; one file per program."""

from profiler.lab.workloads.base import Listens, Reached, Served, Site, Workload
from profiler.lab.workloads.bulk import Bulk
from profiler.lab.workloads.disk import Disk, DiskMix
from profiler.lab.workloads.game import Game, GameMap
from profiler.lab.workloads.keyvalue import KeyValue
from profiler.lab.workloads.probe import Probe
from profiler.lab.workloads.stream import Stream
from profiler.lab.workloads.sysbench import Cpu, Memory
from profiler.lab.workloads.web import Web

_KINDS: tuple[type[Workload], ...] = (
    Web, Cpu, Memory, Disk, DiskMix, Bulk, KeyValue, Game, GameMap, Stream, Probe,
)  # fmt: skip
KINDS: dict[str, type[Workload]] = {kind.kind: kind for kind in _KINDS}

__all__ = [
    "KINDS", "Bulk", "Cpu", "Disk", "DiskMix", "Game", "GameMap", "KeyValue", "Listens", "Memory", "Probe", "Reached",
    "Served", "Site", "Stream", "Web", "Workload",
]  # fmt: skip
