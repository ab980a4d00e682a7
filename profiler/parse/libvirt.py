"""libvirt's answers into numbers: domain XML and the dictionaries of bulk domain statistics; no I/O, no libvirt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from xml.etree import ElementTree as ET

from profiler.names import NO_DISK_LIMIT_BYTES, real_limit
from profiler.observed import MAX_CPUS, NEVER_MOVE_LABEL, format_cpus, parse_cpus
from profiler.parse.proc import DiskTimes, InterfaceBytes
from profiler.parse.text import COUNT_DIGITS, ParseError, count

# virDomainState (libvirt-domain.h): domains in other states cannot be read
ALIVE = {1: "running", 2: "blocked", 3: "paused", 4: "being shut down", 7: "suspended"}
_LARGEST_XML = 1 << 20  # a domain with a hundred disks has under 100 KB
_MOST_DEVICES = 1024
_TOP = 1 << 64
_NOVA = "{http://openstack.org/xmlns/libvirt/nova/1.1}"
_LONGEST_LABEL = 255
_CPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_UNIT = re.compile(r"(?:b|bytes?|(?P<power>[kmgtpe])(?:(?P<of_1024>i)?b)?)\Z", re.IGNORECASE)  # virScaleInteger


@dataclass(frozen=True, slots=True)
class DomainStats:
    """One domain's cumulative statistics; a missing value is None, and `absent` says why.

    `net_bytes` are both directions of all interfaces, `disk_bytes` read and written of all drives.
    """

    net_bytes: int | None
    disk_bytes: int | None
    absent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DomainRecord:
    """One line of the bulk answer; `id` is new with each start of a domain, until the host restarts."""

    id: int
    uuid: str
    name: str
    state: int
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What an interface may send, kilobytes (1024) per second: <bandwidth>, outbound."""

    average: int
    peak: int | None


@dataclass(frozen=True, slots=True)
class CpuNeed:
    """What a domain requires of CPUs: a model of libvirt's with features beside it, or (`whole_host`) all that its host
    has; neither = nothing."""

    model: str = ""
    features: tuple[str, ...] = ()
    whole_host: bool = False


ORDINARY_CPU = CpuNeed()


@dataclass(frozen=True, slots=True)
class DomainDescription:
    """What the XML of a running domain says; limits are bytes per second.

    `pins` are the pCPUs of each of its `vcpus`, in the order of their numbers, empty = any: those of its <vcpupin>,
    else those of <vcpu cpuset>. vCPUs that are not plugged in do not count, and where such ones leave gaps between the
    numbers of the others, the label `vcpu_ids` has the numbers.

    `bandwidths` has an entry per interface (None = unlimited), `disk_limits` one per disk (None = unlimited in one
    direction at least): read plus write; disks of one throttle group have one limit together.
    `direct_disks`: all drives are files or devices of the host and bypass its page cache, so that the kernel's counts
    for the QEMU process are what the guest reads and writes. `labels` name the image that its first disk was made of
    and, where Nova made it, the server's name, flavor and project. `quotas` are vcpu_quota, vcpu_period, global_quota
    and global_period in microseconds, as far as they are set. `huge_page_kib` is the size of the huge pages of which
    its memory is, 0 = the host's default, None = ordinary ones. `cpu` is what it requires of the host's CPUs.
    """

    vcpus: int
    memory_mb: float
    pins: tuple[tuple[int, ...], ...]
    bandwidths: tuple[Bandwidth | None, ...]
    disk_limits: tuple[int | None, ...]
    direct_disks: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    quotas: Mapping[str, int] = field(default_factory=dict)
    huge_page_kib: int | None = None
    cpu: CpuNeed = field(default_factory=lambda: ORDINARY_CPU)


def parse_records(answer: object, where: str = "libvirt domstats") -> list[DomainRecord]:
    """Read the bulk answer, a list of [id, uuid, name, {field: value}], into records in order of their names."""
    if not isinstance(answer, list):
        raise ParseError("domain statistics", where, 1, "a list of domains expected")
    return sorted(
        (_record(entry, where, number) for number, entry in enumerate(answer, 1)), key=lambda record: record.name
    )


def _record(entry: object, where: str, number: int) -> DomainRecord:
    if not isinstance(entry, list | tuple) or len(entry) != 4:
        raise ParseError("domain statistics", where, number, "id, uuid, name and statistics expected")
    identifier, uuid, name, stats = entry
    if not (
        isinstance(identifier, int) and isinstance(uuid, str) and isinstance(name, str) and isinstance(stats, dict)
    ):
        raise ParseError("domain statistics", where, number, "id, uuid, name or statistics are of the wrong type")
    return DomainRecord(identifier, uuid, name, _number(stats, "state.state", where, number) or 0, stats)


def parse_stats(stats: Mapping[str, Any], where: str = "libvirt domstats") -> DomainStats:
    """Read one domain's dictionary (virConnectGetAllDomainStats: interface, block)."""
    absent: dict[str, str] = {}
    values: dict[str, int | None] = {}
    for name, read in (("net_bytes", _net_bytes), ("disk_bytes", _disk_bytes)):
        try:
            values[name] = read(stats, where)
        except ParseError as error:
            absent[name] = str(error)
            values[name] = None
    return DomainStats(values["net_bytes"], values["disk_bytes"], absent)


def parse_disk_times(stats: Mapping[str, Any], where: str = "libvirt domstats") -> dict[str, DiskTimes]:
    """Read reads, writes and flushes of each drive (virConnectGetAllDomainStats: block) by the drive's name."""
    times: dict[str, DiskTimes] = {}
    for device in range(_devices(stats, "block", where)):
        requests, waited_ns = (
            [_number(stats, f"block.{device}.{kind}.{what}", where) for kind in ("rd", "wr", "fl")]
            for what in ("reqs", "times")
        )
        known = [count for count in (*requests, *waited_ns) if count is not None]
        if len(known) == len(requests) + len(waited_ns):
            times[str(stats.get(f"block.{device}.name", device))] = DiskTimes(sum(known[:3]), sum(known[3:]), known[2])
        elif known or f"block.{device}.path" in stats:  # a drive without a medium has neither path nor counters
            raise _lacking(f"QEMU gave no times of drive {device}", where)
    return times


def parse_interfaces(stats: Mapping[str, Any], where: str = "libvirt domstats") -> dict[str, InterfaceBytes]:
    """Read what the host's interfaces of a domain counted (group interface), by their names."""
    interfaces: dict[str, InterfaceBytes] = {}
    for device in range(_devices(stats, "net", where)):
        keys = [f"net.{device}.{side}.{what}" for what in ("bytes", "drop") for side in ("rx", "tx")]
        counts = [count for key in keys if (count := _number(stats, key, where)) is not None]
        name = stats.get(f"net.{device}.name")
        if len(counts) < len(keys) or not isinstance(name, str):
            raise _lacking(f"interface {device} has no counters on the host (passed through or user mode)", where)
        interfaces[name] = InterfaceBytes(counts[0], counts[1], counts[2] + counts[3])
    return interfaces


@dataclass(frozen=True, slots=True)
class HardwareStats:
    """A domain's hardware counters by libvirt; None = the domain's XML does not ask for it, or the host lacks it.

    `cycles` and `instructions` are those of all of QEMU, `cache_bytes` is current, `memory_bytes` cumulative.
    """

    cycles: int | None
    instructions: int | None
    cache_bytes: int | None
    memory_bytes: int | None


def parse_hardware(stats: Mapping[str, Any], vcpus: int, where: str = "libvirt domstats") -> HardwareStats:
    """Read the groups perf, cpu-total (`cache.monitor`) and memory (`bandwidth.monitor`) of a domain.

    Monitors count where they hold all its vCPUs, and each of them once. `perf.cmt` and `perf.mbmt` are those of kernels
    before 4.14, which have no monitors.
    """
    cache = _monitored(stats, "cpu.cache.monitor", "bank", "bytes", vcpus, where)
    memory = _monitored(stats, "memory.bandwidth.monitor", "node", "bytes.total", vcpus, where)
    return HardwareStats(
        _number(stats, "perf.cpu_cycles", where),
        _number(stats, "perf.instructions", where),
        _number(stats, "perf.cmt", where) if cache is None else cache,
        _number(stats, "perf.mbmt", where) if memory is None else memory,
    )


def _monitored(stats: Mapping[str, Any], group: str, part: str, what: str, vcpus: int, where: str) -> int | None:
    """The sum over the monitors of a group; a monitor of all vCPUs stands for those of some of them."""
    by_vcpus: dict[tuple[int, ...], int] = {}
    for monitor in range(min(_number(stats, f"{group}.count", where) or 0, _MOST_DEVICES)):
        prefix = f"{group}.{monitor}"
        parts = min(_number(stats, f"{prefix}.{part}.count", where) or 0, _MOST_DEVICES)
        values = [_number(stats, f"{prefix}.{part}.{index}.{what}", where) for index in range(parts)]
        known = [value for value in values if value is not None]
        if known and len(known) == parts:
            by_vcpus[_cpus(str(stats.get(f"{prefix}.vcpus", "")), where)] = sum(known)
    all_vcpus = tuple(range(vcpus))
    if all_vcpus in by_vcpus:
        return by_vcpus[all_vcpus]
    return sum(by_vcpus.values()) if sorted(chain.from_iterable(by_vcpus)) == list(all_vcpus) else None


def parse_vcpu_times(stats: Mapping[str, Any], where: str = "libvirt vcpustats") -> int:
    """Run time of all vCPUs in ns from one domain's dictionary (group vcpu)."""
    most = _number(stats, "vcpu.maximum", where)
    if not most or most > MAX_CPUS:
        raise _lacking("no vCPUs in the statistics", where)
    times = [_number(stats, f"vcpu.{vcpu}.time", where) for vcpu in range(most)]
    known = [time_ns for time_ns in times if time_ns is not None]  # vCPUs that are not plugged in have none
    if not known:
        raise _lacking("no times of vCPUs in the statistics", where)
    return sum(known)


def _net_bytes(stats: Mapping[str, Any], where: str) -> int:
    total = 0
    for device in range(_devices(stats, "net", where)):
        received = _number(stats, f"net.{device}.rx.bytes", where)
        sent = _number(stats, f"net.{device}.tx.bytes", where)
        if received is None or sent is None:
            raise _lacking(f"interface {device} has no counters on the host (passed through or user mode)", where)
        total += received + sent
    return total


def _disk_bytes(stats: Mapping[str, Any], where: str) -> int:
    total = 0
    for device in range(_devices(stats, "block", where)):
        read = _number(stats, f"block.{device}.rd.bytes", where)
        written = _number(stats, f"block.{device}.wr.bytes", where)
        if read is not None and written is not None:
            total += read + written
        elif f"block.{device}.path" in stats:  # a drive without a medium has neither path nor counters
            raise _lacking(f"QEMU gave no counters of drive {device} (another job of the domain kept it busy)", where)
    return total


def _devices(stats: Mapping[str, Any], group: str, where: str) -> int:
    number = _number(stats, f"{group}.count", where)
    if number is None:
        raise _lacking(f"no {group}.count in the statistics", where)
    if number > _MOST_DEVICES:
        raise _lacking(f"{group}.count {number} is more than a domain can have", where)
    return number


def _lacking(reason: str, where: str) -> ParseError:
    return ParseError("domain statistics", where, 1, reason)


def _number(stats: Mapping[str, Any], key: str, where: str, line: int = 1) -> int | None:
    value = stats.get(key)
    if value is None or (type(value) is int and 0 <= value < _TOP):
        return value
    raise ParseError("domain statistics", where, line, f"{key} {str(value)[:60]!r} is not a counter")


def parse_domain(text: str, where: str = "") -> DomainDescription:
    """Read the XML of a running domain (libvirt: formatdomain)."""
    root = xml_root(text, where)
    vcpu = root.find("vcpu")
    if vcpu is None:
        raise ParseError("domain XML", where, 1, "no element vcpu")
    numbers = _plugged_in(root, vcpu, where)
    everyone = _cpus(vcpu.get("cpuset"), where) if vcpu.get("cpuset") else ()
    pins = {
        xml_count(pin.get("vcpu"), where): _cpus(pin.get("cpuset"), where) for pin in root.iterfind("cputune/vcpupin")
    }
    return DomainDescription(
        len(numbers),
        _memory_mb(root, where),
        tuple(pins.get(number, everyone) for number in numbers),
        tuple(_bandwidth(interface, where) for interface in root.iterfind("devices/interface")),
        _disk_limits(root, where),
        all(_direct(disk) for disk in root.iterfind("devices/disk")),
        _labels(root) | ({} if numbers == tuple(range(len(numbers))) else {"vcpu_ids": format_cpus(numbers)}),
        root.findtext("name") or "",
        _quotas(root),
        _huge_page_kib(root, where),
        _cpu(root),
    )


def _huge_page_kib(root: ET.Element, where: str) -> int | None:
    """Of several sizes, each for some of its NUMA nodes, the smallest."""
    pages = root.find("memoryBacking/hugepages")
    if pages is None:
        return None
    sizes = [int(_bytes(page.get("size"), page.get("unit") or "KiB", where)) // 1024 for page in pages.iterfind("page")]
    return min(sizes, default=0)


def _cpu(root: ET.Element) -> CpuNeed:
    """What its XML requires of CPUs; while it runs a host-model stands there as the model that it became."""
    cpu = root.find("cpu")
    if cpu is None:
        return ORDINARY_CPU
    mode = cpu.get("mode") or "custom"
    model = (cpu.findtext("model") or "").strip()
    if mode != "custom" or not _CPU_NAME.match(model):
        return CpuNeed(whole_host=mode in {"host-passthrough", "maximum", "host-model"})
    features = {one.get("name") or "" for one in cpu.iterfind("feature") if one.get("policy") in {"require", "force"}}
    return CpuNeed(model, tuple(sorted(name for name in features if _CPU_NAME.match(name))))


def _plugged_in(root: ET.Element, vcpu: ET.Element, where: str) -> tuple[int, ...]:
    """The numbers of the vCPUs that a domain has now: after an unplug in the middle they have gaps."""
    vcpus = xml_count(vcpu.get("current") or vcpu.text, where)
    if not 1 <= vcpus <= MAX_CPUS:
        raise ParseError("domain XML", where, 1, f"{vcpus} vCPUs are not 1-{MAX_CPUS}")
    each = root.findall("vcpus/vcpu")
    numbers = {xml_count(one.get("id"), where) for one in each if one.get("enabled") == "yes"}
    if len(each) > MAX_CPUS or (numbers and max(numbers) >= MAX_CPUS):
        raise ParseError("domain XML", where, 1, f"vCPU {max(numbers, default=0)} of {len(each)} is beyond {MAX_CPUS}")
    return tuple(sorted(numbers)) or tuple(range(vcpus))


def _quotas(root: ET.Element) -> dict[str, int]:
    """Those of <cputune> by the names of virDomainGetSchedulerParameters; a negative quota is no limit."""
    quotas: dict[str, int] = {}
    for scope, prefix in (("vcpu", ""), ("global", "global_")):
        for name in ("quota", "period"):
            text = (root.findtext(f"cputune/{prefix}{name}") or "").strip()
            if text.isascii() and text.isdecimal() and len(text) <= COUNT_DIGITS:
                quotas[f"{scope}_{name}"] = int(text)
    return quotas


def _labels(root: ET.Element) -> dict[str, str]:
    """Labels that hint at its purpose, and the rule that it stays if it has devices of its host. Nova's are
    in a name space of their own (nova: virt/libvirt/config.py)."""
    labels = {"title": root.findtext("title") or "", NEVER_MOVE_LABEL: "true" if _has_passed_device(root) else ""}
    backing = root.find("devices/disk[@device='disk']/backingStore/source")
    if backing is not None:
        labels["image"] = (backing.get("file") or backing.get("name") or "").rpartition("/")[2]
    nova = root.find(f"metadata/{_NOVA}instance")
    if nova is not None:
        flavor = nova.find(f"{_NOVA}flavor")
        project = nova.find(f"{_NOVA}owner/{_NOVA}project")
        image = nova.find(f"{_NOVA}root[@type='image']")
        labels |= {
            "name": nova.findtext(f"{_NOVA}name") or "",
            "flavor_name": (flavor.get("name") if flavor is not None else None) or "",
            "project": (project.get("uuid") if project is not None else None) or "",
            "image": (image.get("uuid") if image is not None else None) or labels.get("image", ""),
        }
    printable = {name: "".join(char if char.isprintable() else " " for char in text) for name, text in labels.items()}
    return {name: text.strip()[:_LONGEST_LABEL] for name, text in printable.items() if text.strip()}


def _has_passed_device(root: ET.Element) -> bool:
    """Whether it has a device of its host, with which libvirt migrates no domain live. A virtual function that has
    another NIC to stand in for it (teaming, libvirt 6.1) is unplugged for a migration."""
    if root.find("devices/hostdev[@mode='subsystem']") is not None:
        return True
    functions = root.iterfind("devices/interface[@type='hostdev']")
    return any(interface.find("teaming[@type='transient']") is None for interface in functions)


def xml_root(text: str, where: str, tag: str = "domain") -> ET.Element:
    """The root of a domain's XML, which is to have this tag; ParseError with `where`. No entity is ever expanded."""
    if len(text) > _LARGEST_XML:
        raise ParseError("domain XML", where, 1, f"longer than {_LARGEST_XML >> 20} MB")
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ParseError("domain XML", where, 1, "a document type is not part of a domain")
    try:
        root = ET.fromstring(text)  # noqa: S314 - see above
    except (ET.ParseError, ValueError) as error:
        line = error.position[0] if isinstance(error, ET.ParseError) else 1
        raise ParseError("domain XML", where, line, f"not XML: {error}") from None
    if root.tag != tag:
        raise ParseError("domain XML", where, 1, f"{root.tag[:60]!r} is not a {tag}")
    return root


def xml_count(text: str | None, where: str) -> int:
    """A whole number from 0 on; ParseError with `where` for anything else, also for None."""
    return count(text or "", "domain XML", where)


def _cpus(text: str | None, where: str) -> tuple[int, ...]:
    """A list, in which ^3 takes CPU 3 out of what stands before it (libvirt: formatdomain, CPU Allocation)."""
    cpus: set[int] = set()
    try:
        for part in (text or "").split(","):
            taken_out = part.strip().startswith("^")
            named = parse_cpus(part.strip().removeprefix("^"))
            cpus = cpus.difference(named) if taken_out else cpus.union(named)
    except ValueError as error:
        raise ParseError("domain XML", where, 1, str(error)) from None
    return tuple(sorted(cpus))


def _memory_mb(root: ET.Element, where: str) -> float:
    """What the domain has now: currentMemory where ballooning made it less than memory."""
    current = root.find("currentMemory")
    memory = root.find("memory") if current is None else current
    if memory is None:
        raise ParseError("domain XML", where, 1, "no element memory")
    return _bytes(memory.text, memory.get("unit", "KiB"), where) / (1 << 20)


def _bytes(number: str | None, unit: str, where: str) -> float:
    scale = _UNIT.match(unit)
    if not scale:
        raise ParseError("domain XML", where, 1, f"unit {unit[:60]!r} of memory is unknown")
    base = 1000 if unit.lower().endswith("b") and not scale["of_1024"] else 1024
    power = "kmgtpe".index(scale["power"].lower()) + 1 if scale["power"] else 0
    return xml_count(number, where) * float(base) ** power


def _bandwidth(interface: ET.Element, where: str) -> Bandwidth | None:
    """The limit on what the domain sends; one on what it receives leaves free what it sends."""
    limits = interface.find("bandwidth/outbound")
    if limits is None or not limits.get("average"):
        return None
    peak = limits.get("peak")
    return Bandwidth(xml_count(limits.get("average"), where), xml_count(peak, where) if peak else None)


def _direct(disk: ET.Element) -> bool:
    """Whether a drive bypasses the page cache (formatdomain, driver cache), or holds nothing."""
    driver = disk.find("driver")
    cache = driver.get("cache") if driver is not None else None
    return disk.find("source") is None or (disk.get("type") in ("file", "block") and cache in ("none", "directsync"))


def _disk_limits(root: ET.Element, where: str) -> tuple[int | None, ...]:
    """Limits of its disks by their own <iotune>, and by <blkiotune> of the host's device that a disk is.

    CD and floppy drives are left out, and so is a disk without a source: it holds nothing.
    """
    devices = {device.findtext("path"): _tuned(device, where) for device in root.iterfind("blkiotune/device")}
    limits: list[int | None] = []
    groups: set[str] = set()
    for disk in root.iterfind("devices/disk"):
        source, tune = disk.find("source"), disk.find("iotune")
        own = _tuned(tune, where) if tune is not None else None
        group = tune.findtext("group_name") if tune is not None else None
        if disk.get("device", "disk") not in ("disk", "lun") or (own is None and source is None) or group in groups:
            continue
        groups |= {group} if group else set()
        below = devices.get(source.get("dev")) if source is not None and source.get("dev") else None
        limits.append(min((limit for limit in (own, below) if limit is not None), default=None))
    return tuple(limits)


def _tuned(element: ET.Element, where: str) -> int | None:
    """Read plus write bytes per second of an <iotune> or a <blkiotune> device; None = one direction is not limited."""
    limit = _positive(element, "total_bytes_sec", where)
    if limit is not None:
        return limit
    read, write = (_positive(element, f"{side}_bytes_sec", where) for side in ("read", "write"))
    return None if read is None or write is None else read + write


def _positive(element: ET.Element, name: str, where: str) -> int | None:
    text = element.findtext(name)
    return (
        xml_count(text, where) if text is not None and real_limit(xml_count(text, where), NO_DISK_LIMIT_BYTES) else None
    )


def scheduler_number(parameters: object, name: str) -> float | None:
    """One of virDomainGetSchedulerParameters as a number above 0; None = not set or no limit (0 or below)."""
    value = parameters.get(name) if isinstance(parameters, Mapping) else None
    return float(value) if type(value) is int and value > 0 else None
