"""PostgreSQL goes away and comes back: the service says so meanwhile, and recovers by itself."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.postgres import Postgres, postgres
from tests.servers.running import NotInstalled
from tests.servers.service import Answer, Service

HOST = {"kind": "kvm", "pcpus": 4, "memory_mb": 1024}


@pytest.fixture
def server() -> Iterator[Postgres]:
    """Not the one that others share, for it is stopped."""
    try:
        with postgres() as server:
            yield server
    except NotInstalled as error:
        pytest.skip(str(error))


@pytest.fixture
def service(server: Postgres, tmp_path: Path) -> Iterator[Service]:
    service = Service(server.url(server.new_database()), tmp_path).start()
    yield service
    service.running.stop()


def _is_away(answer: Answer) -> bool:
    code = (answer.body or {}).get("code")
    return (answer.status, code, answer.headers.get("retry-after")) == (503, "storage.unavailable", "5")


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGQUIT], ids=["fast shutdown", "as in a crash"])
def test_the_service_says_so_meanwhile_and_recovers_by_itself(
    service: Service, server: Postgres, by: signal.Signals
) -> None:
    assert service.ask("PUT", "/v1/hosts/h1", HOST).status == 201
    assert service.ask("GET", "/readyz").status == 200
    server.running.stop(by)
    sample = {"host": "h1", "metric": "event", "value": 1.0, "time": "2026-01-01T00:00:00Z"}
    for method, path, body in (
        ("GET", "/v1/hosts/h1", None),
        ("GET", "/readyz", None),
        ("PUT", "/v1/hosts/h2", HOST),
        ("POST", "/v1/samples", {"samples": [sample]}),
        ("POST", "/v1/placements", {"instance": {"id": "new", "vcpus": 1}}),
    ):
        answer = service.ask(method, path, body)
        assert _is_away(answer), (path, answer)
        assert server.password not in str(answer)
    assert service.ask("GET", "/healthz").status == 200
    server.running.start()
    deadline = time.monotonic() + 10
    while service.ask("GET", "/readyz").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert service.ask("GET", "/v1/hosts/h1").status == 200
    assert service.ask("POST", "/v1/samples", {"samples": [sample]}).body["accepted"] == 1
    assert server.password not in service.running.log.read_text(encoding="utf-8")


def test_sessions_that_the_server_ends_cost_no_request(service: Service, server: Postgres) -> None:
    assert service.ask("PUT", "/v1/hosts/h1", HOST).status == 201
    for _ in range(3):
        server.restart()
        assert service.ask("GET", "/v1/hosts/h1").status == 200
        assert service.ask("PUT", "/v1/hosts/h1", HOST).status == 200
