"""The laboratory, only where COTENANT_TEST_KUBERNETES=1 asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kubernetes.build_control_plane import CannotBuildError, versions
from tests.kubernetes.lab import Lab, laboratory


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(7200))  # the first one may build the control plane
            item.add_marker(pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The plug-in's cases run on every version that is built, all others on the newest of them."""
    if "lab" in metafunc.fixturenames:
        there = versions()
        of_plugin = "plugin" in metafunc.module.__name__
        metafunc.parametrize("lab", there if of_plugin else there[:1], indirect=True, scope="session")


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """As shipped, but that answers are waited for on a machine that has other work, too."""
    if os.environ.get("COTENANT_TEST_KUBERNETES") != "1":
        pytest.skip("runs a real control plane for minutes; make test-kubernetes asks for it")
    with ExitStack() as opened:
        try:
            yield opened.enter_context(
                laboratory(request.param, tmp_path_factory.mktemp("kubernetes"), patience_s=120.0)
            )
        except CannotBuildError as error:
            pytest.skip(str(error))
