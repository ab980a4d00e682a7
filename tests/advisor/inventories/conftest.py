"""A service that what is read is followed into."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from tests.servers.fixtures import sqlite_with_tables


@pytest.fixture
def advisor(tmp_path: Path) -> Iterator[Advisor]:
    with Advisor(Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)) as opened:
        yield opened
