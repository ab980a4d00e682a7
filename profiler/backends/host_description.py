"""Describes a host: CPUs, sockets, NUMA nodes, caches, memory, links, disks and kernel, from /proc, /sys and xl."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from profiler import host_kinds
from profiler.backends.commands import run_tool
from profiler.backends.linux import or_none, read_interfaces
from profiler.backends.lxc.control_groups import cgroup_version
from profiler.backends.sources import HostSource
from profiler.host_kinds import TRAITS, Groups, HostKind
from profiler.names import name_label
from profiler.observed import DiskKind, parse_cpus
from profiler.parse.text import ParseError
from profiler.parse.xen import XlInfo, parse_xl_info, parse_xl_topology

_KINDS: Mapping[str, HostKind] = {traits.backend: kind for kind, traits in TRAITS.items()}
_CPUS = "/sys/devices/system/cpu"
_HUGE_PAGES = "/sys/kernel/mm/hugepages"
_NODES = "/sys/devices/system/node"
_ISOLATED_PARTITIONS = "/sys/fs/cgroup/cpuset.cpus.isolated"  # in the root group only (kernel: cgroup-v2.rst)
_MOST = 64  # NICs, disks, NUMA nodes, and caches of one CPU that are read
_TEXT = 255  # characters of a label
_SECTOR = 512  # bytes, whatever the disk's own are (kernel: Documentation/block/stat)
_GHZ = re.compile(r"@ ?(\d+(?:\.\d+)?) ?GHz")
_PARTITION = re.compile(r"((nvme|mmcblk)\d+.*p\d+|(sd|hd|vd|xvd)[a-z]+\d+|(loop|ram|zram|dm-|md|sr|fd).*)\Z")


@dataclass(frozen=True, slots=True)
class HostDescription:
    """What a host shows of itself; None or empty = it does not. Fields are those of `profiler.observed.Host`.

    `labels` are texts: kernel, CPU model, sockets, links and disks.
    """

    kind: HostKind
    pcpus: int | None = None
    memory_mb: float | None = None
    threads_per_core: int | None = None
    cpu_mhz: float | None = None
    turbo_mhz: float | None = None
    l2_mb: float | None = None
    l3_mb: float | None = None
    nic_mbit: float | None = None
    disk_kind: DiskKind = ""
    numa: Groups = ()
    siblings: Groups = ()
    cpu_ids: tuple[int, ...] = ()
    isolated_cpus: tuple[int, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def describe_host(backend: str, source: HostSource) -> HostDescription:
    """Read this host; what cannot be read is left out. A Dom0 sees its own CPUs only, so Xen itself is asked."""
    files = _HostFiles(source)
    cpus = files.cpus()
    model = files.model()
    links, disks = files.links(), files.disks()
    _, disk_kind = max(disks.values(), key=lambda disk: disk[0], default=(0.0, ""))
    labels = {
        "name": name_label(files.text("/proc/sys/kernel/hostname")).get("name", ""),
        "kernel": files.text("/proc/sys/kernel/osrelease"),
        "cpu_model": model,
        "sockets": files.sockets(cpus),
        "cgroup_version": "" if backend == "xen" else cgroup_version(source),
        **({} if backend == "xen" else files.huge_pages()),
        "links": " ".join(f"{name}:{mbit:g}" for name, mbit in sorted(links.items())),
        "disks": " ".join(f"{name}:{kind or 'unknown'}:{gb:.0f}" for name, (gb, kind) in sorted(disks.items())),
    }
    l2, l3 = files.caches(cpus)
    siblings = files.siblings(cpus)
    described = HostDescription(
        kind=_KINDS[backend],
        pcpus=len(cpus) or None,
        memory_mb=files.memory_mb(),
        threads_per_core=max(map(len, siblings), default=0) or files.threads(cpus),
        cpu_mhz=files.mhz(model, cpus),
        turbo_mhz=files.turbo_mhz(cpus),
        l2_mb=l2,
        l3_mb=l3,
        nic_mbit=max(links.values(), default=0.0) or None,
        disk_kind=disk_kind,
        numa=files.numa(cpus),
        siblings=siblings,
        cpu_ids=_with_gaps(cpus),
        isolated_cpus=files.isolated(cpus),
        labels={name: _printable(text) for name, text in labels.items() if text},
    )
    return _as_xen_says(described, source) if backend == "xen" else described


def _as_xen_says(seen: HostDescription, source: HostSource) -> HostDescription:
    """Dom0 has CPUs and memory of its own; those of the host are in `xl info`."""
    try:
        info = parse_xl_info(str(source.value("xl info", lambda: run_tool(("xl", "info")))), "xl info")
    except (OSError, ParseError):
        return HostDescription(seen.kind, nic_mbit=seen.nic_mbit, disk_kind=seen.disk_kind, labels=seen.labels)
    numa, siblings = _xen_topology(source, info)
    cpus = tuple(sorted(cpu for node in numa for cpu in node))
    if len(cpus) != info.pcpus:
        cpus, numa, siblings = (), (), ()
    return replace(
        seen, pcpus=info.pcpus, memory_mb=float(info.memory_mb), threads_per_core=info.threads_per_core,
        cpu_mhz=info.cpu_mhz, turbo_mhz=None, l3_mb=None, numa=numa if len(numa) > 1 else (), siblings=siblings,
        cpu_ids=_with_gaps(cpus), isolated_cpus=(),
        labels={**seen.labels, "xen": info.version, "scheduler": info.scheduler},
    )  # fmt: skip


def _xen_topology(source: HostSource, info: XlInfo) -> tuple[Groups, Groups]:
    """The CPUs of each node, and of each core with several, as Xen numbers them; empty where neither their numbers may
    have gaps nor cores have threads."""
    if info.max_cpu_id < info.pcpus and info.threads_per_core == 1:
        return (), ()
    text = or_none(source.value, "xl info -n", lambda: run_tool(("xl", "info", "-n")))
    found = or_none(parse_xl_topology, text, "xl info -n") if isinstance(text, str) else None
    return found or ((), ())


def _with_gaps(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of CPUs where they are not 0, 1, 2 and so on, else empty."""
    return () if cpus == tuple(range(len(cpus))) else cpus


def cpu_model(source: HostSource) -> str:
    """The CPU's name as the label `cpu_model` of the host has it; empty = it is not reported."""
    return _printable(_HostFiles(source).model())


def default_page_kib(source: HostSource) -> int:
    """The size of huge pages that a guest gets which asks for no size (kernel: hugetlbpage.rst, Hugepagesize)."""
    match = re.search(r"^Hugepagesize: +(\d{1,9}) kB$", _HostFiles(source).text("/proc/meminfo"), re.MULTILINE)
    return int(match[1]) if match else host_kinds.DEFAULT_KIB


class _HostFiles:
    """Reads the files of a host; what cannot be read is left out."""

    def __init__(self, source: HostSource) -> None:
        self._source = source

    def text(self, path: str) -> str:
        """The file without blanks around it; empty where it cannot be read."""
        return (or_none(self._source.read, path) or "").strip()

    def number(self, path: str) -> float:
        """The number in a file; 0 where there is none."""
        text = self.text(path)
        return float(text) if re.fullmatch(r"\d{1,15}", text) else 0.0

    def cpus(self) -> tuple[int, ...]:
        return self._list(f"{_CPUS}/online")

    def isolated(self, cpus: tuple[int, ...]) -> tuple[int, ...]:
        """CPUs on which the scheduler puts no task by itself: those of isolcpus= and of isolated cpuset partitions.

        On those of nohz_full= alone it runs what it runs elsewhere (kernel: kernel/sched/isolation.c).
        """
        isolated = {*self._list(f"{_CPUS}/isolated"), *self._list(_ISOLATED_PARTITIONS)}
        return tuple(cpu for cpu in cpus if cpu in isolated)

    def siblings(self, cpus: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The CPUs of each core that has several: of a hybrid processor not all have. Empty unless each CPU says it."""
        lists = {self._siblings_of(cpu) for cpu in cpus}
        online = (tuple(cpu for cpu in core if cpu in cpus) for core in lists)
        return tuple(sorted(core for core in online if len(core) > 1)) if all(lists) else ()

    def threads(self, cpus: tuple[int, ...]) -> int | None:
        return len(self._siblings_of(min(cpus, default=0))) or None

    def _siblings_of(self, cpu: int) -> tuple[int, ...]:
        return self._list(f"{_CPUS}/cpu{cpu}/topology/thread_siblings_list")

    def sockets(self, cpus: tuple[int, ...]) -> str:
        packages = {self.text(f"{_CPUS}/cpu{cpu}/topology/physical_package_id") for cpu in cpus} - {""}
        return str(len(packages)) if packages else ""

    def memory_mb(self) -> float | None:
        match = re.search(r"^MemTotal: +(\d{1,15}) kB$", self.text("/proc/meminfo"), re.MULTILINE)
        return round(max(int(match[1]) / 1024, 1.0), 1) if match else None

    def huge_pages(self) -> dict[str, str]:
        """Labels for its pools of huge pages, and how many are on each NUMA node where it has several."""
        pages = self._pages(_HUGE_PAGES)
        labels = host_kinds.pools(pages)
        by_node = [self._pages(f"{_NODES}/node{node}/hugepages") for node in range(_MOST)]
        last = max((number for number, found in enumerate(by_node) if found), default=0)
        for kib in pages if last else ():
            counts = " ".join(str(found.get(kib, 0)) for found in by_node[: last + 1])
            labels[f"{host_kinds.name_of(kib)}_by_node"] = counts
        return labels

    def _pages(self, folder: str) -> dict[int, int]:
        """How many huge pages of each size in KiB stand in a folder of the kernel's, used or not (hugetlbpage.rst)."""
        found = {}
        for name in list(or_none(self._source.names, folder) or ())[:_MOST]:
            size = re.fullmatch(r"hugepages-(\d{1,9})kB", name)
            if size and (count := int(self.number(f"{folder}/{name}/nr_hugepages"))):
                found[int(size[1])] = count
        return found

    def model(self) -> str:
        return self._cpuinfo("model name")

    def mhz(self, model: str, cpus: tuple[int, ...]) -> float | None:
        """The nominal rate: the momentary one would change the description each time."""
        nominal = self._nominal_mhz(cpus) or self._highest_mhz(cpus)
        match = _GHZ.search(model)
        if nominal:
            return nominal
        if match:
            return float(match[1]) * 1000
        now = self._cpuinfo("cpu MHz")
        return round(float(now), -2) or None if re.fullmatch(r"\d{1,6}(\.\d+)?", now) else None

    def turbo_mhz(self, cpus: tuple[int, ...]) -> float | None:
        """The highest rate, where the kernel reports the nominal one beside it and turbo is not switched off.

        Without the nominal one the highest rate may be that, as with acpi-cpufreq, whose highest one may be the nominal
        rate though there is turbo. Virtual machines have neither.
        """
        off = self.text(f"{_CPUS}/intel_pstate/no_turbo") == "1" or self.text(f"{_CPUS}/cpufreq/boost") == "0"
        nominal, highest = self._nominal_mhz(cpus), self._highest_mhz(cpus)
        return highest if nominal and not off and highest > nominal else None

    def _nominal_mhz(self, cpus: tuple[int, ...]) -> float:
        """As Intel's driver reports it in kHz, else the firmware in MHz (acpi_cppc), as on AMD's servers; 0 = not."""
        cpu = f"{_CPUS}/cpu{min(cpus, default=0)}"
        return self.number(f"{cpu}/cpufreq/base_frequency") / 1000 or self.number(f"{cpu}/acpi_cppc/nominal_freq")

    def _highest_mhz(self, cpus: tuple[int, ...]) -> float:
        """0 = the kernel does not report it."""
        return self.number(f"{_CPUS}/cpu{min(cpus, default=0)}/cpufreq/cpuinfo_max_freq") / 1000

    def caches(self, cpus: tuple[int, ...]) -> tuple[float | None, float | None]:
        """MB of one second-level cache, and of all last-level ones together."""
        shared: dict[str, dict[str, float]] = {"2": {}, "3": {}}
        for cpu in cpus:
            for index in range(_MOST):
                cache = f"{_CPUS}/cpu{cpu}/cache/index{index}"
                level = self.text(f"{cache}/level")
                if not level:
                    break
                if level in shared and (match := re.fullmatch(r"(\d{1,9})K", self.text(f"{cache}/size"))):
                    shared[level][self.text(f"{cache}/shared_cpu_list")] = int(match[1]) / 1024
        second, last = shared["2"], shared["3"]
        return (max(second.values()) or None) if second else None, (sum(last.values()) or None) if last else None

    def numa(self, online: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        listed = [self._list(f"{_NODES}/node{node}/cpulist") for node in range(_MOST)]
        there = [tuple(cpu for cpu in cpus if cpu in online) for cpus in listed]
        nodes = tuple(cpus for cpus in there if cpus)
        return nodes if len(nodes) > 1 else ()

    def links(self) -> dict[str, float]:
        """Mbit/s of each physical interface and bond that is up and says how fast it is."""
        links = {}
        for name in list(or_none(read_interfaces, self._source) or ())[: 8 * _MOST]:
            folder = f"/sys/class/net/{name}"
            mbit = self.number(f"{folder}/speed")
            if mbit > 0 and self.text(f"{folder}/operstate") == "up" and self._is_physical(folder):
                links[name] = mbit
        return dict(list(links.items())[:_MOST])

    def disks(self) -> dict[str, tuple[float, DiskKind]]:
        """GB and kind of each whole disk."""
        kinds: dict[str, DiskKind] = {"1": "hdd", "0": "ssd"}
        disks: dict[str, tuple[float, DiskKind]] = {}
        for line in self.text("/proc/diskstats").splitlines():
            name = line.split()[2] if len(line.split()) > 2 else ""
            gb = self.number(f"/sys/block/{name}/size") * _SECTOR / 1e9 if _is_disk(name) else 0.0
            stacked = or_none(self._source.names, f"/sys/block/{name}/slaves") if gb > 0 else None
            if gb > 0 and not stacked and len(disks) < _MOST:
                # A disk of a hypervisor counts as rotating whatever it is.
                spins = self.text(f"/sys/block/{name}/queue/rotational") if name.startswith("sd") else ""
                disks[name] = gb, "nvme" if name.startswith("nvme") else kinds.get(spins, "")
        return disks

    def _is_physical(self, folder: str) -> bool:
        return bool(self.text(f"{folder}/bonding/mode") or or_none(self._source.link, f"{folder}/device"))

    def _list(self, path: str) -> tuple[int, ...]:
        try:
            return parse_cpus(self.text(path))
        except ValueError:
            return ()

    def _cpuinfo(self, name: str) -> str:
        first_cpu = self.text("/proc/cpuinfo").partition("\n\n")[0]
        match = re.search(rf"^{re.escape(name)}\s*: (.*)$", first_cpu, re.MULTILINE)
        return match[1].strip() if match else ""


def _is_disk(name: str) -> bool:
    return bool(name) and not _PARTITION.match(name)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)[:_TEXT]
