"""Counts of what a spool lost, kept across restarts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from profiler.whole_files import write_whole


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
