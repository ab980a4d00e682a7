"""Brings a database to the tables that this code knows and refuses one it does not know; runs alembic in process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import sqlalchemy as sa

from advisor.errors import SchemaMismatch
from advisor.store import engine
from advisor.store.engine import Database

Fit = Literal["empty", "unreleased", "older", "current", "newer", "foreign"]
FOLDER = Path(__file__).parent / "migrations"
_KEPT_BY_ALEMBIC = sa.table("alembic_version", sa.column("version_num"))
_ONE_AT_A_TIME = threading.Lock()  # alembic keeps the running migration in a module-wide variable


def fit(connection: sa.Connection) -> Fit:
    """How the tables of this database compare with those that this code knows."""
    present = revision(connection)
    if not present:
        return "foreign" if sa.inspect(connection).get_table_names() else "empty"
    known = revisions()
    if present == max(known):
        return "current"
    if present in known:
        return "older"
    return "newer" if present > max(known) else "unreleased"


def refuse(database: Database, tables_fit: Fit) -> None:
    """Raise SchemaMismatch, with what to do, unless the tables are the current ones."""
    sentences = {
        "unreleased": "was written before version 0.1.0: name another database, or see CHANGELOG.md",
        "older": "was written by an older Cotenant: back it up and run `cotenant db upgrade`",
        "newer": "was written by a newer Cotenant: install that version or name another database",
        "foreign": "holds tables of another program: name another database",
        "empty": "has no tables yet: run `cotenant db upgrade`",
    }
    if tables_fit != "current":
        raise SchemaMismatch(f"database {database.name} {sentences[tables_fit]}")


def upgrade(database: Database) -> str:
    """Bring an empty or older database to the newest tables in one transaction; returns its revision.

    Safe to call from several processes at once. Raises SchemaMismatch on any other.
    """
    with _ONE_AT_A_TIME, database.write() as connection:
        engine.alone_with(connection, "tables")
        tables_fit = fit(connection)
        if tables_fit in {"unreleased", "newer", "foreign"}:
            refuse(database, tables_fit)
        bring_to(connection, "head")
        return revision(connection)


def bring_to(connection: sa.Connection, wanted: str) -> None:
    """Bring the tables up to a revision, in the transaction that is open."""
    from alembic import command  # a third of a second, which only who changes tables waits for
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))  # a % would be read as an interpolation
    config.attributes["connection"] = connection
    command.upgrade(config, wanted)


def revision(connection: sa.Connection) -> str:
    """Which revision the tables are at; empty = there are none."""
    if not sa.inspect(connection).has_table(_KEPT_BY_ALEMBIC.name):
        return ""
    return connection.scalar(sa.select(_KEPT_BY_ALEMBIC.c.version_num)) or ""


def revisions() -> frozenset[str]:
    """Every revision that this code knows, by the names of its migrations' files: v0023_first_tables.py is 0023."""
    return frozenset(path.name[1:5] for path in (FOLDER / "versions").glob("v*.py"))
