"""Brings a database to the tables that this code knows and refuses one it does not know; runs alembic in process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from advisor.errors import SchemaMismatch
from advisor.store.engine import Database

Fit = Literal["empty", "older", "current", "newer", "foreign"]
_ONE_AT_A_TIME = threading.Lock()  # alembic keeps the running migration in a module-wide variable


def fit(connection: sa.Connection) -> Fit:
    """How the tables of this database compare with those that this code knows."""
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is None:
        return "foreign" if sa.inspect(connection).get_table_names() else "empty"
    script = ScriptDirectory.from_config(_config())
    if revision == script.get_current_head():
        return "current"
    return "older" if revision in {known.revision for known in script.walk_revisions()} else "newer"


def refuse(database: Database, found: Fit) -> None:
    """Raise SchemaMismatch, with what to do, unless the tables are the current ones."""
    sentences = {
        "older": "was written by an older Cotenant: back it up and run `cotenant db upgrade`",
        "newer": "was written by a newer Cotenant: install that version or name another database",
        "foreign": "holds tables of another program: name another database",
        "empty": "has no tables yet: run `cotenant db upgrade`",
    }
    if found != "current":
        raise SchemaMismatch(f"database {database.name} {sentences[found]}")


def upgrade(database: Database) -> str:
    """Bring an empty or older database to the newest tables in one transaction; returns its revision.

    Safe to call from several processes at once. Raises SchemaMismatch on a newer or foreign database.
    """
    with _ONE_AT_A_TIME, database.write() as connection:
        found = fit(connection)
        if found in {"newer", "foreign"}:
            refuse(database, found)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        return MigrationContext.configure(connection).get_current_revision() or ""


def _config() -> Config:
    config = Config()
    folder = str(Path(__file__).parent / "migrations")
    config.set_main_option("script_location", folder.replace("%", "%%"))  # a % would be read as an interpolation
    return config
