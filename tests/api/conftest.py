"""A real Advisor on a temporary SQLite with a small cloud in it, and a client that speaks to the app in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_cloud, sqlite_with_tables

CLOUD = Path(__file__).parent / "cloud.yaml"


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"COTENANT_{name.upper()}", raising=False)


@pytest.fixture(autouse=True)
def _trials_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes seconds to load the libraries of a trial; tests/models has the real one."""
    monkeypatch.setattr("advisor.prediction.active.try_out", lambda path: None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio` are coroutines."""
    return "asyncio"


@pytest.fixture
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _folder_with_tables(_empty_folder: None, tmp_path: Path) -> None:
    """With the database that commands find there."""
    (tmp_path / "var").mkdir()
    sqlite_with_tables(tmp_path / "var" / "cotenant.sqlite3")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    database = sqlite_with_cloud(tmp_path / "db.sqlite3", CLOUD)
    return Settings(database=database, state_dir=tmp_path, max_body_mb=0.25, max_batch=20, extender_s=60.0)


@pytest.fixture
def advisor(settings: Settings) -> Iterator[Advisor]:
    with Advisor(settings) as opened:
        yield opened


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    return Client(create_app(advisor, settings))
