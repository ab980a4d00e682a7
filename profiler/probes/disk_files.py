"""The disk probe's files: created in a folder of their own, kept out of caches, and removed, also after a kill."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import secrets
import signal
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from profiler.probes.base import ProbeError, Progress

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
