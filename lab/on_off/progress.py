"""Reads an instance's progress at any moment, without asking its programs."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, Self

from lab.errors import RunError
from lab.workloads import Progress, Workload

FILE = "progress"
"""The file, in the folder in which a program starts, where the program counts what it has done if the file exists."""
SLOTS = 512
_THREADS = slice(8, 72)
_DONE, _WAITED_US, _DUE, _STATE, _FROZEN_NS = 0, 1, 2, SLOTS - 2, SLOTS - 1
_UNITS: Mapping[Progress, tuple[str, float]] = {
    "sent": ("Mbit/s", 8e-6), "packets": ("packets/s", 1.0), "io": ("MB/s", 1e-6),
}  # fmt: skip
_DEVICE_TX_BYTES, _DEVICE_TX_PACKETS = 8, 9  # columns of /proc/PID/net/dev behind the name


class ProgressReader(Protocol):
    """`read` gives a number that grows with the work done; `unit` is that of its rate."""

    unit: str

    def read(self) -> float: ...

    def close(self) -> None: ...


class CounterFile:
    """The file of one instance: slots of 64 bits, shared with its programs.

    Slot 0 counts what was done, and the slots from 8 on what each thread did. Where questions come at moments fixed in
    advance, slot 1 has the µs that answers took, and slot 2 how many were due. The lab counts states in the last slot
    but one, and in the last one the ns in which the instance was frozen: a program subtracts them from its clock.
    """

    def __init__(self, directory: Path) -> None:
        with (directory / FILE).open("w+b") as file:
            file.truncate(SLOTS * 8)
            self._map = mmap.mmap(file.fileno(), SLOTS * 8)
        self.slots = memoryview(self._map).cast("Q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.slots.release()
        self._map.close()

    @property
    def done(self) -> int:
        return sum(self.slots[_THREADS]) + self.slots[_DONE]

    @property
    def waited_us(self) -> int:
        return self.slots[_WAITED_US]

    @property
    def due(self) -> int:
        return self.slots[_DUE]

    def begin_state(self) -> None:
        """Let the load generator see that a new state begins."""
        self.slots[_STATE] += 1

    def froze(self, seconds: float) -> None:
        """Add to the time in which the instance was frozen; to be called before it is thawed."""
        self.slots[_FROZEN_NS] += round(seconds * 1e9)


class _Counted:
    def __init__(self, counter: CounterFile, unit: str) -> None:
        self._counter = counter
        self.unit = unit

    def read(self) -> float:
        return float(self._counter.done)

    def close(self) -> None:
        return


class _Table:
    """A file of /proc that is read again and again."""

    def __init__(self, path: str, source: Progress) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror}") from None
        self._source = source
        self.unit, self._scale = _UNITS[source]

    def read(self) -> float:
        text = os.pread(self._file, 8192, 0)
        return self._scale * (_moved(text) if self._source == "io" else _sent(text, self._source))

    def close(self) -> None:
        os.close(self._file)


def _moved(text: bytes) -> int:
    """Bytes that system calls have read and written, in /proc/PID/io (proc(5)); a call counts when it is done."""
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith((b"rchar", b"wchar")))


def _sent(text: bytes, source: Progress) -> int:
    column = _DEVICE_TX_BYTES if source == "sent" else _DEVICE_TX_PACKETS
    lines = [line.partition(b":") for line in text.splitlines()[2:]]
    return sum(int(rest.split()[column]) for name, _, rest in lines if name.strip() != b"lo")


def open_progress(workload: Workload, counter: CounterFile, program: int, server: int | None) -> ProgressReader:
    """A reader of this workload's progress; `program` and `server` are process ids.

    RunError for a kind of work that shows nothing while it runs.
    """
    source = workload.progress
    if source is None:
        raise RunError(f"work of kind {workload.kind} does not show its progress while it runs: measure it in blocks")
    if source == "counted":
        return _Counted(counter, workload.unit)
    if source == "io":
        return _Table(f"/proc/{program}/io", source)
    if server is None:
        raise RunError(f"work of kind {workload.kind} has no server whose traffic could be read")
    return _Table(f"/proc/{server}/net/dev", source)
