"""A killed process and several at once lose nothing that was acknowledged, and store nothing twice."""

from __future__ import annotations

import random
import sqlite3
import time
from itertools import chain
from pathlib import Path

import sqlalchemy as sa

from advisor.store import counters, hosts, samples
from advisor.store.engine import Database
from tests.advisor.store.at_once import at_once
from tests.servers.forked import Forked

HAMMER = Path(__file__).parent / "hammer.py"
BATCH = 50  # samples per batch of the hammer


def _hammer(url: str, name: str) -> Forked:
    return Forked(HAMMER, url, name)


def _kill_after(process: Forked, lines: int, seconds: float) -> list[str]:
    """Kill it some time after it acknowledged so many writes; returns all that it acknowledged."""
    seen = [process.stdout.readline() for _ in range(lines)]
    time.sleep(seconds)
    process.kill()
    rest = process.communicate().splitlines(keepends=True)
    return [line.strip() for line in (*seen, *rest) if line.endswith("\n")]


def _stored(database: Database) -> tuple[set[str], dict[str, int]]:
    """The hosts, and how many samples each has."""
    packs = samples.sample_packs
    query = sa.select(packs.c.host, sa.func.sum(packs.c.number)).group_by(packs.c.host)
    with database.read() as connection:
        return {host.id for host in hosts.load_all(connection)}, dict(connection.execute(query).all())


def test_every_acknowledged_write_outlives_kill_9_and_none_is_there_twice(
    url: str, kind: str, database: Database, tmp_path: Path
) -> None:
    chance = random.Random(7)
    acknowledged: list[str] = []
    for attempt in range(3):  # and 20 times the whole service in tests/faults
        acknowledged += _kill_after(_hammer(url, f"a{attempt}"), 4, chance.uniform(0, 0.15))
        stored_hosts, stored_samples = _stored(database)
        assert {line.split()[1] for line in acknowledged} <= stored_hosts
        for line in acknowledged:
            kind, host = line.split()
            if kind == "samples":
                assert stored_samples[host] == BATCH
        assert set(stored_samples.values()) == {BATCH}, "half a batch is stored"
        with database.read() as connection:
            assert counters.read(connection).inventory == len(stored_hosts), (
                "a generation is missing or a host too many"
            )
    assert len(acknowledged) >= 3 * 4
    database.close()
    if kind == "postgresql":
        return
    with sqlite3.connect(tmp_path / "cotenant.sqlite3") as plain:
        assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert plain.execute("PRAGMA foreign_key_check").fetchall() == []
    plain.close()


def test_processes_that_write_at_once_lose_no_update(url: str, database: Database) -> None:
    crowd = [_hammer(url, name) for name in ("a", "b", "c")]
    acknowledged = [line for process in crowd for line in _kill_after(process, 20, 0.05)]
    stored_hosts, _ = _stored(database)
    assert {line.split()[1] for line in acknowledged} <= stored_hosts
    assert {host[0] for host in stored_hosts} == {"a", "b", "c"}
    with database.read() as connection:
        assert counters.read(connection).inventory == len(stored_hosts)


def test_threads_that_bump_the_generation_at_once_each_get_their_own(database: Database) -> None:
    def bump() -> list[int]:
        generations = []
        for _ in range(25):
            with database.write() as connection:
                generations.append(counters.bump(connection, "inventory"))
        return generations

    assert sorted(chain(*at_once(*[bump] * 8))) == list(range(1, 201))
