"""Small and sustained reads and writes on files of our own (L2), past this system's caches; four tests in turn."""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import mmap
import os
import random
import re
import secrets
import signal
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.observed import Quantity
from profiler.pictures import Figure, label, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, described, variation_percent

# The disk probe's files: created in a folder of their own, kept out of caches, and removed, also after a kill.

FILE_BYTES = 5_000_000 // 4096 * 4096  # LATENCY section 3: 5 MB, here in whole pages
SMALL_BYTES = 1024  # LATENCY section 3: a block of 1 KB
LARGE_BYTES = 1 << 20  # of one system call of the sustained tests
_PREFIX = "cotenant-probe-disk-"
_OWNER = "owner"  # a file that is locked for as long as its process lives
_NAME = re.compile(r"f\d{4}\Z|owner\Z")
_YOUNG_S = 60.0  # a younger folder may not have been locked by its owner yet
_SPARE = 0.05  # of the file system stays free
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Files:
    """Files of FILE_BYTES with data that neither compresses nor repeats; `direct_*`: the file system takes O_DIRECT."""

    folder: Path
    paths: tuple[Path, ...]
    direct_small: bool
    direct_large: bool


@contextlib.contextmanager
def own_files(parent: Path, count: int, progress: Progress) -> Iterator[Files]:
    """Make `count` files below `parent` for the block; fewer when stopped. ProbeError where there is no room.

    Folders that killed runs left in `parent` are removed first; nothing else is ever removed.
    """
    remove_stale(parent)
    _check_room(parent, count)
    folder = parent / f"{_PREFIX}{secrets.token_hex(6)}"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ProbeError(f"{parent} takes no files of ours: {error.strerror}") from None
    try:
        with (folder / _OWNER).open("wb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            with progress.interruptible():
                _fill(folder, count, progress)
            paths = tuple(sorted(folder.glob("f[0-9][0-9][0-9][0-9]")))
            whole = tuple(path for path in paths if path.stat().st_size == FILE_BYTES)
            yield Files(
                folder, whole, bool(whole) and _takes_direct(whole[0], SMALL_BYTES),
                bool(whole) and _takes_direct(whole[0], LARGE_BYTES),
            )  # fmt: skip
    except OSError as error:
        if error.errno in _FULL:
            raise ProbeError(f"{parent} is full: {_megabytes(count):,.0f} MB are needed, take fewer --files") from None
        raise ProbeError(f"the files in {parent} cannot be used: {error.strerror}") from None
    finally:
        remove(folder)


def remove_stale(parent: Path) -> list[Path]:
    """Remove folders of this probe whose owner is dead, with the files that it makes; returns them."""
    removed = []
    try:
        folders = sorted(parent.glob(f"{_PREFIX}*"))
    except OSError:
        return []
    for folder in folders:
        with contextlib.suppress(OSError):
            if _is_stale(folder):
                remove(folder)
                removed.append(folder)
    return removed


def remove(folder: Path) -> None:
    """Remove a folder with this probe's files; the folder stays if it holds anything else.

    Signals wait until it is done.
    """
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        with contextlib.suppress(OSError):
            for path in folder.iterdir():
                if _NAME.match(path.name):
                    path.unlink(missing_ok=True)
            folder.rmdir()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def drop_cache(descriptor: int) -> None:
    """Take a file out of the page cache. Dirty pages would stay there, so they are written first."""
    os.fdatasync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _is_stale(folder: Path) -> bool:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return False
    try:
        with (folder / _OWNER).open("rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:
        return time.time() - status.st_mtime > _YOUNG_S
    except BlockingIOError:
        return False


def _check_room(parent: Path, count: int) -> None:
    try:
        room = os.statvfs(parent)
    except OSError as error:
        raise ProbeError(f"{parent} cannot be used: {error.strerror}; choose another with --dir") from None
    free_mb = room.f_bavail * room.f_frsize / 1e6
    spare_mb = min(_SPARE * room.f_blocks * room.f_frsize / 1e6, 1000)
    if free_mb - spare_mb < _megabytes(count):
        raise ProbeError(
            f"{parent} has {free_mb:,.0f} MB free, and {_megabytes(count):,.0f} MB are needed besides"
            f" {spare_mb:,.0f} MB that stay free: take fewer --files or another --dir"
        )


def _fill(folder: Path, count: int, progress: Progress) -> None:
    # every file holds another stretch of one random block, at odd offsets: no two aligned sectors are the same
    random = memoryview(os.urandom(2 * FILE_BYTES))
    progress.begin(count, "files made")
    for number in range(count):
        if progress.stopped:
            return
        begin = number * 4093 % FILE_BYTES
        with (folder / f"f{number:04}").open("wb", buffering=0) as file:
            data = random[begin : begin + FILE_BYTES]
            while data:
                data = data[file.write(data) :]
            drop_cache(file.fileno())
        progress.update(number + 1)


def _takes_direct(path: Path, length: int) -> bool:
    """Whether O_DIRECT works for this length: it must suit the device's sectors, and some file systems have none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, length) as buffer:
            return os.preadv(descriptor, [buffer], length) == length
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _megabytes(count: int) -> float:
    return count * FILE_BYTES / 1e6


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
    """Random small operations show latency, whole files bandwidth; the finding is how much both vary."""

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
        operations: list[DiskOperation] = []
        accounts: dict[str, tuple[Moved | None, Moved | None]] = {}
        with own_files(options.dir, options.files, progress) as files:
            for test in TESTS if files.paths else ():
                before = moved()
                with progress.interruptible():
                    perform(test, files, options, operations, progress)
                accounts[test] = before, moved()
        values = summarise(operations)
        main = next((name for name in ("write_sustained_mean", "read_small_median") if name in values), "")
        if not main:
            raise ProbeError("stopped before anything was measured")
        small, large = ("O_DIRECT" if direct else "page cache dropped before each"
                        for direct in (files.direct_small, files.direct_large))  # fmt: skip
        circumstances = {"files": str(options.files), "directory": str(options.dir), "small": small, "sustained": large}
        series = RawSeries({
            "test": [operation.test for operation in operations], "at_s": [operation.at_s for operation in operations],
            "took_ms": [operation.took_ms for operation in operations],
            "bytes": [operation.length for operation in operations],
        })  # fmt: skip
        return ProbeRun(values, main, series, circumstances, doubts(operations, accounts))

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
    test: str, files: Files, options: argparse.Namespace, operations: list[DiskOperation], progress: Progress
) -> None:
    """Run one of TESTS and append each operation to `operations`; ends early when a quarter of `--seconds` is over."""
    small = test.endswith("small")
    choice = random.Random(f"{test} {options.seed}")  # noqa: S311 - places in files, no secret
    limit_s = options.seconds / len(TESTS) if options.seconds else float("inf")
    order = choice.sample(files.paths, len(files.paths))
    number = options.count if small else len(order)
    progress.begin(number, f"of {test.replace('_', ' ')}")
    # O_DIRECT needs aligned memory. It is left to the collector: an operation that is cut short still refers to it.
    memory = memoryview(mmap.mmap(-1, FILE_BYTES))
    memory[:] = choice.randbytes(FILE_BYTES)
    block = memory[:SMALL_BYTES] if small else memory
    direct = files.direct_small if small else files.direct_large
    first = time.monotonic()
    for place in range(number):
        if progress.stopped or time.monotonic() - first > limit_s:
            return
        at_s = time.monotonic() - first
        offset = choice.randrange(FILE_BYTES // SMALL_BYTES) * SMALL_BYTES if small else 0
        path = choice.choice(files.paths) if small else order[place]
        took_ns = _timed(test, path, offset, block, direct=direct)
        operations.append(DiskOperation(test, at_s, took_ns / 1e6, len(block)))
        progress.update(place + 1)


def _timed(test: str, path: Path, offset: int, memory: memoryview, *, direct: bool) -> int:
    """Nanoseconds of one operation on a file that no cache of this system holds; opening it is not timed.

    `memory` is read or written at `offset`. Small writes are synchronous, whole files are synchronised at their end:
    written means on the device.
    """
    reads, small = test.startswith("read"), test.endswith("small")
    flags = os.O_RDONLY if reads else os.O_WRONLY | os.O_DSYNC if small else os.O_WRONLY
    move = os.preadv if reads else os.pwritev
    descriptor = os.open(path, flags | (os.O_DIRECT if direct else 0))
    try:
        if not direct:
            drop_cache(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        begin = time.perf_counter_ns()
        for start in range(0, len(memory), LARGE_BYTES):
            part = memory[start : start + LARGE_BYTES]
            if move(descriptor, [part], offset + start) != len(part):
                raise ProbeError("the file system moved less than was asked for: is it full?")
        if not reads and not small:
            os.fdatasync(descriptor)
        return time.perf_counter_ns() - begin
    finally:
        os.close(descriptor)


def moved() -> Moved | None:
    """What the kernel counted for this process."""
    try:
        return parse_io(Path("/proc/self/io").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def parse_io(text: str) -> Moved | None:
    """Text of /proc/PID/io; None when it does not hold both counters."""
    counters = dict(re.findall(r"^(read_bytes|write_bytes): (\d{1,20})$", text, re.MULTILINE))
    return Moved(int(counters["read_bytes"]), int(counters["write_bytes"])) if len(counters) == 2 else None


def summarise(operations: Sequence[DiskOperation]) -> dict[str, Quantity]:
    """Latency of small operations in ms, bandwidth of whole files in MB/s; tests that were not reached are absent."""
    values: dict[str, Quantity] = {}
    for test in TESTS:
        small = test.endswith("small")
        numbers = [
            operation.took_ms if small else operation.length / 1e3 / operation.took_ms
            for operation in operations
            if operation.test == test
        ]
        values |= described(numbers, "ms" if small else "MB/s", prefix=f"{test}_")
        if (variation := variation_percent(numbers)) is not None:
            values[f"{test}_variation"] = Quantity(variation, "%")
        if numbers:
            values[f"{test}_operations"] = Quantity(len(numbers), "1")
    return values


def doubts(
    operations: Sequence[DiskOperation], accounts: Mapping[str, tuple[Moved | None, Moved | None]]
) -> tuple[str, ...]:
    """Marks for tests whose bytes did not all reach a device, by the kernel's own account."""
    marks = []
    for test, (before, after) in accounts.items():
        wanted = sum(operation.length for operation in operations if operation.test == test)
        if before is None or after is None:
            marks.append(f"{test}: this kernel does not tell whether a device was reached (/proc/self/io)")
            continue
        reached = after.read - before.read if test.startswith("read") else after.written - before.written
        if reached < _FROM_DEVICE * wanted:
            share = 100 * reached / wanted
            marks.append(f"{test}: only {share:.0f} % of the bytes reached a device, caches or memory took the rest")
    return tuple(marks)


PROBE = DiskProbe()
