"""Tables come from migrations, and a database of another version is refused with what to do."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql

import advisor.store
from advisor.domain import Activation
from advisor.errors import SchemaMismatch
from advisor.store import answers, migrate, models, schema, stays
from advisor.store.engine import Database
from tests.advisor.store.at_once import at_once

for module in pkgutil.iter_modules(advisor.store.__path__):  # so that no table is forgotten
    if module.name != "migrations":
        importlib.import_module(f"advisor.store.{module.name}")


NOW = datetime(2026, 11, 29, tzinfo=UTC)
_CATALOGUES = (
    "SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace AND conrelid::regclass::text <> 'alembic_version'",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'alembic_version'",
    "SELECT table_name, column_name, data_type, character_maximum_length, is_nullable, column_default"
    " FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'",
)


def _set_revision(database: Database, revision: str) -> None:
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_migrated_tables_are_the_ones_that_the_code_names(database: Database) -> None:
    with database.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection), schema.metadata) == []
        tables = set(sa.inspect(connection).get_table_names()) - {"alembic_version"}
    assert tables == set(schema.metadata.tables)


def test_files_of_migrations_are_named_by_their_revisions() -> None:
    script = ScriptDirectory(str(migrate.FOLDER))
    assert {known.revision for known in script.walk_revisions()} == migrate.revisions()
    assert script.get_current_head() == max(migrate.revisions())


def test_migrated_constraints_are_the_ones_that_the_code_names(empty_url: str, database: Database) -> None:
    """Autogenerate does not look at everything: compare the statements that made the tables."""
    other = Database(empty_url.replace("cotenant.sqlite3", "created.sqlite3"))
    with other.write() as connection:
        schema.metadata.create_all(connection)
        created = _statements(connection)
    other.close()
    with database.read() as connection:
        assert _statements(connection) == created


def _statements(connection: sa.Connection) -> dict[str, list[str]]:
    if connection.dialect.name == "postgresql":
        return {query: sorted(map(str, connection.execute(sa.text(query)))) for query in _CATALOGUES}
    rows = connection.execute(
        sa.text("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'alembic%' AND sql <> ''")
    )
    # SQLite writes a column that was added later behind the constraints, on the line of the closing bracket.
    parts = {row.name: re.split(r"[\n,]", row.sql) for row in rows}
    return {name: sorted(filter(None, (part.strip(" \t)") for part in some))) for name, some in parts.items()}


def test_many_upgrades_at_once_make_the_tables_once_and_another_changes_nothing(empty_url: str) -> None:
    def upgrade() -> str:
        with closing(Database(empty_url)) as database:
            return migrate.upgrade(database)

    assert {*at_once(*[upgrade] * 4)} == {upgrade()}


@pytest.mark.parametrize(
    ("refused", "present"),
    [("unreleased", "0022"), ("unreleased", "0041"), ("newer", "9999"), ("foreign", "")],  # 0041 was joined with others
)
def test_a_database_that_is_not_ours_to_change_stays_as_it_is(
    empty_url: str, refused: migrate.Fit, present: str
) -> None:
    database = Database(empty_url)
    if present:
        migrate.upgrade(database)
        _set_revision(database, present)
    else:
        with database.write() as connection:
            connection.execute(sa.text("CREATE TABLE theirs (id INTEGER)"))
    with database.read() as connection:
        assert migrate.fit(connection) == refused
    with pytest.raises(SchemaMismatch, match="name another database"):
        migrate.upgrade(database)
    with database.read() as connection:
        assert migrate.fit(connection) == refused
    database.close()


def test_the_way_out_of_each_mismatch_is_named(database: Database) -> None:
    with pytest.raises(SchemaMismatch, match="cotenant db upgrade"):
        migrate.refuse(database, "older")
    with pytest.raises(SchemaMismatch, match="newer Cotenant"):
        migrate.refuse(database, "newer")
    migrate.refuse(database, "current")


def test_migrations_are_found_from_any_folder(empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database(empty_url)
    assert migrate.upgrade(database)
    database.close()


def test_stored_names_of_earlier_versions_are_brought_to_the_present_ones(empty_url: str) -> None:
    figures = [{"target": "throughput", "prior": {"against": "prior", "error": 0.1}, "active": {"against": "active"}}]
    verdict = {"passed": True, "figures": figures}
    with closing(Database(empty_url)) as database, database.write() as connection:
        migrate.bring_to(connection, "0023")
        card = {"version": "m1", "status": "active", "created_at": NOW, "origin": "measured", "card": {}}
        connection.execute(sa.insert(models.models).values(**card))
        connection.execute(sa.insert(models.verdicts).values(version="m1", verdict=verdict))
        for before, after in (("prior", "m1"), ("m1", "prior"), ("m1", "priory")):
            models.record(connection, Activation(NOW, before, after, "activate"))
        connection.execute(sa.insert(answers.plans).values(id="p", created_at=NOW, model_version="prior", answer={}))
        fared = {"newcomer": {"told": 0.5, "told_windows": 1}, "residents": {"contended_told": 0.25}, "wanted": 2.5}
        stay = {
            "instance": "i",
            "since_s": 1.0,
            "host": "h1",
            "looked_s": 1.0,
            "told": "{}",
            "fared": json.dumps(fared),
        }
        names = ", ".join(stay)
        values = ", ".join(f":{name}" for name in stay)
        connection.execute(sa.text(f"INSERT INTO stays ({names}) VALUES ({values})"), stay)
        migrate.bring_to(connection, "head")
        kept = connection.scalars(sa.select(stays.stays.c.fared)).one()
        found = models.get(connection, "m1")
        named = connection.scalars(sa.select(answers.plans.c.model_version)).all()
        history = [(one.before, one.after) for one in models.history(connection)]
    assert (history, named) == ([("analytic", "m1"), ("m1", "analytic"), ("m1", "priory")], ["analytic"])
    assert kept == {
        "new_vm": {"predicted": 0.5, "predicted_windows": 1},
        "residents": {"contended_predicted": 0.25},
        "demanded": 2.5,
    }
    assert found is not None and found.verdict is not None
    (now,) = found.verdict["figures"]
    assert now["analytic"] == {"against": "analytic", "error": 0.1}
    assert (now["active"], now.get("prior"), found.verdict["passed"]) == ({"against": "active"}, None, True)


def test_every_table_can_be_made_on_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in schema.metadata.sorted_tables:
        statement = str(sa.schema.CreateTable(table).compile(dialect=dialect))
        assert "WITHOUT ROWID" not in statement
        for index in table.indexes:
            assert str(sa.schema.CreateIndex(index).compile(dialect=dialect))
