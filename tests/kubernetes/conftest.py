"""The laboratory, only where COTENANT_TEST_KUBERNETES=1 asks for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kubernetes.build_control_plane import CannotBuildError, versions
from tests.kubernetes.lab import Lab, laboratory
from tests.servers.fixtures import postgres_server
from tests.servers.postgres import Postgres
from tests.servers.service import Service

__all__ = ["postgres_server"]

_PATIENCE_S = 120.0  # for an answer, on a machine that has other work, too


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
    """As shipped, but that answers are waited for."""
    _skip_unless_asked()
    with ExitStack() as opened:
        yield _opened(opened, request.param, tmp_path_factory.mktemp("kubernetes"))


@pytest.fixture(scope="module")
def replicas(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lab, Sequence[Service]]]:
    """The same on PostgreSQL with the plug-in and two services, of which the laboratory's is the first."""
    _skip_unless_asked()
    server: Postgres = request.getfixturevalue("postgres_server")
    folder, url = tmp_path_factory.mktemp("replicas"), server.url(server.new_database())
    with ExitStack() as opened:
        lab = _opened(opened, versions()[0], folder, url)
        if lab.plugin is None:
            pytest.skip("there is no scheduler with the plug-in: make scheduler-plugin builds it")
        second = Service(url, folder)
        opened.callback(second.running.stop)
        yield lab, (lab.service, second.start())


def _skip_unless_asked() -> None:
    if os.environ.get("COTENANT_TEST_KUBERNETES") != "1":
        pytest.skip("runs a real control plane for minutes; make test-kubernetes asks for it")


def _opened(opened: ExitStack, version: str, folder: Path, database: str | None = None) -> Lab:
    try:
        return opened.enter_context(laboratory(version, folder, _PATIENCE_S, database))
    except CannotBuildError as error:
        pytest.skip(str(error))
