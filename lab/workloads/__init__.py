"""The workloads that campaigns can use, by kind; one module per program."""

from lab.workloads.base import Listens, Progress, Site, Workload, WorkloadResult
from lab.workloads.build import BuildWorkload
from lab.workloads.bulk import BulkWorkload
from lab.workloads.database import DatabaseWorkload
from lab.workloads.disk import DiskMixWorkload, DiskWorkload
from lab.workloads.game import GameMapWorkload, GameWorkload
from lab.workloads.keyvalue import KeyValueWorkload
from lab.workloads.probe import ProbeWorkload
from lab.workloads.stream import StreamWorkload
from lab.workloads.sysbench import CpuWorkload, LoopWorkload, MemoryWorkload
from lab.workloads.web import WebWorkload

_KINDS: tuple[type[Workload], ...] = (
    WebWorkload, CpuWorkload, MemoryWorkload, DiskWorkload, DiskMixWorkload, BulkWorkload, KeyValueWorkload,
    GameWorkload, GameMapWorkload, StreamWorkload, ProbeWorkload, LoopWorkload, BuildWorkload, DatabaseWorkload,
)  # fmt: skip
KINDS: dict[str, type[Workload]] = {kind.kind: kind for kind in _KINDS}

__all__ = [
    "KINDS",
    "BuildWorkload",
    "BulkWorkload",
    "CpuWorkload",
    "DatabaseWorkload",
    "DiskMixWorkload",
    "DiskWorkload",
    "GameMapWorkload",
    "GameWorkload",
    "KeyValueWorkload",
    "Listens",
    "LoopWorkload",
    "MemoryWorkload",
    "ProbeWorkload",
    "Progress",
    "Site",
    "StreamWorkload",
    "WebWorkload",
    "Workload",
    "WorkloadResult",
]  # fmt: skip
