"""Text of xl(1), of Dom0's kernel and of xenstored into domains, settings, host facts and devices; no I/O."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from profiler.host_kinds import Groups
from profiler.observed import MAX_CPUS, parse_cpus
from profiler.parse.libvirt import xml_count, xml_root
from profiler.parse.text import ParseError, count, decimal, lines

# Text of xl(1) about the host and its settings: info and scheduler shares; no I/O.

_WEIGHT = re.compile(r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<weight>\d{1,5})\Z")
_WEIGHT_CAP = re.compile(r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<weight>\d{1,5}) +(?P<cap>\d{1,6})\Z")
_CPU = re.compile(r"(?a) *(?P<cpu>\d{1,5}): +(?P<core>\d{1,10}) +(?P<socket>\d{1,10}) +(?P<node>\d{1,5}) *\Z")
_INFO = re.compile(r"(?a)([A-Za-z_][A-Za-z0-9_]{0,40}) *: ?(.*)\Z")


@dataclass(frozen=True, slots=True)
class Share:
    """Weight and cap of one domain; `cap_percent` 0 = no cap, None = this version prints none."""

    name: str
    weight: int
    cap_percent: int | None


@dataclass(frozen=True, slots=True)
class XlInfo:
    """The part of `xl info` that is used; `cpu_mhz` is the rate of the time stamp counter, `max_cpu_id` the highest
    number that a CPU of this host may have, 0 = not said."""

    pcpus: int
    cpu_mhz: float
    memory_mb: int
    scheduler: str
    version: str
    threads_per_core: int
    max_cpu_id: int = 0


def parse_sched(text: str, where: str = "") -> dict[int, Share]:
    """Read `xl sched-credit` or `xl sched-credit2`: shares by domain.

    Both print nothing, without an error, while another scheduler runs: an empty answer is an empty dict. Parameters of
    a pool that libxl could not read say so and are a ParseError.
    """
    what = "xl sched-credit"
    shares: dict[int, Share] = {}
    pattern: re.Pattern[str] | None = None
    for number, line in lines(text):
        if line.startswith("Cpupool ") and re.search(r": (tslice=\d+ms )?ratelimit=\d+us", line):
            continue
        if re.match(r"Name +ID +Weight( +Cap)?\Z", line):
            pattern = _WEIGHT_CAP if line.endswith("Cap") else _WEIGHT
            continue
        if pattern is None:
            raise ParseError(what, where, number, f"{line[:60]!r} stands where the table should begin")
        match = row(pattern, line, what, where, number)
        domid = domid_of(match["domid"], what, where, number)
        cap = count(match["cap"], what, where, number) if pattern is _WEIGHT_CAP else None
        weight = count(match["weight"], what, where, number)
        if not 1 <= weight <= 65_535:  # xl(1), sched-credit
            raise ParseError(what, where, number, f"weight {weight} is outside 1-65535")
        add(shares, domid, Share(match["name"].rstrip(" "), weight, cap), what, where, number)
    return shares


def parse_xl_fields(text: str, where: str = "") -> dict[str, str]:
    """Read `xl info`, also with -n: values by field; the tables of -n are left out."""
    fields: dict[str, str] = {}
    for _, line in lines(text):
        match = _INFO.fullmatch(line)
        if match:
            fields.setdefault(match[1], match[2].strip())
    if "xen_version" not in fields:
        raise ParseError("xl info", where, 1, "there is no xen_version")
    return fields


def parse_xl_topology(text: str, where: str = "") -> tuple[Groups, Groups]:
    """Read the table `cpu_topology` of `xl info -n`: the CPUs of each node that are online, and of each core that has
    several."""
    what = "xl info -n"
    by_node: dict[int, set[int]] = {}
    by_core: dict[tuple[str, str, int], set[int]] = {}
    inside = False
    for number, line in lines(text):
        if line.startswith("cpu:"):
            inside = True
            continue
        match = _CPU.fullmatch(line)
        if not inside or match is None:
            inside = False
            continue
        cpu, node = count(match["cpu"], what, where, number), count(match["node"], what, where, number)
        if cpu >= MAX_CPUS:
            raise ParseError(what, where, number, f"CPU {cpu} is beyond {MAX_CPUS - 1}")
        by_node.setdefault(node, set()).add(cpu)
        by_core.setdefault((match["core"], match["socket"], node), set()).add(cpu)
    if not by_node:
        raise ParseError(what, where, 1, "there is no table of CPUs")
    nodes = tuple(tuple(sorted(by_node[node])) for node in sorted(by_node))
    return nodes, tuple(sorted(tuple(sorted(cpus)) for cpus in by_core.values() if len(cpus) > 1))


def parse_xl_info(text: str, where: str = "") -> XlInfo:
    """Read what is used of `xl info`."""
    fields = parse_xl_fields(text, where)
    what = "xl info"
    try:
        host = XlInfo(
            count(fields["nr_cpus"], what, where),
            decimal(fields["cpu_mhz"], what, where),
            count(fields["total_memory"], what, where),
            fields["xen_scheduler"],
            fields["xen_version"],
            count(fields["threads_per_core"], what, where),
            count(fields.get("max_cpu_id", "0"), what, where),
        )
    except KeyError as missing:
        raise ParseError(what, where, 1, f"there is no {missing.args[0]}") from None
    if host.pcpus == 0 or host.cpu_mhz < 1:
        raise ParseError(what, where, 1, f"{host.pcpus} pCPUs at {host.cpu_mhz} MHz cannot be")
    return host


# Text of xl(1) into domains, vCPUs, settings and facts of the host; no I/O.
#
# Names come first in xl's tables and may hold anything, so every row is read from its right end. Formats: tools/xl of
# Xen.

_MAX_DOMID = 0x7FF0  # DOMID_FIRST_RESERVED of Xen's public headers; domains have lower numbers
NAMELESS = "(null)"  # xl's name of a domain that xenstore has no name for: it is being built or torn down
T = TypeVar("T")

_LONGEST_ROW = 5000  # characters of a row: xenstore holds names of at most 4096 bytes
_LIST = re.compile(
    r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<mem>\d{1,12}) +(?P<vcpus>\d{1,5})"
    r" +(?P<state>[r-][b-][p-][s-][rscwS?-][d-]) +(?P<time>\d{1,12}\.\d)(?P<rest>\D.*)?\Z"
)
_UUID = re.compile(r"(?a) (?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) +(?:-|[0-9a-f]{1,8}) +\S")
_NO_UUID = "00000000-0000-0000-0000-000000000000"  # Xen's handle of a domain that its toolstack gave none, as of Dom0
_VCPU = re.compile(
    r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<vcpu>\d{1,5}) +(?P<cpu>\d{1,5}|-) +(?P<state>[r-][b-][p-])"
    r" +(?P<time>\d{1,12}\.\d) +(?P<hard>[0-9,-]+|all|none) / (?P<soft>[0-9,-]+|all|none)\Z"
)


@dataclass(frozen=True, slots=True)
class ListedDomain:
    """A row of `xl list`; `cpu_ns` resolves 0.1 s, `state` is xl's (`r-----`).

    `uuid` is "" where xl does not list it (without -v) and where the domain has none.
    """

    name: str
    domid: int
    memory_mb: int
    vcpus: int
    state: str
    cpu_ns: int
    uuid: str = ""

    @property
    def gone(self) -> bool:
        """Whether nothing of it runs: it has shut down, is being destroyed, or has no name yet."""
        return self.state[3] == "s" or self.state[5] == "d" or self.name == NAMELESS


@dataclass(frozen=True, slots=True)
class ListedVcpu:
    """A row of `xl vcpu-list`; `cpu` None = offline, `hard` (affinity) None = all pCPUs."""

    domid: int
    cpu: int | None
    state: str
    hard: tuple[int, ...] | None


def _rows(text: str, what: str, where: str, header: str) -> list[tuple[int, str]]:
    """The rows below the header line, which xl always prints in English; ParseError without a header."""
    numbered = lines(text)
    if not numbered:
        raise ParseError(what, where, 1, "it is empty")
    number, first = numbered[0]
    if not re.match(header, first):
        raise ParseError(what, where, number, f"{first[:60]!r} is not the header of {what}")
    return [(number, line) for number, line in numbered[1:] if not re.match(header, line)]


def row(pattern: re.Pattern[str], line: str, what: str, where: str, number: int) -> re.Match[str]:
    """The parts of one row; ParseError where it does not match."""
    match = pattern.fullmatch(line) if len(line) <= _LONGEST_ROW else None
    if match is None:
        raise ParseError(what, where, number, f"{line[:60]!r} is no row of {what}")
    return match


def domid_of(text: str, what: str, where: str, number: int) -> int:
    """The number of a domain; those that Xen reserves are ParseErrors."""
    value = count(text, what, where, number)
    if value >= _MAX_DOMID:
        raise ParseError(what, where, number, f"{value} is no domain")
    return value


def _ns(text: str, what: str, where: str, number: int) -> int:
    return round(decimal(text, what, where, number) * 10) * 100_000_000


def add(by_domain: dict[int, T], domid: int, value: T, what: str, where: str, number: int) -> None:
    """Add a domain's value; ParseError for a domain that occurs twice."""
    if domid in by_domain:
        raise ParseError(what, where, number, f"domain {domid} stands twice")
    by_domain[domid] = value


def parse_xl_list(text: str, where: str = "") -> dict[int, ListedDomain]:
    """Read `xl list`, also with -v, -c or -n: domains by number."""
    what = "xl list"
    domains: dict[int, ListedDomain] = {}
    verbose = "UUID" in text.partition("\n")[0]
    for number, line in _rows(text, what, where, r"Name +ID +Mem +VCPUs\s+State\s+Time\(s\)"):
        match = row(_LIST, line, what, where, number)
        domid = domid_of(match["domid"], what, where, number)
        shown = _UUID.match(match["rest"] or "") if verbose else None
        if verbose and shown is None:
            raise ParseError(what, where, number, "there is no UUID: the line is not whole")
        listed = ListedDomain(
            match["name"].rstrip(" "),
            domid,
            count(match["mem"], what, where, number),
            count(match["vcpus"], what, where, number),
            match["state"],
            _ns(match["time"], what, where, number),
            "" if shown is None or shown["uuid"] == _NO_UUID else shown["uuid"],
        )
        add(domains, domid, listed, what, where, number)
    if 0 not in domains:
        raise ParseError(what, where, 1, "there is no domain 0: the output is not whole")
    return domains


def parse_vcpu_list(text: str, where: str = "") -> dict[tuple[int, int], ListedVcpu]:
    """Read `xl vcpu-list`: vCPUs by domain and number; of several tables the last one counts."""
    what = "xl vcpu-list"
    vcpus: dict[tuple[int, int], ListedVcpu] = {}
    for number, line in _rows(text, what, where, r"Name +ID +VCPU +CPU +State +Time\(s\) +Affinity"):
        match = row(_VCPU, line, what, where, number)
        domid = domid_of(match["domid"], what, where, number)
        vcpu = count(match["vcpu"], what, where, number)
        vcpus[domid, vcpu] = ListedVcpu(
            domid,
            None if match["cpu"] == "-" else count(match["cpu"], what, where, number),
            match["state"],
            _affinity(match["hard"], what, where, number),
        )
    return vcpus


def _affinity(text: str, what: str, where: str, number: int) -> tuple[int, ...] | None:
    """The pCPUs of a list as xl prints it; None = all."""
    if text == "all":
        return None
    if text == "none":
        return ()
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ParseError(what, where, number, str(error)) from None


# Text that Linux and xenstored show in Dom0 into numbers: interrupts, netback rings, xenstore, devices; no I/O.

_INTERRUPT = re.compile(r"(?a) *(?P<number>[A-Za-z0-9]{1,10}):(?P<counts>(?: +\d{1,20})+)(?: +(?P<rest>\S.*))?\Z")
_REQUESTS = r"req prod (\d{1,10}) \(-?\d{1,20}\) cons (\d{1,10}) \(-?\d{1,20}\)"
_RINGS = re.compile(rf"(?ams)^TX:[^\n]*\n{_REQUESTS}[^\n]*\n(?:[^R\n][^\n]*\n|\n){{0,20}}^RX:[^\n]*\n{_REQUESTS}")
_STORE = re.compile(r'(?a)([A-Za-z0-9_/@+:.-]{1,3072}) = "(.*)"(?:   \([^"]*\))?\Z', re.DOTALL)
_RATE = re.compile(r"(?a)(\d{1,18}),(\d{1,10})\Z")
_DEVICE = re.compile(r"(?a)(vif|vbd)-(\d{1,5})-(\d{1,10})\Z")
_PHYSICAL = re.compile(r"(?a)([0-9a-f]{1,8}):([0-9a-f]{1,8})\Z")
_INTERFACE = re.compile(r"(?a)vif(\d{1,5})\.(\d{1,5})(-emu)?\Z")


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One line of /proc/interrupts: its count over all CPUs, its chip (`xen-dyn`), its type (`-event`) and its name."""

    count: int
    chip: str
    kind: str
    name: str

    @property
    def interdomain(self) -> bool:
        """Whether it is bound to an event channel to another domain: not a timer, IPI, VIRQ or a device's own."""
        return self.chip.startswith("xen-dyn") and self.kind == "-event"


def parse_interrupts(text: str, where: str = "") -> dict[str, Interrupt]:
    """Read `/proc/interrupts`: lines by number; of several tables the last one counts."""
    what = "interrupts"
    interrupts: dict[str, Interrupt] = {}
    cpus = 0
    for number, line in lines(text):
        if re.fullmatch(r" *(CPU\d+ *)+", line):
            cpus = len(line.split())
            continue
        match = _INTERRUPT.fullmatch(line)
        if match is None or not cpus:
            raise ParseError(what, where, number, f"{line[:60]!r} is no line of interrupts")
        counts = match["counts"].split()
        if len(counts) > cpus:  # fewer is right: ERR and MIS are counted once for all
            raise ParseError(what, where, number, f"{len(counts)} counts for {cpus} CPUs")
        chip, _, rest = (match["rest"] or "").partition(" ")
        kind, _, name = rest.strip().partition(" ")
        total = sum(count(value, what, where, number) for value in counts)
        interrupts[match["number"]] = Interrupt(total, chip, kind, name.strip())
    if not interrupts:
        raise ParseError(what, where, 1, "it is empty")
    return interrupts


def parse_netback_rings(text: str, where: str = "") -> tuple[int, int]:
    """Read `io_ring_qN` of xen-netback's debugfs: slots taken from the guest's TX and RX rings, modulo 2^32."""
    match = _RINGS.search(text)
    if match is None:
        raise ParseError("netback ring", where, 1, "there are no requests of TX and RX")
    indices = [int(value) for value in match.groups()]
    if max(indices) >> 32:
        raise ParseError("netback ring", where, 1, "an index has more than 32 bits")
    _, sent, _, received = indices
    return sent, received


def parse_xenstore(text: str, where: str = "") -> dict[str, str]:
    """Read `xenstore-ls -f`: values by path. xenstore-ls escapes line breaks, so one line is one node."""
    values: dict[str, str] = {}
    for number, line in lines(text):
        match = _STORE.fullmatch(line)
        if match is None:
            raise ParseError("xenstore-ls", where, number, f"{line[:60]!r} is no node")
        values[match[1]] = match[2]
    return values


def parse_vif_rate(text: str, where: str = "") -> float:
    """Read `rate` of a vif in xenstore, bytes per interval and its µs (xl-network-configuration(5)): Mbit/s."""
    match = _RATE.fullmatch(text.strip())
    if match is None or int(match[2]) == 0:
        raise ParseError("vif rate", where, 1, f"{text[:60]!r} is not bytes,microseconds")
    return int(match[1]) * 8 / int(match[2])


def vif_rate_mbit(nodes: Mapping[str, str], domid: int) -> float | None:
    """Sum of the limits of all of a domain's vifs in Dom0, Mbit/s; None = some vif has none, or there is no vif."""
    prefix = f"/local/domain/0/backend/vif/{domid}/"
    vifs = {path[len(prefix) :].split("/")[0] for path in nodes if path.startswith(prefix)}
    rates = [nodes.get(f"{prefix}{vif}/rate") for vif in sorted(vifs)]
    limits = [parse_vif_rate(rate, f"{prefix}rate") for rate in rates if rate is not None]
    return sum(limits) if limits and len(limits) == len(rates) else None


def device_of(name: str) -> tuple[str, int, int] | None:
    """Kind, domain and number of a backend device's folder such as `vbd-3-51712`; None for other names."""
    match = _DEVICE.fullmatch(name)
    return (match[1], int(match[2]), int(match[3])) if match else None


def parse_physical_device(text: str, where: str = "") -> str:
    """Read `physical_device` of a vbd, `fe:3` in hexadecimal (drivers/block/xen-blkback/xenbus.c), as `254:3`."""
    match = _PHYSICAL.match(text.strip())
    if match is None:
        raise ParseError("physical device", where, 1, f"{text[:60]!r} is not major:minor")
    return f"{int(match[1], 16)}:{int(match[2], 16)}"


def interface_of(name: str) -> tuple[int, int] | None:
    """Domain and number of a vif's interface, `vif3.0` or `vif3.0-emu` (QEMU's emulated card); None for others."""
    match = _INTERFACE.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_number(text: str) -> int | None:
    """A number of a domain or a device in a path of xenstore; None where it is not a number."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 10 else None


# What libvirt says of a host: `virsh nodeinfo` and capabilities into numbers; no I/O.


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
