"""Each test asks with either client, a stand-in or a real service, and nothing of the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant_client import calls
from tests.client.stand_in import StandIn, standing_in
from tests.servers.fixtures import sqlite_with_cloud
from tests.servers.service import Service

CLOUD = Path(__file__).parents[1] / "api" / "cloud.yaml"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COTENANT_TOKEN", "COTENANT_TOKEN_OVER_HTTP", "COTENANT_SERVER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """With short waits between tries."""
    monkeypatch.setattr(calls, "_FIRST_WAIT_S", 0.01)
    with standing_in() as started:
        yield started


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the small cloud."""
    folder = tmp_path_factory.mktemp("service")
    started = Service(sqlite_with_cloud(folder / "c.sqlite3", CLOUD), folder, forked=True).start()
    yield started
    started.running.stop()
