"""A backup brings a database back, of either kind, and never half of it."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import shutil
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.domain import Host, Instance, Inventory, PlacementRequest, WorkloadProfile
from advisor.errors import Conflict, InvalidInput, OutOfSpace, SchemaMismatch
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import backup, migrate, samples
from advisor.store.engine import Database
from profiler.observed import MetricSample
from tests.servers.fixtures import postgres_server

__all__ = ["postgres_server"]

NOW = datetime.now(UTC)
CLOUD = Inventory(
    (Host("h1", "kvm", 4, 8192, labels={"zone": "ä\u2028"}), Host("h2", "xen", 8, 8192)),
    (Instance("i1", host="h1", workload="web"),),
    (WorkloadProfile("web", {"cpu": 50.0}),),
)
SAMPLES = 100
New = Callable[[str], Database]


@pytest.fixture
def new(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[New]:
    """Empty databases of either kind."""
    numbers = count()
    with ExitStack() as opened:

        def make(kind: str) -> Database:
            if kind == "sqlite":
                url = f"sqlite:///{tmp_path}/{next(numbers)}.sqlite3"
            else:
                server = request.getfixturevalue("postgres_server")
                name = server.new_database()
                opened.callback(server.drop, name)
                url = server.url(name)
            database = Database(url)
            opened.callback(database.close)
            return database

        yield make


def fill(database: Database) -> None:
    """An empty SQLite file becomes a copy of one that everything was put into."""
    Path(database.url.database or "").write_bytes(_filled())


@cache
def _filled() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "filled.sqlite3"
        database = Database(f"sqlite:///{file}")
        put_everything(database, Path(folder))
        database.close()
        return file.read_bytes()


@cache
def _backed_up() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file, path = Path(folder) / "filled.sqlite3", Path(folder) / "all.backup"
        file.write_bytes(_filled())
        with closing(Database(f"sqlite:///{file}")) as database:
            backup.make(database, path)
        return path.read_bytes()


def put_everything(database: Database, tmp_path: Path) -> None:
    with Advisor(settings_of(database, tmp_path)) as advisor:
        advisor.inventory.put(CLOUD, mode="replace", generation=None)
        advisor.placements.place(PlacementRequest(Instance("new")))
        begin = NOW.timestamp() - 20_000
        sent = [MetricSample("h1", "i1", "instance", "cpu", 1 / 3, begin + step) for step in range(SAMPLES)]
        advisor.telemetry.ingest(sent)


def settings_of(database: Database, tmp_path: Path) -> Settings:
    return Settings(database=database.url.render_as_string(hide_password=False), state_dir=tmp_path)


def content(database: Database) -> dict[str, list[str]]:
    """Every row of every table, but for counters, which go on."""
    with database.read() as connection:
        found = {
            name: sorted(json.dumps(list(row)) for row in backup.read(connection, table))
            for name, table in backup.tables_of(connection).items()
        }
    return {name: rows for name, rows in found.items() if name not in {"counters", "changes"}}


def dump(database: Database) -> list[str]:
    """A whole SQLite file, tables and counters among it."""
    with closing(sqlite3.connect(database.url.database or "")) as connection:
        return list(connection.iterdump())


@pytest.mark.parametrize("out_of", ["sqlite", "postgresql"])
def test_everything_comes_back_in_a_database_of_either_kind(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_of: str
) -> None:
    monkeypatch.setattr(backup, "AT_ONCE", 2 * SAMPLES // 3)  # what is left after the first rows is fewer
    source, path = new(out_of), tmp_path / "all.backup"
    put_everything(source, tmp_path)
    made = backup.make(source, path)
    assert made.rows["sample_packs"] == SAMPLES
    assert oct(path.stat().st_mode & 0o777) == "0o600"  # digests of tokens are in it
    there = content(source)
    assert len(there["sample_packs"]) == SAMPLES
    for into in ("sqlite", "postgresql"):
        target = new(into)
        assert backup.restore(target, path) == made
        assert content(target) == there
        with Advisor(settings_of(target, tmp_path)) as advisor:  # and new rows get numbers of their own
            assert advisor.inventory.put(CLOUD, mode="merge", generation=advisor.inventory.generation()) == 3
            stranger = MetricSample("h2", None, "host", "event", 1.0, NOW.timestamp() - 60)
            assert advisor.telemetry.ingest([stranger])["accepted"] == 1
            assert advisor.placements.place(PlacementRequest(Instance("another"))).recommendation.candidates


def test_a_database_that_holds_something_is_replaced_only_when_asked_and_its_readers_notice(
    new: New, tmp_path: Path
) -> None:
    source, target, path = new("sqlite"), new("sqlite"), tmp_path / "all.backup"
    fill(source)
    backup.make(source, path)
    with Advisor(settings_of(target, tmp_path)) as watching:
        for number in range(5):
            watching.inventory.put_host(Host(f"other{number}", "kvm", 4, 1024))
        assert watching.cloud.ready()["hosts"] == 5
        with pytest.raises(Conflict, match="is not empty"):
            backup.restore(target, path)
        assert watching.cloud.ready()["hosts"] == 5
        backup.restore(target, path, replace=True)
        assert [host.id for host in watching.inventory.hosts().items] == ["h1", "h2"]
        assert watching.cloud.ready()["hosts"] == 2
        assert watching.inventory.generation() == 6  # who read 5 before may not write on top of that
    assert len(content(target)["sample_packs"]) == SAMPLES


def test_samples_may_be_left_out(new: New, tmp_path: Path) -> None:
    source, target, path = new("sqlite"), new("sqlite"), tmp_path / "small.backup"
    fill(source)
    made = backup.make(source, path, samples=False)
    assert not backup.MEASURED & set(made.rows)
    backup.restore(target, path)
    there = content(target)
    assert there["sample_packs"] == there["series"] == []
    assert there["hosts"] == content(source)["hosts"]


def test_tables_of_an_older_version_are_brought_to_the_newest(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, path = new("sqlite"), new("sqlite"), tmp_path / "old.backup"
    fill(source)
    backup.make(source, path)
    shutil.copytree(migrate.FOLDER, tmp_path / "migrations")
    newest = max(migrate.revisions())
    (tmp_path / "migrations" / "versions" / "v9999_hue.py").write_text(
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision, down_revision = '9999', '{newest}'\n"
        "def upgrade(): op.add_column('hosts', sa.Column('hue', sa.Text, server_default='red'))\n"
    )
    monkeypatch.setattr(migrate, "FOLDER", tmp_path / "migrations")
    with pytest.raises(SchemaMismatch, match="older Cotenant"):
        backup.make(source, tmp_path / "new.backup")
    backup.restore(target, path)
    assert migrate.upgrade(source) == "9999"
    for database in (source, target):
        with database.read() as connection:
            assert connection.execute(sa.text("SELECT id, hue FROM hosts ORDER BY id")).all() == [
                ("h1", "red"),
                ("h2", "red"),
            ]


def _spoiled(whole: bytes, how: str) -> bytes:
    text = gzip.decompress(whole)
    if how == "cut off":
        return whole[: len(whole) // 2]
    if how == "a line is missing":
        lines = text.splitlines(keepends=True)
        return gzip.compress(b"".join([*lines[:5], *lines[6:]]))
    if how == "no end":
        return gzip.compress(b"".join(text.splitlines(keepends=True)[:-1]))
    if how == "a value is another":
        return gzip.compress(text.replace(b'"h1"', b'"h9"', 1))
    if how == "newer":
        return _sealed(text.replace(migrate_head().encode(), b"9999", 1))
    if how == "older than any release":
        return _sealed(text.replace(migrate_head().encode(), b"0022", 1))
    if how == "other columns":
        return _sealed(text.replace(b'"memory_mb"', b'"memory_gb"', 1))
    if how == "rows too short":
        return _sealed(text.replace(b'["h1",', b"[", 1))
    return {"empty": b"", "not compressed": text, "not JSON": gzip.compress(b"certainly\nnot\n")}[how]


def _sealed(text: bytes) -> bytes:
    """With a digest that fits: what a hostile or broken program may write."""
    import hashlib

    *lines, last = text.splitlines(keepends=True)
    end = json.loads(last) | {"sha256": hashlib.sha256(b"".join(lines)).hexdigest()}
    return gzip.compress(b"".join(lines) + json.dumps(end).encode() + b"\n")


def migrate_head() -> str:
    return max(migrate.revisions())


@pytest.mark.parametrize(
    "how",
    ["cut off", "a line is missing", "no end", "a value is another", "newer",
     "older than any release", "other columns", "rows too short",
     "empty", "not compressed", "not JSON"],
)  # fmt: skip
def test_a_file_that_is_no_whole_backup_is_refused_and_nothing_changes(new: New, tmp_path: Path, how: str) -> None:
    database, path = new("sqlite"), tmp_path / "all.backup"
    fill(database)
    before = dump(database)
    path.write_bytes(_spoiled(_backed_up(), how))
    with pytest.raises(InvalidInput, match="cannot be restored"):
        backup.restore(database, path, replace=True)
    assert dump(database) == before


def test_a_file_that_is_absent_or_a_folder_is_refused(new: New, tmp_path: Path) -> None:
    database = new("sqlite")
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InvalidInput, match="cannot be restored"):
            backup.restore(database, path)
        assert not content(database)


def test_a_backup_is_of_one_moment_while_others_write(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, path = new("sqlite"), tmp_path / "all.backup"
    fill(database)
    read = backup.read

    def and_meanwhile(connection: sa.Connection, table: sa.Table) -> Iterator[backup.Row]:
        with database.write() as writing:
            samples.add(writing, [MetricSample("h1", None, "host", table.name, 1.0, 5.0)])
        return read(connection, table)

    before = content(database)
    monkeypatch.setattr(backup, "read", and_meanwhile)
    backup.make(database, path)
    monkeypatch.undo()
    restored = new("sqlite")
    backup.restore(restored, path)
    assert content(restored) == before
    assert len(content(database)["series"]) > len(before["series"])


def test_a_backup_that_does_not_fit_the_disk_leaves_the_former_one(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, path = new("sqlite"), tmp_path / "all.backup"
    fill(database)
    path.write_bytes(b"the former one")

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutOfSpace):
        backup.make(database, path)
    assert path.read_bytes() == b"the former one"
    assert [one.name for one in tmp_path.iterdir() if "partial" in one.name] == []


def partials(folder: Path) -> list[str]:
    return [one.name for one in folder.iterdir() if "partial" in one.name]


def test_what_a_killed_backup_left_goes_with_the_next_one_whatever_its_name(new: New, tmp_path: Path) -> None:
    child = os.fork()
    if not child:  # a process in the middle of writing
        try:
            with backup._whole(tmp_path / "monday.backup"):
                os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(partials(tmp_path)) == 1
    others = [".monday.backup.0123abcd.partial", ".notes.backup-partial"]  # a report's under way, and anybody's
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".link.0123abcd.backup-partial").symlink_to(tmp_path / "elsewhere")
    database = new("sqlite")
    fill(database)
    backup.make(database, tmp_path / "tuesday.backup")
    assert sorted(partials(tmp_path)) == sorted([*others, ".link.0123abcd.backup-partial"])


def test_a_backup_under_way_is_left_alone_by_another_one(new: New, tmp_path: Path) -> None:
    database = new("sqlite")
    fill(database)
    with backup._whole(tmp_path / "slow.backup") as file:  # locks are of open files: another process is kept off alike
        backup.make(database, tmp_path / "fast.backup")
        backup.make(database, tmp_path / "slow.backup")
        assert len(partials(tmp_path)) == 1
        file.write(b"the slow one\n")
    assert gzip.decompress((tmp_path / "slow.backup").read_bytes()) == b"the slow one\n"
    assert partials(tmp_path) == []


def test_a_backup_that_is_taken_for_a_leftover_before_it_is_locked_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "a.backup", fcntl.flock
    taken: list[Any] = []

    def late(handle: int, how: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob(".*partial"))
            taken[0].unlink()
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with backup._whole(path) as file:
        file.write(b"all of it\n")
    assert len(taken) == 1
    assert gzip.decompress(path.read_bytes()) == b"all of it\n"


def test_the_name_of_a_backup_is_on_disk_before_it_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[bool, bool]] = []
    path, fsync = tmp_path / "a.backup", os.fsync

    def watched(handle: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with backup._whole(path) as file:
        file.write(b"all of it\n")
    assert synced == [(False, False), (True, True)]


def test_where_nothing_can_be_locked_a_backup_is_made_and_no_leftover_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    leftover = tmp_path / ".a.backup.0123abcd.backup-partial"
    leftover.touch()
    with backup._whole(tmp_path / "a.backup") as file:
        file.write(b"all of it\n")
    assert gzip.decompress((tmp_path / "a.backup").read_bytes()) == b"all of it\n"
    assert leftover.exists()


def test_the_database_of_another_program_is_never_replaced(new: New, tmp_path: Path) -> None:
    source, theirs, path = new("sqlite"), new("sqlite"), tmp_path / "all.backup"
    fill(source)
    backup.make(source, path)
    with theirs.write() as connection:
        connection.execute(sa.text("CREATE TABLE theirs (id INTEGER)"))
    with pytest.raises(SchemaMismatch, match="another program"):
        backup.restore(theirs, path, replace=True)
    assert list(content(theirs)) == ["theirs"]
