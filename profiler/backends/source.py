"""Sources of a backend's files and tool output: the live host, the live host while recording, or a recording."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from profiler.backends.live_source import LiveSource

__all__ = ["HostSource", "LiveSource", "RecordedReading", "RecordedSource", "RecordingSource"]

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
