"""The whole API asked thousands of generated questions over a socket: a minute and more, only where asked for."""

from __future__ import annotations

import os

import pytest

_ASKED = os.environ.get("COTENANT_TEST_FUZZ") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks a service is skipped but under `make test-fuzz`; what only reads is not."""
    for item in items:
        if item.path.name == "test_fuzz_api.py" and not _ASKED:
            item.add_marker(pytest.mark.skip(reason="takes minutes: run `make test-fuzz`"))
