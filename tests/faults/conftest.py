"""Faults of real processes and real servers, minutes long: they run alone, in real time, and only where asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ASKED = os.environ.get("COTENANT_TEST_FAULTS") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is measured, and skipped but under `make test-faults`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.measured)
            if not _ASKED:
                item.add_marker(pytest.mark.skip(reason="takes minutes alone on the machine: run `make test-faults`"))
