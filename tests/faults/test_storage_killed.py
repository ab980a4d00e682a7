"""The service is killed while samples come in: what it acknowledged is there, none twice, and no batch by half."""

from __future__ import annotations

import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import demands, samples
from advisor.store.engine import Database
from api.schemas.inventory import InventoryBody
from api.schemas.observations import WindowBody
from models.profiling.tallies import Tallies
from tests.servers.fixtures import empty_url, kind, postgres_server
from tests.servers.service import Service

__all__ = ["empty_url", "kind", "postgres_server"]

KILLS = 20
BATCH = 200
BEGIN = float(int(time.time()) - 86_400)  # what is older than what is kept would be dropped
STEP_S = 0.125


class Sender:
    """Sends one batch after the other as an agent does: again and again until it is acknowledged."""

    def __init__(self, service: Service, host: str) -> None:
        self.host = host
        self.acknowledged = 0
        self.tries = 0
        self._service = service
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stopping.is_set():
            self.tries += 1
            body = {"samples": [self._sample(step) for step in range(BATCH)]}
            with suppress(OSError):  # it was killed: refused, cut off or half an answer
                answer = self._service.ask("POST", "/v1/samples", body)
                if answer.status == 200 and answer.body["accepted"] + answer.body["duplicate"] == BATCH:
                    self.acknowledged += 1
                    continue
            time.sleep(0.01)

    def _sample(self, step: int) -> dict[str, Any]:
        time_s = BEGIN + STEP_S * (self.acknowledged * BATCH + step)
        when = datetime.fromtimestamp(time_s, UTC).isoformat()
        return {"host": self.host, "metric": "event", "value": 1.0, "time": when}


@pytest.fixture
def service(empty_url: str, tmp_path: Path) -> Iterator[Service]:
    service = Service(empty_url, tmp_path, forked=True)
    yield service.start()
    service.kill()


def test_every_acknowledged_sample_outlives_kill_9_and_none_is_there_twice(
    service: Service, kind: str, empty_url: str
) -> None:
    chance = random.Random(11)
    for name in ("h0", "h1"):
        assert service.ask("PUT", f"/v1/hosts/{name}", {"kind": "kvm", "pcpus": 4, "memory_mb": 1024}).status == 201
    senders = [Sender(service, name) for name in ("h0", "h1")]
    try:
        for _ in range(KILLS):
            before = sum(one.acknowledged for one in senders)
            deadline = time.monotonic() + 60
            while sum(one.acknowledged for one in senders) < before + 4:
                assert time.monotonic() < deadline, "nothing is acknowledged"
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.05))
            service.kill()
            service.start()
    finally:
        for sender in senders:
            sender.stop()
    database = Database(empty_url)
    packs = samples.sample_packs
    with database.read() as connection:
        rows = connection.execute(sa.select(packs.c.host, packs.c.time_s).where(packs.c.number == 1)).all()
    database.close()
    for sender in senders:
        times = [row.time_s for row in rows if row.host == sender.host]
        assert len(set(times)) == len(times)
        stored = {round((time_s - BEGIN) / STEP_S) for time_s in times}
        assert stored >= set(range(sender.acknowledged * BATCH)), "an acknowledged sample is missing"
        assert len(stored) % BATCH == 0, "half a batch is stored"
        assert len(stored) <= (sender.acknowledged + 1) * BATCH
    assert sum(sender.tries - sender.acknowledged for sender in senders) >= KILLS, "it was never killed at work"
    if kind == "sqlite":
        with sqlite3.connect(sa.make_url(empty_url).database or "") as plain:
            assert plain.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        plain.close()


class WindowSender(Sender):
    """Sends windows of two instances of a host; all hosts' requests may meet in one transaction."""

    def _send(self) -> None:
        while not self._stopping.is_set():
            self.tries += 1
            with suppress(OSError):
                answer = self._service.ask("POST", "/v1/samples", {"windows": [self.window(self.acknowledged)]})
                if answer.status == 200 and answer.body["accepted"] + answer.body["duplicate"] == 5:
                    self.acknowledged += 1
                    continue
            time.sleep(0.01)

    def window(self, at: int) -> dict[str, Any]:
        rows: list[dict[str, Any]] = [
            {"instance": f"{self.host}-{name}", "values": [10.0 + (at * step) % 71, 2.0 + at % 5]}
            for name, step in (("a", 7), ("b", 13))
        ]
        rows.append({"instance": None, "scope": "host", "values": [200.0 + at % 9, None]})
        when = datetime.fromtimestamp(BEGIN + 60.0 * at, UTC).isoformat()
        return {"host": self.host, "time": when, "metrics": ["cpu", "net_mbit"], "rows": rows}


def test_what_was_acknowledged_is_learned_once_whenever_the_service_is_killed(
    service: Service, empty_url: str, tmp_path: Path
) -> None:
    """Tallies are those of a service that took the same windows one after the other and was never killed; only how
    busy all others were depends on whose window came first."""
    chance, hosts = random.Random(3), ("h0", "h1", "h2", "h3")
    inventory = {
        "hosts": [{"id": host, "kind": "kvm", "pcpus": 8, "memory_mb": 4096} for host in hosts],
        "instances": [{"id": f"{host}-{name}", "host": host, "vcpus": 2} for host in hosts for name in ("a", "b")],
    }
    assert service.ask("PUT", "/v1/inventory", inventory).status == 200
    senders = [WindowSender(service, host) for host in hosts]
    try:
        for _ in range(KILLS // 3):
            before = sum(one.acknowledged for one in senders)
            while sum(one.acknowledged for one in senders) < before + 40:
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.05))
            service.kill()
            service.start()
    finally:
        for one in senders:
            one.stop()
    for one in senders:  # its last window may be stored without that it knows
        assert service.ask("POST", "/v1/samples", {"windows": [one.window(one.acknowledged)]}).status == 200
        one.acknowledged += 1
    plain = Settings(database=f"sqlite:///{tmp_path}/plain.sqlite3", state_dir=tmp_path)
    with Advisor(plain) as advisor:
        advisor.inventory.put(InventoryBody.model_validate(inventory).to_domain(), mode="replace", generation=None)
        for one in senders:
            for at in range(one.acknowledged):
                window = WindowBody.model_validate(one.window(at)).to_domain()
                advisor.telemetry.ingest(window.samples())
    with closing(Database(empty_url)) as killed, closing(Database(plain.database)) as whole:
        for one in senders:
            assert learned(killed, one.host) == learned(whole, one.host), one.host


def learned(database: Database, host: str) -> dict[tuple[str, str], Any]:
    with database.read() as connection:
        rows = demands.held(
            connection, [(f"{host}-{name}", kind) for name in ("a", "b") for kind in ("cpu", "net_mbit")]
        )
    return {key: replace(Tallies.of(["cpu"], [row.state]).tally(0), shared=[]) for key, row in rows.items()}
