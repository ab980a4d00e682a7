"""What libvirt says of a host: `virsh nodeinfo` and capabilities into numbers; no I/O."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass

from profiler.host_kinds import Groups
from profiler.observed import MAX_CPUS, parse_cpus
from profiler.parse.libvirt import xml_count, xml_root
from profiler.parse.text import ParseError, count


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What `virsh nodeinfo` says of a host."""

    cpus: int
    threads_per_core: int
    memory_mb: float
    mhz: float | None


def parse_nodeinfo(text: str, where: str = "virsh nodeinfo") -> NodeInfo:
    """Read the lines of `virsh nodeinfo`, as it prints them in the C locale."""
    fields = {name.strip(): value.split() for name, _, value in (line.partition(":") for line in text.splitlines())}

    def number(name: str) -> int:
        if not fields.get(name):
            raise ParseError("host information", where, 1, f"no line {name!r}")
        return count(fields[name][0], "host information", where)

    cpus, memory_kib = number("CPU(s)"), number("Memory size")
    if not 1 <= cpus <= MAX_CPUS or not memory_kib:
        raise ParseError("host information", where, 1, f"{cpus} CPUs and {memory_kib} KiB are not a host's")
    mhz = number("CPU frequency") if fields.get("CPU frequency") else 0
    return NodeInfo(cpus, max(1, number("Thread(s) per core")), memory_kib / 1024, float(mhz) or None)


def parse_cells(text: str, where: str = "virsh capabilities") -> tuple[tuple[int, ...], ...]:
    """The CPUs of each NUMA node (libvirt: formatcaps), in order of the nodes' numbers.

    Of a CPU that is offline libvirt shows nothing but its number.
    """
    cells = xml_root(text, where, "capabilities").findall("host/topology/cells/cell")
    tells_more = any(cpu.get("siblings") for cell in cells for cpu in cell.iterfind("cpus/cpu"))
    by_node = {
        xml_count(cell.get("id"), where): tuple(
            sorted(
                xml_count(cpu.get("id"), where)
                for cpu in cell.iterfind("cpus/cpu")
                if cpu.get("siblings") or not tells_more
            )
        )
        for cell in cells
    }
    return tuple(by_node[node] for node in sorted(by_node))


def parse_siblings(text: str, where: str = "virsh capabilities") -> Groups:
    """The CPUs of each core that has several (libvirt: formatcaps, `siblings`)."""
    cpus = xml_root(text, where, "capabilities").findall("host/topology/cells/cell/cpus/cpu")
    try:
        cores = {parse_cpus(each) for cpu in cpus if (each := cpu.get("siblings"))}
    except ValueError as error:
        raise ParseError("host capabilities", where, 1, str(error)) from None
    return tuple(sorted(core for core in cores if len(core) > 1))


def parse_huge_pages(text: str, where: str = "virsh capabilities") -> dict[int, int]:
    """How many huge pages of each size in KiB a host has, used or not (formatcaps); the smallest pages of a cell are
    none."""
    total: Counter[int] = Counter()
    for cell in xml_root(text, where, "capabilities").findall("host/topology/cells/cell"):
        pages = [(xml_count(each.get("size"), where), xml_count(each.text, where)) for each in cell.iterfind("pages")]
        smallest = min((kib for kib, _ in pages), default=0)
        total.update({kib: number for kib, number in pages if kib > smallest})
    return {kib: number for kib, number in total.items() if number > 0}


def parse_cpu_name(text: str, where: str = "virsh capabilities") -> str:
    """A short name that hosts with the same model and features of CPUs share; empty where none is reported."""
    cpu = xml_root(text, where, "capabilities").find("host/cpu")
    if cpu is None or not cpu.findtext("model"):
        return ""
    stated = [cpu.findtext(name) or "" for name in ("arch", "vendor", "model")]
    features = sorted(feature.get("name") or "" for feature in cpu.iterfind("feature"))
    return f"{stated[2][:40]}-{hashlib.sha256('/'.join((*stated, *features)).encode()).hexdigest()[:8]}"
