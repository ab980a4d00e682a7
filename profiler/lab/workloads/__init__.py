"""The workloads that campaigns can name, by kind; one file per program."""

from profiler.lab.workloads.base import Reached, Site, Workload
from profiler.lab.workloads.disk import Disk
from profiler.lab.workloads.sysbench import Cpu, Memory
from profiler.lab.workloads.web import Web

KINDS: dict[str, type[Web] | type[Cpu] | type[Memory] | type[Disk]] = {
    kind.kind: kind for kind in (Web, Cpu, Memory, Disk)
}

__all__ = ["KINDS", "Cpu", "Disk", "Memory", "Reached", "Site", "Web", "Workload"]
