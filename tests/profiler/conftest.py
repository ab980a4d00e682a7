"""What the profiler's tests share: the recording, and the guard for tests that start real instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.profiler.recorded import RECORDINGS


@pytest.fixture
def recording() -> Path:
    return RECORDINGS / "containers-v1.json"


@pytest.fixture
def libvirt_stats() -> dict[str, Any]:
    """What libvirt 9 said of one domain when it was recorded."""
    document = json.loads((RECORDINGS / "libvirt-tcg.json").read_text(encoding="utf-8"))
    ((domains,), *_) = [reading["values"]["libvirt domstats"] for reading in document["readings"]]
    return next(stats for _, _, name, stats in domains if name == "shop")
