"""What the service acknowledged is still there after a power cut, which leaves of each file only what was synced."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa

from advisor.store import answers, hosts, samples
from advisor.store.engine import Database
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.service import Service

SOURCE = Path(__file__).parents[2] / "servers" / "power_cut.c"
POSTS, BATCH = 10, 20
HOST = {"kind": "kvm", "pcpus": 4, "memory_mb": 1024}


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder with what a power cut leaves of the files in `tmp_path`, for programs that are started from now on."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to build what keeps synced files apart")
    library, left = tmp_path / "power_cut.so", tmp_path / "left"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"], check=True)
    left.mkdir()
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("POWER_CUT_FOLDER", str(tmp_path))
    monkeypatch.setenv("POWER_CUT_LEFT", str(left))
    return left


@contextmanager
def killed_after(folder: Path, left: Path) -> Iterator[Service]:
    """A service that knows the host h1 and is killed at the end."""
    url = sqlite_with_tables(folder / "cotenant.sqlite3")
    shutil.copy(folder / "cotenant.sqlite3", left)
    service = Service(url, folder).start()
    try:
        assert service.ask("PUT", "/v1/hosts/h1", HOST).status == 201
        yield service
    finally:
        service.kill()


def answer(service: Service, number: int) -> str:
    asked = service.ask("POST", "/v1/placements", {"instance": {"id": f"new-{number}", "vcpus": 1}, "dry_run": True})
    return str(asked.body["id"])


def test_acknowledged_writes_outlive_a_power_cut_which_undoes_answers_since_and_leaves_the_database_whole(
    tmp_path: Path, left: Path
) -> None:
    begin, all_samples = time.time() - 3600, POSTS * BATCH
    with killed_after(tmp_path, left) as service:
        ids = [answer(service, number) for number in range(3)]
        # another kind of write, which is synced with all that came before it
        assert service.ask("PUT", "/v1/hosts/h2", HOST).status == 201
        ids += [answer(service, number) for number in range(3, 6)]
        before_samples = shutil.copytree(left, tmp_path / "before_samples")
        for post in range(POSTS):
            times = [datetime.fromtimestamp(begin + post * BATCH + step, UTC).isoformat() for step in range(BATCH)]
            body = [{"host": "h1", "metric": "event", "value": 1.0, "time": when} for when in times]
            assert service.ask("POST", "/v1/samples", {"samples": body}).body["accepted"] == BATCH
        assert all(service.ask("GET", f"/v1/placements/{one}").status == 200 for one in ids)
    # after a power cut before the samples, after one at the end, and after kill -9 alone
    for folder, there, stored in ((before_samples, ids[:3], 0), (left, ids, all_samples), (tmp_path, ids, all_samples)):
        database = Database(f"sqlite:///{folder / 'cotenant.sqlite3'}")
        with database.read() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
            assert hosts.known(connection, ["h1", "h2"]) == {"h1", "h2"}
            assert (connection.scalar(sa.select(sa.func.sum(samples.sample_packs.c.number))) or 0) == stored
            kept = [one for one in ids if answers.get(connection, one) is not None]
        assert kept[: len(there)] == there
        database.close()
