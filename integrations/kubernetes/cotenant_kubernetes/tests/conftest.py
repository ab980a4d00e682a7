"""A service that is read into, and asked; a slow machine is no reason for it to refuse a scheduler's question."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.settings import Settings
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.services import advisor, client

__all__ = ["advisor", "client", "settings"]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"COTENANT_{name.upper()}", raising=False)
    database = sqlite_with_tables(tmp_path / "db.sqlite3")
    return Settings(database=database, state_dir=tmp_path, max_body_mb=0.25, max_batch=20, extender_s=60.0)
