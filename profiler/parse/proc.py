"""Files below /proc, and what the kernel says of its run queues."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.parse.text import COUNT_DIGITS, ParseError, count, decimal, lines


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """One task's schedstat (kernel: Documentation/scheduler/sched-stats.rst): ns on a CPU, ns runnable, timeslices."""

    run_ns: int
    wait_ns: int
    timeslices: int


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """Context switches of a task since it began."""

    voluntary: int
    involuntary: int


@dataclass(frozen=True, slots=True)
class InterfaceBytes:
    """Bytes that one network interface received and sent since it was made, and packets that it dropped both ways."""

    received: int
    sent: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class DiskTimes:
    """Finished requests to one disk, flushes included, the sum of the times that they took, and flushes alone."""

    requests: int
    waited_ns: int
    flushes: int = 0


@dataclass(frozen=True, slots=True)
class HostStat:
    """/proc/stat: ticks per state over all CPUs, and softirqs by name, all since boot."""

    ticks: Mapping[str, int]
    softirqs: Mapping[str, int]
    cpus: int

    @property
    def busy(self) -> int:
        """Ticks in which some task or interrupt of this machine ran; time stolen by a hypervisor is not in it."""
        return sum(value for state, value in self.ticks.items() if state not in ("idle", "iowait", "steal"))


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/mounts."""

    target: str
    kind: str
    options: tuple[str, ...]


# Order of the columns: kernel fs/proc/stat.c and include/linux/interrupt.h (softirq_to_name).
CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
SOFTIRQS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
_NET_DEV_COLUMNS = 16
_SENT_COLUMN = 8
_DROP_COLUMNS = 3, 11
_NET_DEV_HEADER = (  # kernel: net/core/net-procfs.c
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier"
    " compressed\n"
)
# [0-9] and blanks only: \d would take other scripts' digits, \s the end of a line
_NET_DEV_LINE = re.compile(
    r"^ *([^\s|]+): *([0-9]{1,20})(?: +[0-9]{1,20}){2} +([0-9]{1,20})(?: +[0-9]{1,20}){4}"
    r" +([0-9]{1,20})(?: +[0-9]{1,20}){2} +([0-9]{1,20})(?: +[0-9]{1,20}){4}$",
    re.MULTILINE,
)
_STATM_COLUMNS = 7
_BLOCK_COLUMNS = 11  # at least; discards come since 4.18, flushes since 5.5
_BLOCK_REQUESTS, _BLOCK_TICKS = (0, 4, 11, 15), (3, 7, 14, 16)  # reads, writes, discards, flushes
_BLOCK_FLUSHES = 15
_BLKIO_TICKS = 39  # column of /proc/<pid>/stat after the name in brackets (proc(5): 42nd of all)
# Whole files of tasks and instances as the kernel prints them (fs/proc/base.c do_io_accounting, kernel/sched/psi.c
# psi_show): matching takes a third of the time of reading line by line, which is left for text that looks otherwise.
_TASK_IO = re.compile(
    r"rchar: \d{1,20}\nwchar: \d{1,20}\nsyscr: \d{1,20}\nsyscw: \d{1,20}\n"
    r"read_bytes: (\d{1,20})\nwrite_bytes: (\d{1,20})\ncancelled_write_bytes: \d{1,20}\n\Z",
    re.ASCII,
)
_AVERAGES = r" avg10=\d{1,3}\.\d\d avg60=\d{1,3}\.\d\d avg300=\d{1,3}\.\d\d"
_PRESSURE = re.compile(rf"some{_AVERAGES} total=(\d{{1,20}})\n(?:full{_AVERAGES} total=\d{{1,20}}\n)?\Z", re.ASCII)


def parse_schedstat(text: str, where: str = "") -> TaskTimes:
    """Read `/proc/<pid>/task/<tid>/schedstat`."""
    return TaskTimes(*schedstat_counts(text, where))


def schedstat_counts(text: str, where: str = "") -> tuple[int, int, int]:
    """The three numbers of `parse_schedstat`, for readers of very many tasks: the object would double the time."""
    fields = text.split()
    if len(fields) != 3:
        raise ParseError("schedstat", where, 1, f"3 numbers expected, {len(fields)} found")
    run, wait, timeslices = fields
    if f"{run}{wait}{timeslices}".isdigit() and text.isascii() and max(map(len, fields)) <= COUNT_DIGITS:
        return int(run), int(wait), int(timeslices)  # half the time of checking them one by one
    return count(run, "schedstat", where), count(wait, "schedstat", where), count(timeslices, "schedstat", where)


def parse_status(text: str, where: str = "") -> TaskStatus:
    """Read context switches from `/proc/<pid>/status`."""
    switches: dict[str, int] = {}
    for number, line in lines(text):
        key, _, value = line.partition(":")
        if key in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
            switches[key] = count(value, "status", where, number)
    try:
        return TaskStatus(switches["voluntary_ctxt_switches"], switches["nonvoluntary_ctxt_switches"])
    except KeyError as missing:
        raise ParseError("status", where, 1, f"no line {missing.args[0]}") from None


def parse_statm(text: str, where: str = "") -> int:
    """Read from `/proc/<pid>/statm` how many pages of a process are resident."""
    fields = text.split()
    if len(fields) != _STATM_COLUMNS:
        raise ParseError("statm", where, 1, f"{_STATM_COLUMNS} numbers expected, {len(fields)} found")
    return count(fields[1], "statm", where)


def parse_blkio_ticks(text: str, where: str = "") -> int:
    """Read from `/proc/<pid>/stat` how many ticks a task has waited for block I/O (kernel: delayacct_blkio_ticks)."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _BLKIO_TICKS:
        raise ParseError("task stat", where, 1, f"more than {_BLKIO_TICKS} numbers expected, {len(fields)} found")
    return count(fields[_BLKIO_TICKS], "task stat", where)


def parse_block_stat(text: str, where: str = "") -> DiskTimes:
    """Read `/sys/block/<device>/stat` (kernel: Documentation/block/stat.rst), whose ticks are ms."""
    fields = text.split()
    if len(fields) < _BLOCK_COLUMNS:
        raise ParseError("block stat", where, 1, f"{_BLOCK_COLUMNS} numbers or more expected, {len(fields)} found")
    requests, ticks = (
        sum(count(fields[at], "block stat", where) for at in columns if at < len(fields))
        for columns in (_BLOCK_REQUESTS, _BLOCK_TICKS)
    )
    flushes = count(fields[_BLOCK_FLUSHES], "block stat", where) if len(fields) > _BLOCK_FLUSHES else 0
    return DiskTimes(requests, ticks * 1_000_000, flushes)


def parse_task_io(text: str, where: str = "") -> int:
    """Read from `/proc/<pid>/io` how many bytes a task made the block layer read and write."""
    usual = _TASK_IO.match(text)
    return int(usual[1]) + int(usual[2]) if usual else task_io_by_line(text, where)


def task_io_by_line(text: str, where: str = "") -> int:
    """Read `/proc/<pid>/io` with its lines in any order; the plain reference of `parse_task_io`."""
    values: dict[str, int] = {}
    for number, line in lines(text):
        key, colon, value = line.partition(":")
        if not colon:
            raise ParseError("io", where, number, f"{line[:60]!r} is not `key: value`")
        values[key] = count(value, "io", where, number)
    if "read_bytes" not in values or "write_bytes" not in values:
        raise ParseError("io", where, 1, "read_bytes or write_bytes is missing")
    return values["read_bytes"] + values["write_bytes"]


def parse_net_dev(text: str, where: str = "") -> dict[str, InterfaceBytes]:
    """Read `/proc/net/dev`: bytes and drops per interface. A host of many instances has a line for each of them."""
    usual = _NET_DEV_LINE.findall(text)
    whole = text.startswith(_NET_DEV_HEADER) and text.endswith("\n")
    if not whole or len(usual) != text.count("\n") - _NET_DEV_HEADER.count("\n"):
        return net_dev_by_line(text, where)
    return {
        name: InterfaceBytes(int(received), int(sent), int(lost) + int(unsent))
        for name, received, lost, sent, unsent in usual
    }


def net_dev_by_line(text: str, where: str = "") -> dict[str, InterfaceBytes]:
    """Read `/proc/net/dev` line by line, to say which line is wrong; the plain reference of `parse_net_dev`."""
    interfaces: dict[str, InterfaceBytes] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        name, colon, rest = line.rpartition(":")  # alias interfaces hold a colon in their name
        fields = rest.split()
        if colon and len(fields) == _NET_DEV_COLUMNS:
            received, sent = (count(fields[at], "net/dev", where, number) for at in (0, _SENT_COLUMN))
            dropped = sum(count(fields[at], "net/dev", where, number) for at in _DROP_COLUMNS)
            interfaces[name.strip()] = InterfaceBytes(received, sent, dropped)
        elif colon or (fields and "|" not in line):  # the two header lines hold bars
            raise ParseError("net/dev", where, number, f"name and {_NET_DEV_COLUMNS} numbers expected")
    return interfaces


def parse_counter(text: str, where: str = "") -> int:
    """Read a file that holds one counter, such as `/sys/class/net/<dev>/statistics/rx_bytes` or `cpuacct.usage`."""
    return count(text, "counter", where)


def parse_pressure(text: str, where: str = "") -> int:
    """Read a pressure file (`/proc/pressure/cpu`, `cpu.pressure` of a group): µs in which some task was stalled.

    Source: kernel, Documentation/accounting/psi.rst.
    """
    usual = _PRESSURE.match(text)
    return int(usual[1]) if usual else pressure_by_line(text, where)


def pressure_by_line(text: str, where: str = "") -> int:
    """Read a pressure file field by field; the plain reference of `parse_pressure`."""
    totals: dict[str, int] = {}
    for number, line in lines(text):
        kind, *fields = line.split()
        if kind not in ("some", "full"):
            raise ParseError("pressure", where, number, f"{kind[:60]!r} is neither some nor full")
        values = dict(field.partition("=")[::2] for field in fields)
        if "total" not in values:
            raise ParseError("pressure", where, number, "total= is missing")
        for average in ("avg10", "avg60", "avg300"):
            decimal(values.get(average, ""), "pressure", where, number)
        totals[kind] = count(values["total"], "pressure", where, number)
    if "some" not in totals:
        raise ParseError("pressure", where, 1, "no line some")
    return totals["some"]


def parse_stat(text: str, where: str = "") -> HostStat:
    """Read `/proc/stat`."""
    ticks: dict[str, int] = {}
    softirqs: dict[str, int] = {}
    cpus = 0
    for number, line in lines(text):
        key, *fields = line.split()
        if key == "cpu":
            if len(fields) < len(CPU_STATES):
                raise ParseError("stat", where, number, f"{len(CPU_STATES)} times expected, {len(fields)} found")
            # guest and guest_nice are left out on purpose: the kernel counts them in user and nice as well
            ticks = {state: count(f, "stat", where, number) for state, f in zip(CPU_STATES, fields, strict=False)}
        elif key.startswith("cpu"):
            cpus += 1
        elif key == "softirq":
            softirqs = {name: count(f, "stat", where, number) for name, f in zip(SOFTIRQS, fields[1:], strict=False)}
    if not ticks:
        raise ParseError("stat", where, 1, "no line cpu")
    return HostStat(ticks, softirqs, cpus)


def parse_mounts(text: str, where: str = "") -> list[Mount]:
    """Read `/proc/mounts`; blanks in paths are written there as octal escapes."""
    mounts: list[Mount] = []
    for number, line in lines(text):
        fields = line.split(" ")
        if len(fields) < 4:
            raise ParseError("mounts", where, number, "source, target, type and options expected")
        target = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        mounts.append(Mount(target, fields[2], tuple(fields[3].split(","))))
    return mounts


# What a guest holds in tables of fixed size (finding N13): grants that are in use, and its kernel's cached objects.

ENTRIES_PER_FRAME = {1: 512, 2: 256}  # of a page of 4 KB: an entry of version 1 has 8 bytes, of version 2 it has 16
_LOG = re.compile(r"\(XEN\) (?:\[ *[0-9][0-9 .:-]{0,40}\] )?(.*)\Z")  # with the time where Xen's boot line asks for it
_BEGIN, _END = "gnttab_usage_print_all [", "gnttab_usage_print_all ] done"
_TABLE = re.compile(r"(?a)grant-table for remote d(\d{1,5}) \(v([12])\)\Z")
_FRAMES = re.compile(r"(?a) *(\d{1,10}) frames \((\d{1,10}) max\), (\d{1,10}) maptrack frames \((\d{1,10}) max\)\Z")
_ENTRY = re.compile(r"(?a)\[0x[0-9a-f]{1,8}\] +\d{1,5} 0x")


@dataclass(frozen=True, slots=True)
class GrantTable:
    """A domain's grant table: entries that another domain holds now, and frames (pages of entries) of those allowed."""

    version: int
    held: int
    frames: int
    most_frames: int

    @property
    def most_entries(self) -> int:
        """How many entries the table can grow to."""
        return self.most_frames * ENTRIES_PER_FRAME[self.version]


def parse_grant_tables(text: str, where: str = "") -> dict[int, GrantTable]:
    """Read the last whole list of `xl debug-keys g` in `xl dmesg`, tables by domain.

    Xen prints an entry while it is held (xen/common/grant_table.c, gnttab_usage_print); what was only offered, or was
    copied and let go, is in no list.
    """
    what = "grant tables"
    found: dict[int, GrantTable] | None = None
    tables: dict[int, GrantTable] | None = None
    domain, version = -1, 0
    for number, line in lines(text):
        log = _LOG.match(line)
        said = log[1].rstrip() if log else ""
        if said.startswith(_BEGIN):
            tables, domain = {}, -1
        elif said == _END:
            found, tables = tables, None
        elif tables is None:
            continue
        elif match := _TABLE.match(said):
            domain, version = int(match[1]), int(match[2])
        elif domain >= 0 and (match := _FRAMES.match(said)):
            tables[domain] = GrantTable(version, 0, int(match[1]), int(match[2]))
        elif _ENTRY.match(said):
            if domain not in tables:
                raise ParseError(what, where, number, "an entry of no domain")
            table = tables[domain]
            tables[domain] = GrantTable(version, table.held + 1, table.frames, table.most_frames)
    if found is None:
        raise ParseError(what, where, 1, "it holds no whole list of grant tables")
    return found


@dataclass(frozen=True, slots=True)
class SlabCache:
    """One cache of the kernel's slab allocator: objects in use, objects that there is room for, bytes of an object."""

    active: int
    objects: int
    size: int


def parse_slabinfo(text: str, where: str = "") -> dict[str, SlabCache]:
    """Read /proc/slabinfo (slabinfo(5), version 2): caches by name."""
    what = "slabinfo"
    caches: dict[str, SlabCache] = {}
    numbered = lines(text)
    if not numbered or not numbered[0][1].startswith("slabinfo - version: 2."):
        raise ParseError(what, where, 1, "it is no slabinfo of version 2")
    for number, line in numbered[1:]:
        if line.startswith("#"):
            continue
        words = line.split()
        if len(words) < 4:
            raise ParseError(what, where, number, f"{line[:60]!r} is no cache")
        active, objects, size = (count(word, what, where, number) for word in words[1:4])
        caches[words[0]] = SlabCache(active, objects, size)
    return caches


# Text of resctrl's files into numbers (kernel: Documentation/filesystems/resctrl.rst); no I/O.

# What a counter says in place of a number (fs/resctrl/ctrlmondata.c, rdtgroup_mondata_show).
_NO_VALUE = {
    "Unavailable": "the hardware had no value",
    "Error": "the hardware refused to say",
    "Unassigned": "no hardware counter is assigned to this group",
}


def parse_monitor(text: str, where: str = "") -> int:
    """Read `llc_occupancy`, `mbm_total_bytes` or `mbm_local_bytes` of a group and domain, in bytes."""
    word = text.strip()
    if word in _NO_VALUE:
        raise ParseError("resctrl counter", where, 1, _NO_VALUE[word])
    return count(word, "resctrl counter", where)


def parse_tasks(text: str, where: str = "") -> frozenset[int]:
    """Read `tasks` of a group: numbers of threads."""
    return frozenset(count(line, "resctrl tasks", where, number) for number, line in lines(text))


# Reads the lines of JSON that cotenant-run-queue prints (profiler/backends/run_queue). No I/O.

# As run_queue.h has them.
_SUB_BUCKETS = 8
_SHORTEST_LOG2 = 10
_BUCKETS = 209
NOT_KNOWN = 0  # in place of a group: what ran is not known


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Waits of the tasks of one control group that ended in a period; `delays` counts them by bucket of length.

    Time for which a quota throttled them is in `throttled_ns` and not in `delays`.
    """

    throttled_ns: int
    delays: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RunQueueCounts:
    """What was counted in one period, by number of control group.

    `pairs` holds the ns for which one group waited while another one ran. `lost` counts since the start what found no
    room.
    """

    seconds: float
    groups: Mapping[int, GroupWaits]
    pairs: Mapping[tuple[int, int], int]
    lost: int


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The shortest wait in a bucket, and the shortest in the next one, in ns."""
    return _lower(bucket), _lower(bucket + 1)


def _lower(bucket: int) -> int:
    if bucket == 0:
        return 0
    doublings, part = divmod(bucket - 1, _SUB_BUCKETS)
    return (_SUB_BUCKETS + part) << (_SHORTEST_LOG2 + doublings - 3)


def parse_run_queue(line: str) -> RunQueueCounts:
    """Read one line; ParseError unless it is whole and well formed."""
    try:
        document = json.loads(line)
        groups = {_count(group["id"]): _group(group) for group in document["groups"]}
        pairs = {(_count(victim), _count(runner)): _count(ns) for victim, runner, ns in document["pairs"]}
        return RunQueueCounts(_seconds(document["seconds"]), groups, pairs, _count(document["lost"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"it is not a line of cotenant-run-queue: {type(error).__name__}: {error}"[:200]
        raise ParseError("run queue", "", 1, reason) from None


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise ValueError(f"{str(value)[:20]} is not a number of seconds")
    return float(value)


def _group(group: Any) -> GroupWaits:
    delays = {_count(bucket): _count(number) for bucket, number in group["delays"]}
    if any(bucket >= _BUCKETS for bucket in delays):
        raise ValueError(f"there are {_BUCKETS} buckets")
    return GroupWaits(_count(group["throttled_ns"]), delays)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(f"{str(value)[:20]} is not a counter")
    return value
