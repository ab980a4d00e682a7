"""What the profiler's tests share: the recording, and the guard for tests that start real instances."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from recorded import RECORDINGS

TOOLS = ("nginx", "wrk", "sysbench", "ip", "tc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip real lab tests, with the reason, where they cannot run."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    reason = ""
    if os.geteuid() != 0:
        reason = "needs root: it makes control groups and network namespaces"
    elif missing:
        reason = f"needs {', '.join(missing)} (apt-get install nginx wrk sysbench iproute2)"
    elif len(os.sched_getaffinity(0)) < 2:
        reason = "needs two CPUs"
    if reason:
        for item in items:
            if item.get_closest_marker("lab"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def recording() -> Path:
    return RECORDINGS / "containers-v1.json"
