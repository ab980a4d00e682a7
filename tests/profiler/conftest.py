"""What the profiler's tests share: the recording, and the guard for tests that start real instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.profiler.recorded import RECORDINGS


@pytest.fixture
def recording() -> Path:
    return RECORDINGS / "containers-v1.json"
