"""Chooses the counter of a domain's disk traffic: QEMU's own, which delays QEMU, or the kernel's where both agree."""

from __future__ import annotations

from profiler.backends.libvirt.processes import QemuProcess
from profiler.backends.linux import read_parsed
from profiler.backends.source import HostSource
from profiler.parse.libvirt import DomainDescription, DomainRecord, DomainStats
from profiler.parse.proc import parse_task_io


class Disks:
    """Decides once for each start of a domain, because the two counts begin at different values.

    To count drives libvirt asks every QEMU, whose main loop stops meanwhile. Where a domain's drives bypass the page
    cache, /proc/<pid>/io of QEMU counts the same bytes (and what QEMU itself writes to logs). It needs root.
    """

    def __init__(self, source: HostSource) -> None:
        self._source = source
        self._by_kernel: dict[str, tuple[int, bool]] = {}  # uuid → domain, and whether the kernel counts for it

    @property
    def ask_libvirt(self) -> bool:
        """Whether the next bulk query includes drives: a domain needs it, or no domain is known yet."""
        return not self._by_kernel or not all(kernel for _, kernel in self._by_kernel.values())

    def keep(self, uuids: set[str]) -> None:
        """Forget all domains but these."""
        self._by_kernel = {uuid: known for uuid, known in self._by_kernel.items() if uuid in uuids}

    def bytes(
        self,
        record: DomainRecord,
        stats: DomainStats,
        described: DomainDescription | None,
        process: QemuProcess | None,
        absent: dict[str, str],
    ) -> int | None:
        """Bytes read and written; None with the reason in `absent`."""
        domain, by_kernel = self._by_kernel.get(record.uuid, (record.id, None))
        if domain != record.id or by_kernel is None:
            by_kernel = bool(described and described.direct_disks and self._of_process(process, {}) is not None)
            self._by_kernel[record.uuid] = (record.id, by_kernel)
        if by_kernel:
            return self._of_process(process, absent)
        if "disk_bytes" in stats.absent:
            absent["disk_bytes"] = stats.absent["disk_bytes"]
        return stats.disk_bytes

    def _of_process(self, process: QemuProcess | None, absent: dict[str, str]) -> int | None:
        if process is None:
            absent["disk_bytes"] = "its QEMU process is not seen"
            return None
        return read_parsed(absent, "disk_bytes", self._source, f"/proc/{process.pid}/io", parse_task_io)
