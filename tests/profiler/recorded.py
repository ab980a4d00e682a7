"""Recordings of real outputs, for tests that parse them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from profiler.backends.sources import RecordedReading

RECORDINGS = Path(__file__).parents[1] / "recordings"


def recorded_readings(name: str) -> list[RecordedReading]:
    """All that a recording of a real host holds."""
    document: Any = json.loads((RECORDINGS / name).read_text(encoding="utf-8"))
    return [RecordedReading.load(entry) for entry in document["readings"]]


def recorded_files(reading: int = 0) -> dict[str, str]:
    """Path → text of everything that was read in one recorded reading."""
    files = recorded_readings("containers-v1.json")[reading].files
    return {path: text for path, text in files.items() if isinstance(text, str)}
