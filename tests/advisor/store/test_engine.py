"""What goes wrong with a database is said in one sentence, as the right kind of error."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.errors import InvalidInput, OutOfSpace, StorageUnavailable
from advisor.settings import DATABASE
from advisor.store import counters, engine, hosts, migrate, samples
from advisor.store.engine import Database, _Line
from profiler.observed import Host, MetricSample

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "not understood"),
        ("nonsense", "not understood"),
        ("mysql://localhost/x", "not supported"),
        ("sqlite://", "memory"),
        ("sqlite:///:memory:", "memory"),
        ("sqlite:///file::memory:?uri=true", "path"),
    ],
)
def test_a_database_url_that_makes_no_sense_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        Database(url)
    assert caught.value.field == "database"


def test_a_password_is_not_repeated() -> None:
    database = Database("postgresql://cotenant:secret@localhost:1/x")
    assert "secret" not in database.name
    with pytest.raises(StorageUnavailable) as caught, database.read():
        pass
    assert "secret" not in caught.value.message
    with pytest.raises(InvalidInput) as refused:
        Database("postgresql:/cotenant:secret@localhost:1/x")
    assert "secret" not in refused.value.message


def test_the_folder_of_the_default_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    database = Database(DATABASE)
    assert migrate.upgrade(database)
    database.close()


@pytest.mark.parametrize("folder", ["a/b", "file", "file/x"])
def test_a_folder_that_is_not_there_is_named_and_not_made(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageUnavailable, match=f"there is no folder {tmp_path}/{folder} for the database"):
        Database(f"sqlite:///{tmp_path}/{folder}/c.sqlite3")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_default_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("var").touch()
    with pytest.raises(StorageUnavailable, match="folder var for the database cannot be used: File exists"):
        Database(DATABASE)


@pytest.mark.parametrize(("name", "reason"), [("c.sqlite3", "not a database"), ("", "unable to open")])
def test_a_file_that_is_no_database_or_a_directory_is_unavailable(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "c.sqlite3").write_bytes(b"certainly no database" * 100)
    database = Database(f"sqlite:///{tmp_path}/{name}")
    with pytest.raises(StorageUnavailable, match=reason), database.read() as connection:
        counters.read(connection)
    database.close()


def test_a_writer_that_waits_too_long_sees_that_the_database_is_locked(url: str, database: Database) -> None:
    impatient = Database(url, busy_s=0.05)
    with database.write() as first:
        counters.bump(first, "inventory")
        with pytest.raises(StorageUnavailable, match="locked by another writer"), impatient.write() as second:
            counters.bump(second, "inventory")
    impatient.close()


def test_who_holds_a_counter_reads_what_was_written_last_and_keeps_others_from_moving_it(
    url: str, database: Database
) -> None:
    impatient = Database(url, busy_s=0.05)
    with impatient.write() as earlier:
        counters.bump(earlier, "inventory")
    with database.write() as first:
        counters.hold(first, "inventory")
        assert counters.read(first).inventory == 1
        with pytest.raises(StorageUnavailable, match="locked by another writer"), impatient.write() as second:
            counters.bump(second, "inventory")
    with impatient.write() as second:
        assert counters.bump(second, "inventory") == 2
    impatient.close()


def test_a_read_goes_on_while_another_writes_and_sees_the_moment_of_its_beginning(url: str, database: Database) -> None:
    reader = Database(url, busy_s=0.05)
    with reader.read() as reading:
        before = counters.read(reading)
        with database.write() as writing:
            counters.bump(writing, "inventory")
            with reader.read() as meanwhile:
                assert counters.read(meanwhile).inventory == 0
        assert counters.read(reading) == before
    with reader.read() as reading:
        assert counters.read(reading).inventory == 1
    reader.close()


def test_connections_that_a_crowd_needed_rest_when_it_has_gone(database: Database) -> None:
    def used(connection: sa.Connection) -> int:
        return id(connection.connection.dbapi_connection)

    with ExitStack() as crowd:
        there = {used(crowd.enter_context(database.read())) for _ in range(9)}
    after = set()
    for _ in range(9):
        with database.read() as connection:
            after.add(used(connection))
    assert len(there) == 9
    assert len(after) == 1


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_foreign_keys_are_enforced_and_the_journal_is_a_write_ahead_log(database: Database) -> None:
    with database.read() as connection:
        assert connection.scalar(sa.text("PRAGMA foreign_keys")) == 1
        assert connection.scalar(sa.text("PRAGMA journal_mode")) == "wal"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_a_full_disk_refuses_writes_leaves_everything_readable_and_takes_more_when_there_is_space_again(
    small_disk: Path,
) -> None:
    database = Database(f"sqlite:///{small_disk}/cotenant.sqlite3")
    migrate.upgrade(database)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(2**17))
    put_host(database, "h1")
    stored = 0
    with pytest.raises(OutOfSpace, match="no space left"):
        for batch in range(1000):
            with database.write() as connection:
                items = [MetricSample("h1", None, "host", "event", 1.0, batch * 1000.0 + time) for time in range(1000)]
                added = samples.add(connection, items)
            stored += added
    assert stored > 0
    with database.read() as connection:
        assert [host.id for host in hosts.load_all(connection)] == ["h1"]
        assert connection.scalar(sa.select(sa.func.sum(samples.sample_packs.c.number))) == stored
    filler.unlink()
    put_host(database, "after")
    with database.read() as connection:
        assert hosts.get(connection, "after") is not None
    database.close()
    with sqlite3.connect(small_disk / "cotenant.sqlite3") as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    plain.close()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Database, Path]]:
    """A SQLite database with tables that was used, and its file."""
    file = tmp_path / "c.sqlite3"
    database = Database(f"sqlite:///{file}")
    migrate.upgrade(database)
    yield database, file
    database.close()


def put_host(database: Database, name: str) -> None:
    with database.write() as connection:
        hosts.put(connection, [Host(name, "kvm", 4, 1024)], NOW)


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_read_from_or_written_to_a_file_that_was_deleted_or_replaced(
    opened: tuple[Database, Path], tmp_path: Path, replaced: bool
) -> None:
    database, file = opened
    kept = file.rename(tmp_path / "kept")
    if replaced:
        shutil.copy(kept, file)
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match="was deleted or replaced"), database.read() as connection:
            counters.read(connection)
        with pytest.raises(StorageUnavailable, match="was deleted or replaced"):
            put_host(database, "h1")
        database.close()  # a new connection finds out as well
    assert file.exists() == replaced
    kept.rename(file)
    put_host(database, "h2")
    with database.read() as connection:
        assert hosts.known(connection, ["h1", "h2"]) == {"h2"}


def test_a_write_that_ends_after_the_file_was_deleted_is_not_acknowledged(opened: tuple[Database, Path]) -> None:
    database, file = opened
    with pytest.raises(StorageUnavailable, match="was deleted or replaced"), database.write() as connection:
        hosts.put(connection, [Host("h1", "kvm", 4, 1024)], NOW)
        file.unlink()


def test_only_its_owner_may_read_a_new_database(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'c.sqlite3'}")
    before = os.umask(0)
    try:
        migrate.upgrade(database)
        put_host(database, "h1")
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
        database.close()
    assert modes == dict.fromkeys(("c.sqlite3", "c.sqlite3-wal", "c.sqlite3-shm"), 0o600)


def test_the_log_of_sqlite_begins_anew_though_there_is_always_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers overlap, so that SQLite itself, which waits for none, never begins it anew."""
    monkeypatch.setattr(engine, "LONGEST_LOG", 400_000)
    monkeypatch.setattr(engine, "LOG_LOOK_S", 0.0)
    monkeypatch.setattr(engine, "LOG_WAIT_S", 60.0)
    database = Database(f"sqlite:///{tmp_path}/c.sqlite3")
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE t (x TEXT)"))
    over, handed = threading.Event(), [threading.Semaphore(0), threading.Semaphore(0)]

    def read(at: int) -> None:
        """Begin a transaction, let the other end its own, and end this one once the other has begun."""
        while True:
            with database.read() as connection:
                connection.execute(sa.text("SELECT count(*) FROM t")).scalar()
                handed[1 - at].release()
                if over.is_set():
                    return
                handed[at].acquire()

    readers = [threading.Thread(target=read, args=(at,)) for at in range(2)]
    for reader in readers:
        reader.start()
    longest, written = 0, 0
    for _ in range(100):
        with database.write() as connection:
            connection.execute(sa.text("INSERT INTO t VALUES (:x)"), {"x": "x" * 20_000})
        written += 20_000
        longest = max(longest, (tmp_path / "c.sqlite3-wal").stat().st_size)
    over.set()
    for reader, turn in zip(readers, handed, strict=True):
        turn.release()
        reader.join(60)
    database.close()
    assert longest < written / 2


def test_no_commit_moves_the_log_into_the_file_but_a_thread_after_so_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite itself moves it within a commit, once it has 1000 pages; here 50 transactions write 2,000."""
    monkeypatch.setattr(engine, "MOVED_AFTER", 50)
    path = tmp_path / "a.sqlite3"
    database = Database(f"sqlite:///{path}")

    def rows_in_the_file() -> int:
        (copy := tmp_path / "copy.sqlite3").write_bytes(path.read_bytes())  # without the log
        with closing(sqlite3.connect(copy)) as alone:
            return int(alone.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]) and int(
                alone.execute("SELECT count(*) FROM t").fetchone()[0]
            )

    for number in range(49):
        with database.write(synced=False) as connection:
            if not number:
                connection.execute(sa.text("CREATE TABLE t (a BLOB)"))
            connection.execute(sa.text("INSERT INTO t VALUES (zeroblob(160000))"))
        assert not database._mover.is_alive()
    assert rows_in_the_file() == 0
    with database.write(synced=False) as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (zeroblob(160000))"))
    database._mover.join(60)
    assert rows_in_the_file() == 50
    database.close()


def test_a_writer_that_a_signal_takes_out_of_the_line_keeps_no_other_waiting() -> None:
    """As an interrupt of a command does, which comes in its main thread."""

    def interrupt(number: int, _frame: object) -> None:
        raise KeyboardInterrupt(number)

    line, before = _Line(), signal.signal(signal.SIGALRM, interrupt)
    try:
        assert line.enter(0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            line.enter(60.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    line.leave()
    assert line.enter(0.0)
