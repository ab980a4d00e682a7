"""A database that another program has locked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from advisor.settings import Settings


@contextmanager
def locked(settings: Settings) -> Iterator[None]:
    """Another program's transaction, which would keep every writer waiting."""
    with closing(sqlite3.connect(settings.database.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")
