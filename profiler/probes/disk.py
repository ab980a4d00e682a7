"""Small and sustained reads and writes on files of our own (L2), past this system's caches; four tests in turn."""

from __future__ import annotations

import argparse
import mmap
import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.observed import Quantity
from profiler.pictures import Figure, label, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries
from profiler.probes.disk_files import FILE_BYTES, LARGE_BYTES, SMALL_BYTES, Files, drop_cache, own_files
from profiler.probes.options import above, count
from profiler.probes.statistics import described, variation_percent

TESTS = ("read_small", "write_small", "read_sustained", "write_sustained")
_FILES = 200  # LATENCY section 3: several hundred files of 5 MB
_OPERATIONS = 200
_PLACE = Path("/var/tmp")  # noqa: S108 - on a disk, where /tmp often is memory; the folder there is our own
_FROM_DEVICE = 0.99  # of the bytes


@dataclass(frozen=True, slots=True)
class DiskOperation:
    """One timed operation: a small block, or a whole file; `at_s` from the beginning of its test."""

    test: str
    at_s: float
    took_ms: float
    length: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that this process read from and wrote to devices (proc_pid_io(5))."""

    read: int
    written: int


class DiskProbe:
    """Random small operations show latency, whole files bandwidth; how much both vary is the finding."""

    name = "disk"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--files", type=count(9999, 2), default=_FILES, metavar="N", help=f"of 5 MB each ({_FILES})"
        )
        parser.add_argument(
            "--dir", type=Path, default=_PLACE, metavar="DIR",
            help=f"where to create them; they are always removed ({_PLACE})",
        )  # fmt: skip
        parser.add_argument(
            "--count", type=count(10**6), default=_OPERATIONS, metavar="N",
            help=f"small reads, and as many writes ({_OPERATIONS}); sustained tests take every file once",
        )  # fmt: skip
        parser.add_argument(
            "--seconds", type=above(0, 86_400), metavar="S", help="time for all four tests together at most"
        )
        parser.add_argument(
            "--seed", type=count(2**31, 0), default=1, metavar="N", help="seed of the random places (1)"
        )

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        done: list[DiskOperation] = []
        accounts: dict[str, tuple[Moved | None, Moved | None]] = {}
        with own_files(options.dir, options.files, progress) as files:
            for test in TESTS if files.paths else ():
                before = moved()
                with progress.interruptible():
                    perform(test, files, options, done, progress)
                accounts[test] = before, moved()
        values = summarise(done)
        main = next((name for name in ("write_sustained_mean", "read_small_median") if name in values), "")
        if not main:
            raise ProbeError("stopped before anything was measured")
        small, large = ("O_DIRECT" if direct else "page cache dropped before each"
                        for direct in (files.direct_small, files.direct_large))  # fmt: skip
        circumstances = {"files": str(options.files), "directory": str(options.dir), "small": small, "sustained": large}
        series = RawSeries({
            "test": [one.test for one in done], "at_s": [one.at_s for one in done],
            "took_ms": [one.took_ms for one in done], "bytes": [one.length for one in done],
        })  # fmt: skip
        return ProbeRun(values, main, series, circumstances, doubts(done, accounts))

    def draw(self, run: ProbeRun) -> Figure:
        figure, panels = new_figure(len(TESTS), columns=2)
        for test, axes in zip(TESTS, panels, strict=True):
            rows = [(float(at or 0), float(took or 0), int(length or 0))
                    for name, at, took, length in run.series.rows() if name == test]  # fmt: skip
            small = test.endswith("small")
            shown = [took if small else length / 1e3 / took for _, took, length in rows]
            title = test.replace("_", " ").capitalize()
            if rows:
                over_time(axes, [at for at, _, _ in rows], shown, "ms" if small else "MB/s", title)
                axes.set_ylim(bottom=0)
            else:
                label(axes, f"{title}: not reached")
        return figure


def perform(
    test: str, files: Files, options: argparse.Namespace, done: list[DiskOperation], progress: Progress
) -> None:
    """Do one of TESTS, and append every operation to `done`; ends early when a quarter of `--seconds` is over."""
    operation = {"read_small": _read_small, "write_small": _write_small}.get(test)
    draw = random.Random(f"{test} {options.seed}")  # noqa: S311 - places in files, no secret
    quota_s = options.seconds / len(TESTS) if options.seconds else float("inf")
    whole = draw.sample(files.paths, len(files.paths))
    number = options.count if operation else len(whole)
    progress.begin(number, f"of {test.replace('_', ' ')}")
    # O_DIRECT wants aligned memory. It is left to the collector: an operation that is cut short still refers to it.
    memory = memoryview(mmap.mmap(-1, FILE_BYTES))
    memory[:] = draw.randbytes(FILE_BYTES)
    first = time.monotonic()
    for place in range(number):
        if progress.stopped or time.monotonic() - first > quota_s:
            return
        at_s = time.monotonic() - first
        if operation:
            offset = draw.randrange(FILE_BYTES // SMALL_BYTES) * SMALL_BYTES
            took_ns = operation(draw.choice(files.paths), offset, memory[:SMALL_BYTES], files.direct_small)
            done.append(DiskOperation(test, at_s, took_ns / 1e6, SMALL_BYTES))
        else:
            sustained = _read_whole if test == "read_sustained" else _write_whole
            took_ns = sustained(whole[place], memory, files.direct_large)
            done.append(DiskOperation(test, at_s, took_ns / 1e6, FILE_BYTES))
        progress.update(place + 1)


def _read_small(path: Path, offset: int, memory: memoryview, direct: bool) -> int:
    return _timed(path, os.O_RDONLY, direct, lambda fd: _all(os.preadv(fd, [memory], offset), len(memory)))


def _write_small(path: Path, offset: int, memory: memoryview, direct: bool) -> int:
    return _timed(
        path, os.O_WRONLY | os.O_DSYNC, direct, lambda fd: _all(os.pwritev(fd, [memory], offset), len(memory))
    )


def _read_whole(path: Path, memory: memoryview, direct: bool) -> int:
    def read(descriptor: int) -> None:
        for offset in range(0, FILE_BYTES, LARGE_BYTES):
            part = memory[offset : offset + LARGE_BYTES]
            _all(os.preadv(descriptor, [part], offset), len(part))

    return _timed(path, os.O_RDONLY, direct, read)


def _write_whole(path: Path, memory: memoryview, direct: bool) -> int:
    def write(descriptor: int) -> None:
        for offset in range(0, FILE_BYTES, LARGE_BYTES):
            part = memory[offset : offset + LARGE_BYTES]
            _all(os.pwritev(descriptor, [part], offset), len(part))
        os.fdatasync(descriptor)  # written means on the device

    return _timed(path, os.O_WRONLY, direct, write)


def _timed(path: Path, flags: int, direct: bool, work: Callable[[int], None]) -> int:
    """Nanoseconds that the work takes on a file that no cache of this system holds; opening it is not timed."""
    descriptor = os.open(path, flags | (os.O_DIRECT if direct else 0))
    try:
        if not direct:
            drop_cache(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no block more than was asked for
        begin = time.perf_counter_ns()
        work(descriptor)
        return time.perf_counter_ns() - begin
    finally:
        os.close(descriptor)


def _all(moved_bytes: int, wanted: int) -> None:
    if moved_bytes != wanted:
        raise ProbeError("the file system moved less than was asked for: is it full?")


def moved() -> Moved | None:
    """What the kernel counted for this process."""
    try:
        return parse_io(Path("/proc/self/io").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def parse_io(text: str) -> Moved | None:
    """Text of /proc/PID/io; None when it does not hold both counters."""
    found = dict(re.findall(r"^(read_bytes|write_bytes): (\d{1,20})$", text, re.MULTILINE))
    return Moved(int(found["read_bytes"]), int(found["write_bytes"])) if len(found) == 2 else None


def summarise(done: Sequence[DiskOperation]) -> dict[str, Quantity]:
    """Latency of small operations in ms, bandwidth of whole files in MB/s; tests that were not reached are absent."""
    values: dict[str, Quantity] = {}
    for test in TESTS:
        operations = [one for one in done if one.test == test]
        small = test.endswith("small")
        numbers = [
            operation.took_ms if small else operation.length / 1e3 / operation.took_ms for operation in operations
        ]
        values |= described(numbers, "ms" if small else "MB/s", prefix=f"{test}_")
        if (variation := variation_percent(numbers)) is not None:
            values[f"{test}_variation"] = Quantity(variation, "%")
        if operations:
            values[f"{test}_operations"] = Quantity(len(operations), "1")
    return values


def doubts(done: Sequence[DiskOperation], accounts: Mapping[str, tuple[Moved | None, Moved | None]]) -> tuple[str, ...]:
    """Whether the bytes of each test went past this system's caches, by the kernel's own account."""
    marks = []
    for test, (before, after) in accounts.items():
        wanted = sum(one.length for one in done if one.test == test)
        if before is None or after is None:
            marks.append(f"{test}: this kernel does not tell whether a device was reached (/proc/self/io)")
            continue
        reached = after.read - before.read if test.startswith("read") else after.written - before.written
        if reached < _FROM_DEVICE * wanted:
            share = 100 * reached / wanted
            marks.append(f"{test}: only {share:.0f} % of the bytes reached a device, caches or memory took the rest")
    return tuple(marks)


PROBE = DiskProbe()
