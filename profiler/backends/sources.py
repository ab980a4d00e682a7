"""Sources of a backend's files and tool output: the live host, the live host while recording, or a recording."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

# Sources of a backend's files and tool output: the live host, the live host while recording, or a recording.

T = TypeVar("T")

_NO_CLOCK = (0.0, 0.0)


class HostSource(Protocol):
    """Files of a host by absolute path, and output of its tools; every method raises OSError on failure."""

    def read(self, path: str) -> str: ...
    def names(self, path: str) -> list[str]: ...
    def link(self, path: str) -> str: ...
    def value(self, key: str, read: Callable[[], T], /) -> T:
        """The result of `read`: a tool's output or a library's answer, as something that JSON can hold.

        `key` names it in recordings, so it must be the same in every reading.
        """

    def clock(self) -> tuple[float, float]:
        """Epoch seconds and monotonic seconds."""

    def sweep(self, *, ended: bool = False) -> None:
        """Note that a reading is over. `ended`: something that was read has ended, so files must not be kept for it."""

    def close(self) -> None:
        """Close every file; harmless when called twice."""


@dataclass(slots=True)
class RecordedReading:
    """Everything that one reading looked at, by path; an int in place of a value is the errno of the failure."""

    clock: tuple[float, float] = _NO_CLOCK
    files: dict[str, str | int] = field(default_factory=dict)
    directories: dict[str, list[str] | int] = field(default_factory=dict)
    links: dict[str, str | int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)  # [value] or the errno

    @classmethod
    def load(cls, entry: Mapping[str, Any]) -> RecordedReading:
        """Read what `RecordingSource.save` wrote; KeyError, TypeError or ValueError where it is not a reading."""
        time_s, monotonic_s = entry["clock"]
        files, directories, links = (dict(entry[name]) for name in ("files", "directories", "links"))
        return cls((float(time_s), float(monotonic_s)), files, directories, links, dict(entry.get("values", {})))


class RecordingSource:
    """The live host; keeps what was read until `cut` starts the next reading."""

    def __init__(self, live: HostSource) -> None:
        self._live = live
        self.readings: list[RecordedReading] = [RecordedReading()]

    def cut(self) -> None:
        """Start a new reading."""
        self.readings.append(RecordedReading())

    def read(self, path: str) -> str:
        return self._keep(self.readings[-1].files, path, self._live.read)

    def names(self, path: str) -> list[str]:
        return self._keep(self.readings[-1].directories, path, self._live.names)

    def link(self, path: str) -> str:
        return self._keep(self.readings[-1].links, path, self._live.link)

    def value(self, key: str, read: Callable[[], T]) -> T:
        # in a list, because a value may be an int, as the errno of a failure is
        boxed: list[T] = self._keep(self.readings[-1].values, key, lambda _key: [self._live.value(key, read)])
        return boxed[0]

    def clock(self) -> tuple[float, float]:
        reading = self.readings[-1]
        if reading.clock == _NO_CLOCK:  # a reading has one time, that of its begin
            reading.clock = self._live.clock()
        return reading.clock

    def sweep(self, *, ended: bool = False) -> None:
        self._live.sweep(ended=ended)

    def close(self) -> None:
        self._live.close()

    @staticmethod
    def _keep(readings: dict[str, T | int], path: str, read: Callable[[str], T]) -> T:
        try:
            value = read(path)
        except OSError as error:
            readings[path] = error.errno or 0
            raise
        readings[path] = value
        return value

    def save(self, path: Path, *, backend: str, host: str, note: str) -> None:
        """Write the readings as one JSON file that `RecordedSource` replays."""
        readings = [{**asdict(reading), "files": _public(reading.files)} for reading in self.readings]
        document = {"backend": backend, "host": host, "note": note, "readings": readings}
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _public(files: dict[str, str | int]) -> dict[str, str | int]:
    """Without mounts other than control groups, which no backend needs and no operator should have to publish."""
    mounts = files.get("/proc/mounts")
    if not isinstance(mounts, str):
        return files
    groups = [line for line in mounts.splitlines(keepends=True) if " cgroup" in line]
    return {**files, "/proc/mounts": "".join(groups)}


class RecordedSource:
    """Replays recorded readings one after another; a path that was not recorded does not exist."""

    def __init__(self, readings: list[RecordedReading]) -> None:
        if not readings:
            raise ValueError("a recording needs at least one reading")
        self._readings = readings
        self._position = 0

    @property
    def length(self) -> int:
        return len(self._readings)

    def advance(self) -> None:
        """Go to the next reading; the last one stays."""
        self._position = min(self._position + 1, len(self._readings) - 1)

    def read(self, path: str) -> str:
        return str(self._get(self._readings[self._position].files, path))

    def names(self, path: str) -> list[str]:
        return list(self._get(self._readings[self._position].directories, path))

    def link(self, path: str) -> str:
        return str(self._get(self._readings[self._position].links, path))

    def value(self, key: str, _read: Callable[[], T]) -> T:
        boxed: list[T] = self._get(self._readings[self._position].values, key)
        return boxed[0]

    def clock(self) -> tuple[float, float]:
        return self._readings[self._position].clock

    def sweep(self, *, ended: bool = False) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""

    @staticmethod
    def _get(recorded: dict[str, Any], path: str) -> Any:
        value = recorded.get(path, 2)  # ENOENT
        if isinstance(value, int):
            raise OSError(value, os.strerror(value), path)
        return value


# The live host as a backend's source; kernel files stay open between readings.

_READ_SIZE = 1 << 16
_LIMIT = 1 << 24  # no file that is read here comes near 16 MB; more means that something is wrong with it
# The kernel fills a page with whole records before it hands it out (fs/seq_file.c): less than half of one is the end.
_SURELY_ALL = 1 << 11
_MOST_KEPT = 1 << 13  # files kept open; each costs the kernel about 4.5 KB
_GENERATION = 12  # readings; more than lie between two reads of most of what changes slowly
_OWN_LINKS = 2  # of a directory: its name and its `.`
_SPARE = 128  # descriptors left to everything else in this process
_NONE_LEFT = (errno.EMFILE, errno.ENFILE)
# An open file of a network namespace keeps the namespace, and both ends of its interfaces, alive after its last task.
_HOLDS = re.compile(r"/proc/\w+/(task/\w+/)?net/")


class LiveSource:
    """This host, now; for one thread at a time.

    Where `sweep` is called after each reading, files stay open from one reading to the next, because opening a file of
    /proc or of a control group takes six times as long as reading it. A file that was not used for a dozen readings is
    closed; after something ended, so is a file that the next reading does not use, so that dead groups are not held.
    Files of network namespaces are never kept open.
    """

    def __init__(self) -> None:
        self._most = 0  # files that may be kept
        self._used: dict[str, int] = {}  # descriptors by path: of this generation of readings …
        self._before: dict[str, int] = {}  # … and of the one before, as far as this one has not used them yet
        self._readings_left = 0  # of this generation
        self._ended = False
        self._counting: set[int] = set()  # devices whose directories count their subdirectories as links

    def read(self, path: str) -> str:
        descriptor = self._used.get(path)
        if descriptor is None:
            if path not in self._before:
                return self._open(path)
            descriptor = self._used[path] = self._before.pop(path)
        try:
            data = os.pread(descriptor, _READ_SIZE, 0)
            return data.decode("utf-8", "replace") if len(data) < _SURELY_ALL else _text(descriptor)
        except OSError:  # its group or task is gone, and another may have taken its name
            os.close(self._used.pop(path))
        return self._open(path)

    def _open(self, path: str) -> str:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # no file object for each of very many small files
        except OSError as error:
            if error.errno not in _NONE_LEFT or not self._most:
                raise
            self.close()  # other parts of the process need descriptors: keep none from now on
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        keeps = False
        try:
            text = _text(descriptor)
            keeps = len(self._used) + len(self._before) < self._most and not _HOLDS.match(path)
        finally:
            if not keeps:
                os.close(descriptor)
        if keeps:
            self._used[path] = descriptor
        return text

    def sweep(self, *, ended: bool = False) -> None:
        if not self._most:
            self._most = _may_keep()
        self._readings_left -= 1
        if self._readings_left > 0 and not ended and not self._ended:
            return
        self._readings_left, self._ended = _GENERATION, ended
        for descriptor in self._before.values():
            os.close(descriptor)
        self._before, self._used = self._used, {}

    def close(self) -> None:
        for descriptor in (*self._before.values(), *self._used.values()):
            os.close(descriptor)
        self._before, self._used, self._most = {}, {}, 0

    def names(self, path: str) -> list[str]:
        if path.endswith("/slaves"):  # devices below a block device: sysfs has links there, not folders
            return sorted(os.listdir(path))  # noqa: PTH208 - as above, no Path objects
        status = os.stat(path)  # noqa: PTH116 - no Path object for each of very many
        if status.st_nlink == _OWN_LINKS and status.st_dev in self._counting:
            return []  # a third of the time of looking
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        if names:  # not every file system counts them: this one was seen to
            change = self._counting.add if status.st_nlink == _OWN_LINKS + len(names) else self._counting.discard
            change(status.st_dev)
        return names

    def link(self, path: str) -> str:
        return os.readlink(path)  # noqa: PTH115 - no Path object for each of very many

    def value(self, _key: str, read: Callable[[], T]) -> T:
        return read()

    def clock(self) -> tuple[float, float]:
        return time.time(), time.monotonic()


def _text(descriptor: int) -> str:
    """A whole file from its start; whole reads of small files take one call."""
    data = os.pread(descriptor, _READ_SIZE, 0)
    if len(data) < _SURELY_ALL:
        return data.decode("utf-8", "replace")
    parts, size = [data], len(data)
    while parts[-1]:
        parts.append(os.pread(descriptor, _READ_SIZE, size))
        size += len(parts[-1])
        if size > _LIMIT:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return b"".join(parts).decode("utf-8", "replace")


def _may_keep() -> int:
    """How many files may be kept open, after this process's soft limit was raised to its hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _MOST_KEPT if soft == resource.RLIM_INFINITY else max(0, min(_MOST_KEPT, soft - _SPARE))
