"""Writes files atomically, also when the agent is killed, and keeps counts of losses across restarts."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

TEMPORARY = ".tmp"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that under its name it is complete and on the disk, or not there. Raises OSError."""
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)  # the name, too
    finally:
        os.close(directory)


@dataclass(frozen=True, slots=True)
class SpoolLosses:
    """What a spool lost or put aside since it was made."""

    dropped_batches: int = 0
    dropped_samples: int = 0
    broken: int = 0
    refused: int = 0

    @classmethod
    def load(cls, path: Path) -> SpoolLosses:
        """What `save` wrote; zeros where there is nothing or nonsense."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: int(document[field.name]) for field in fields(cls)})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return cls()

    def plus(self, **more: int) -> SpoolLosses:
        """With these added."""
        return replace(self, **{name: getattr(self, name) + by for name, by in more.items()})

    def save(self, path: Path) -> None:
        """Write them; a full disk keeps them in memory until the next time."""
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(asdict(self)).encode())
