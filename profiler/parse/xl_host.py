"""Text of xl(1) about the host and its settings: info and scheduler shares; no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiler.cores import Groups
from profiler.observed import MAX_CPUS
from profiler.parse.text import ParseError, count, decimal, lines
from profiler.parse.xl import add, domid_of, row

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
