"""Recordings of real outputs, for tests that parse them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parents[1] / "recordings"


def recorded_files(reading: int = 0) -> dict[str, str]:
    """Path → text of everything that was read in one recorded reading."""
    document: Any = json.loads((RECORDINGS / "containers-v1.json").read_text(encoding="utf-8"))
    return {path: text for path, text in document["readings"][reading]["files"].items() if isinstance(text, str)}
