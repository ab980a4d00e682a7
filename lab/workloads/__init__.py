"""The workloads that campaigns can name, by kind; one file per program."""

from lab.workloads.base import Listens, Reached, Served, Site, Workload
from lab.workloads.bulk import Bulk
from lab.workloads.disk import Disk, DiskMix
from lab.workloads.game import Game, GameMap
from lab.workloads.keyvalue import KeyValue
from lab.workloads.probe import Probe
from lab.workloads.stream import Stream
from lab.workloads.sysbench import Cpu, Memory
from lab.workloads.web import Web

_KINDS: tuple[type[Workload], ...] = (
    Web, Cpu, Memory, Disk, DiskMix, Bulk, KeyValue, Game, GameMap, Stream, Probe,
)  # fmt: skip
KINDS: dict[str, type[Workload]] = {kind.kind: kind for kind in _KINDS}

__all__ = [
    "KINDS", "Bulk", "Cpu", "Disk", "DiskMix", "Game", "GameMap", "KeyValue", "Listens", "Memory", "Probe", "Reached",
    "Served", "Site", "Stream", "Web", "Workload",
]  # fmt: skip
