"""Finds the QEMU process and threads of a domain, and again when they change."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from profiler.backends.linux import or_none, read_parsed
from profiler.backends.source import HostSource
from profiler.parse.libvirt import DomainRecord
from profiler.parse.proc import parse_counter, parse_statm
from profiler.parse.text import ParseError

STATE = "/run/libvirt/qemu"  # of libvirtd and of virtqemud alike
_SEARCH_AGAIN = 30  # readings; a search looks at every process of the host
_RSS_AGAIN = 10  # readings; memory changes slowly
_PAGES_PER_MB = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
_NAME_AGAIN = 30  # readings; a thread gets its name a moment after it is made
_NOT_FOUND = f"its QEMU process is neither in {STATE} nor visible in /proc (run as root, in the host's PID namespace)"
# QEMU's names for its threads with debug-threads=on, which libvirt always sets; one thread runs all vCPUs under TCG
# when it is not multi-threaded (util/qemu-thread-posix.c, accel/*/…-accel-ops.c)
_VCPU = re.compile(r"(CPU \d{1,5}|ALL CPUs)/[A-Z]{2,6}\Z")
_UUID = re.compile(r"\0-uuid\0([0-9a-f-]{36})\0")
_START_TIME = 19  # field of /proc/<pid>/stat after the name in brackets (proc(5): 22nd of all)


class HiddenError(Exception):
    """A domain runs and its threads cannot be seen; the message says why."""


@dataclass(slots=True)
class QemuProcess:
    """A domain's QEMU process: vCPU threads by their lasting names, all others with their names, by number."""

    domain: int
    pid: int
    started: str
    listed: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    vcpus: dict[int, str] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    rss_mb: float | None = None


class DomainProcesses:
    """Finds and keeps the processes of domains, by uuid."""

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._known: dict[str, QemuProcess] = {}
        self._unfound: dict[str, tuple[int, int]] = {}  # uuid → domain and the reading in which the search failed
        self._searched: Mapping[str, int] | None = None
        self._readings = 0

    def begin(self, alive: set[str]) -> None:
        """A reading begins in which these domains are alive."""
        self._readings += 1
        self._searched = None
        self._known = {uuid: process for uuid, process in self._known.items() if uuid in alive}
        self._unfound = {uuid: when for uuid, when in self._unfound.items() if uuid in alive}

    def process(self, domain: DomainRecord) -> QemuProcess:
        """The process with its threads of now; OSError when it was known and is gone, HiddenError when it is not seen.

        Costs one listing of a small folder as long as the threads stay the same.
        """
        process = self._known.get(domain.uuid)
        if process is None or process.domain != domain.id:
            process = self._find(domain)
        try:
            self._list(process)
        except (OSError, ParseError):
            self._known.pop(domain.uuid, None)
            raise
        self._known[domain.uuid] = process
        if not process.vcpus:
            raise HiddenError(f"no thread of QEMU process {process.pid} is named CPU n/KVM or CPU n/TCG")
        return process

    def rss_mb(self, process: QemuProcess, absent: dict[str, str]) -> float | None:
        """Resident memory of QEMU, not older than ten readings; None with the reason in `absent`."""
        if process.rss_mb is None or (self._readings + process.pid) % _RSS_AGAIN == 0:
            where = f"/proc/{process.pid}/statm"
            pages = read_parsed(absent, "rss_mb", self._source, where, parse_statm)
            process.rss_mb = pages / _PAGES_PER_MB if pages is not None else None
        return process.rss_mb

    def lives(self, process: QemuProcess) -> bool:
        """Whether its threads are still there."""
        return any(self._thread_name(tid) for tid in process.vcpus)

    def _list(self, process: QemuProcess) -> None:
        listed = self._source.names(f"/proc/{process.pid}/task")
        if listed != process.listed:
            # only now can the number belong to another process, which cannot have the very same threads
            if self._start_time(process.pid) != process.started:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
        elif process.vcpus and (self._readings + process.pid) % _NAME_AGAIN:
            return
        before = process.names
        tids = [int(name) for name in listed if name.isdecimal() and name.isascii()]
        process.listed = listed
        process.names = {tid: self._thread_name(tid) or before.get(tid, "") for tid in tids}
        vcpus = {tid: match[1] for tid, name in process.names.items() if (match := _VCPU.match(name))}
        process.vcpus = vcpus
        process.others = {tid: name for tid, name in process.names.items() if tid not in vcpus}

    def _thread_name(self, tid: int) -> str:
        return (or_none(self._source.read, f"/proc/{tid}/comm") or "").strip()

    def _find(self, domain: DomainRecord) -> QemuProcess:
        unfound, reading = self._unfound.get(domain.uuid, (-1, 0))
        if unfound == domain.id and self._readings - reading < _SEARCH_AGAIN:
            raise HiddenError(_NOT_FOUND)
        pid = self._by_file(domain) or self._by_search(domain.uuid)
        try:
            if pid is not None:
                return QemuProcess(domain.id, pid, self._start_time(pid))
        except (OSError, ParseError):
            pass
        self._unfound[domain.uuid] = (domain.id, self._readings)
        raise HiddenError(_NOT_FOUND)

    def _by_file(self, domain: DomainRecord) -> int | None:
        """By libvirt's pid file, if that process is this domain's QEMU."""
        if "/" in domain.name or "\0" in domain.name:
            return None
        where = f"{STATE}/{domain.name}.pid"
        pid = read_parsed({}, "", self._source, where, parse_counter)
        command = or_none(self._source.read, f"/proc/{pid}/cmdline") if pid is not None else None
        return pid if command is not None and _uuid(command) == domain.uuid else None

    def _by_search(self, uuid: str) -> int | None:
        if self._searched is None:
            # by `value`: a recording keeps the result, and no command lines of other programs
            self._searched = or_none(self._source.value, "libvirt processes", search_processes) or {}
        pid = self._searched.get(uuid)
        return pid if type(pid) is int else None

    def _start_time(self, pid: int) -> str:
        where = f"/proc/{pid}/stat"
        fields = self._source.read(where).rpartition(")")[2].split()
        if len(fields) <= _START_TIME:
            raise ParseError("process stat", where, 1, f"more than {_START_TIME} fields expected")
        return fields[_START_TIME]


def _uuid(command: str) -> str | None:
    """The uuid that libvirt gave a QEMU on its command line."""
    match = _UUID.search(command)
    return match[1] if match else None


def search_processes(folder: Path = Path("/proc")) -> dict[str, int]:
    """uuid → process of every QEMU that libvirt started and that is visible here."""
    processes: dict[str, int] = {}
    for pid in filter(str.isdecimal, os.listdir(folder)):  # noqa: PTH208 - no Path object for each of very many
        try:
            command = (folder / pid / "cmdline").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # ended meanwhile, or not ours to see
        uuid = _uuid(command)
        if uuid is not None:
            processes[uuid] = int(pid)
    return processes
