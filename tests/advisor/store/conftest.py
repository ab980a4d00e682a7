"""A fresh database with the newest tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.store import migrate
from advisor.store.engine import Database


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'cotenant.sqlite3'}"


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = Database(url)
    migrate.upgrade(database)
    yield database
    database.close()
