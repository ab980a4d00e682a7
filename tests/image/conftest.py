"""The image is only built where it is asked for: it takes minutes and gigabytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.image.containers import Containers, containers
from tests.servers.running import NotInstalled

_ASKED = os.environ.get("COTENANT_TEST_IMAGE") == "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(1800))
            if not _ASKED:
                item.add_marker(pytest.mark.skip(reason="builds the image, which takes minutes: run `make test-image`"))


@pytest.fixture(scope="session")
def built() -> Iterator[Containers]:
    """A storage that has the image."""
    try:
        with containers() as made:
            made.build()
            yield made
    except NotInstalled as missing:
        pytest.skip(str(missing))
