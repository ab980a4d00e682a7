"""The laboratory, only where COTENANT_TEST_KUBERNETES=1 asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.build_control_plane import CannotBuildError, built
from tests.kubernetes.lab import Lab, laboratory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(7200))  # the first one may build the control plane
            item.add_marker(pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """As shipped, but that answers are waited for on a machine that has other work, too."""
    if os.environ.get("COTENANT_TEST_KUBERNETES") != "1":
        pytest.skip("runs a real control plane for minutes; make test-kubernetes asks for it")
    try:
        programs = built()
    except CannotBuildError as error:
        pytest.skip(str(error))
    with laboratory(programs, tmp_path_factory.mktemp("kubernetes"), patience_s=120.0) as made:
        yield made
