"""Replicas behind a plain load balancer are restarted one after the other, and no request fails."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.servers.fixtures import postgres_server
from tests.servers.nginx import nginx
from tests.servers.postgres import Postgres
from tests.servers.running import NotInstalled
from tests.servers.service import Answer, Service, ask

__all__ = ["postgres_server"]

HOST = {"kind": "kvm", "pcpus": 4, "memory_mb": 8192}
BEGIN = 1.7e9


class Client:
    """Asks one thing after the other, of every kind, and keeps what went wrong."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self.done: Counter[str] = Counter()
        self.failed: list[Any] = []
        self.samples = 0
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    @property
    def answered(self) -> int:
        return sum(self.done.values())

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        step = 0
        while not self._stopping.is_set():
            step += 1
            when = datetime.fromtimestamp(BEGIN + step, UTC).isoformat()
            sample = {"host": self.name, "metric": "event", "value": 1.0, "time": when}
            for method, path, body in (
                ("PUT", f"/v1/hosts/{self.name}", HOST),
                ("POST", "/v1/samples", {"samples": [sample]}),
                ("GET", f"/v1/hosts/{self.name}", None),
                ("POST", "/v1/placements", {"instance": {"id": f"new-{self.name}", "vcpus": 1}, "dry_run": True}),
            ):
                try:
                    answer: Answer | OSError = ask(f"{self._url}{path}", method, body)
                except OSError as error:
                    answer = error
                if isinstance(answer, Answer) and answer.status in {200, 201}:
                    self.done[path.split("/")[2]] += 1
                else:
                    self.failed.append((method, path, answer))
            self.samples = step


@pytest.fixture
def replicas(postgres_server: Postgres, tmp_path: Path) -> Iterator[list[Service]]:
    url = postgres_server.url(postgres_server.new_database())
    with ExitStack() as opened:
        services = [Service(url, tmp_path) for _ in range(2)]
        for service in services:
            opened.callback(service.running.stop)
            service.start()
        yield services


def _all_go_on(clients: list[Client], more: int = 50) -> int:
    """Wait until every client got that many further answers; how many all have then."""
    aims = [client.answered + more for client in clients]
    deadline = time.monotonic() + 120
    while any(client.answered < aim for client, aim in zip(clients, aims, strict=True)):
        assert time.monotonic() < deadline, [client.failed for client in clients]
        time.sleep(0.02)
    return sum(client.answered for client in clients)


@pytest.mark.timeout(900)
def test_a_rolling_restart_behind_a_load_balancer_fails_no_request(replicas: list[Service]) -> None:
    try:
        with nginx([service.port for service in replicas]) as balancer:
            clients = [Client(balancer.url, name) for name in ("h1", "h2")]
            try:
                for _ in range(2):
                    for service in replicas:
                        served = _all_go_on(clients)
                        service.running.stop()
                        service.start()
                        assert sum(client.answered for client in clients) > served, "no service answers meanwhile"
                _all_go_on(clients)
            finally:
                for client in clients:
                    client.stop()
            stored = ask(f"{balancer.url}/v1/hosts").body["items"]
    except NotInstalled as error:
        pytest.skip(str(error))
    assert [client.failed for client in clients] == [[], []]
    assert all(client.samples > 10 for client in clients)
    assert {host["id"] for host in stored} == {"h1", "h2"}
