"""The disk under the database is full: writes are refused with that reason, reads and answers go on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from tests.servers.fixtures import kind, postgres_server
from tests.servers.postgres import Postgres
from tests.servers.running import hand_over, own_folder
from tests.servers.service import Service

__all__ = ["kind", "postgres_server"]

SMALL = {"sqlite": "3m", "postgresql": "14m"}  # PostgreSQL begins with 8 MB of catalogues
LARGE = "64m"
BATCH = 5000


class Disk:
    """A file system in memory that can grow."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder = folder
        self._mount("tmpfs", "-t", "tmpfs", "-o", f"size={size}")
        hand_over(folder)

    def grow(self) -> None:
        self._mount("tmpfs", "-o", f"remount,size={LARGE}")

    def _mount(self, what: str, *options: str) -> None:
        argv = ["mount", *options, what, str(self.folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")


@pytest.fixture
def disk(kind: str) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    folder = own_folder("disk")
    try:
        yield Disk(folder, SMALL[kind])
    finally:
        subprocess.run(["umount", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder)


@pytest.fixture
def url(kind: str, disk: Disk, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database whose data lies on the small disk; PostgreSQL's log of writes lies elsewhere, or it would stop."""
    if kind == "sqlite":
        yield f"sqlite:///{disk.folder}/cotenant.sqlite3"
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    place = disk.folder / "space"
    place.mkdir()
    hand_over(place)
    server.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(sql.Literal(str(place))))
    name = server.new_database(tablespace="small")
    yield server.url(name)
    server.drop(name)
    server.execute(sql.SQL("DROP TABLESPACE small"))


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[Service]:
    service = Service(url, tmp_path).start()
    yield service
    service.running.stop()


def _batch(number: int) -> dict[str, Any]:
    begin = 1.7e9 + 10.0 * number * BATCH
    times = (datetime.fromtimestamp(begin + 10.0 * step, UTC).isoformat() for step in range(BATCH))
    return {"samples": [{"host": "h1", "metric": "event", "value": 1.0, "time": time} for time in times]}


@pytest.mark.timeout(600)
def test_a_full_disk_is_507_and_reads_and_answers_go_on(service: Service, disk: Disk) -> None:
    host = {"kind": "kvm", "pcpus": 4, "memory_mb": 4096}
    assert service.ask("PUT", "/v1/hosts/h1", host).status == 201
    taken = 0
    while (answer := service.ask("POST", "/v1/samples", _batch(taken))).status == 200:
        taken += 1
        assert taken < 2000, "the disk is not small"
    assert taken > 1
    assert (answer.status, answer.body["code"]) == (507, "storage.full")
    assert "no space left" in answer.body["detail"]
    assert service.ask("GET", "/v1/hosts/h1").status == 200
    assert service.ask("GET", "/readyz").status == 200
    scene = {"host": {"id": "h1", **host}, "instances": [{"id": name, "vcpus": 1} for name in ("a", "b")]}
    assert service.ask("POST", "/v1/predictions", scene).status == 200
    disk.grow()
    assert service.ask("POST", "/v1/samples", _batch(taken)).body["accepted"] == BATCH  # nothing of it was there
    assert service.ask("POST", "/v1/samples", _batch(taken - 1)).body["duplicate"] == BATCH
