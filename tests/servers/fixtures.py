"""Servers and databases as fixtures; a test that needs what is not installed is skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from advisor.offline import load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import migrate
from advisor.store.engine import Database
from tests.servers.postgres import Postgres, postgres
from tests.servers.running import NotInstalled


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL that tests share: each makes databases of its own, and none stops it."""
    try:
        with postgres() as server:
            yield server
    except NotInstalled as error:
        pytest.skip(str(error))


def sqlite_with_tables(file: Path) -> str:
    """The URL of a new SQLite file as the migrations leave it, which takes them a tenth of a second each time."""
    file.write_bytes(_migrated())
    return f"sqlite:///{file}"


def sqlite_with_cloud(file: Path, cloud: Path) -> str:
    """The URL of a new SQLite file with this inventory, which takes a tenth of a second to store each time, too."""
    file.write_bytes(_filled(cloud))
    return f"sqlite:///{file}"


@cache
def _filled(cloud: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "filled.sqlite3"
        with Advisor(Settings(database=sqlite_with_tables(file), state_dir=Path(folder))) as advisor:
            advisor.inventory.put(load_inventory(cloud), mode="replace", generation=None)
        return file.read_bytes()


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "migrated.sqlite3"
        database = Database(f"sqlite:///{file}")
        migrate.upgrade(database)
        database.close()
        return file.read_bytes()


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each test runs on both; `@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)` says otherwise."""
    return str(request.param)


@pytest.fixture
def empty_url(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database without tables."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path / 'cotenant.sqlite3'}"
        return
    server = request.getfixturevalue("postgres_server")
    name = server.new_database()
    yield server.url(name)
    server.drop(name)
