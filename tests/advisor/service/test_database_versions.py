"""An Advisor on a database that is empty, older, newer or another program's."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.errors import SchemaMismatch
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import migrate
from advisor.store.engine import Database


def test_an_empty_database_is_brought_up_without_asking(settings: Settings, tmp_path: Path) -> None:
    settings = _without_tables(settings, tmp_path)
    with Advisor(settings) as advisor:
        assert advisor.inventory.hosts().items == ()


def test_a_newer_database_is_refused_at_once(settings: Settings) -> None:
    Advisor(settings).close()
    _execute(settings, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaMismatch, match="newer Cotenant"):
        Advisor(settings)


def test_the_database_of_another_program_is_refused_at_once_and_left_unlocked(
    settings: Settings, tmp_path: Path
) -> None:
    settings = _without_tables(settings, tmp_path)
    _execute(settings, "CREATE TABLE theirs (id INTEGER)")
    with pytest.raises(SchemaMismatch, match="another program"):
        Advisor(settings)
    _execute(settings, "DROP TABLE theirs")
    Advisor(settings).close()


def test_an_older_database_is_refused_until_it_is_upgraded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    Advisor(settings).close()
    monkeypatch.setattr(migrate, "fit", lambda _connection: "older")
    with Advisor(settings) as advisor:
        for call in (advisor.inventory.hosts, advisor.cloud.ready, advisor.inventory.generation):
            with pytest.raises(SchemaMismatch, match="cotenant db upgrade"):
                call()
        assert advisor.upgrade_database()
        assert advisor.inventory.hosts().items == ()


def _without_tables(settings: Settings, folder: Path) -> Settings:
    return settings.model_copy(update={"database": f"sqlite:///{folder}/without-tables.sqlite3"})


def _execute(settings: Settings, statement: str) -> None:
    database = Database(settings.database)
    with database.write() as connection:
        connection.execute(sa.text(statement))
    database.close()
