"""Ten thousand connections that say no more: who asks beside them is answered as fast as where there are none."""

from __future__ import annotations

import resource
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers.service import Service

CROWD = 9_900  # the service takes 10,000 at a time
ROUNDS = 150
MOST = 2.0  # times as long
ASKED = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[Service]]:
    """Services that differ in nothing; both are asked in turn, so that what else runs here slows both down."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.skip(f"a process may have {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as opened:
        services = []
        for name in ("crowded", "calm"):
            (tmp_path / name).mkdir()
            service = Service(f"sqlite:///{tmp_path}/{name}/db.sqlite3", tmp_path / name)
            opened.callback(service.running.stop)
            services.append(service.start())
        yield services


def test_ten_thousand_idle_connections_slow_no_request_down(two: list[Service]) -> None:
    crowded, calm = two
    with ExitStack() as opened:
        idle = [opened.enter_context(_idle(crowded.port)) for _ in range(CROWD)]
        times: dict[str, list[float]] = {crowded.url: [], calm.url: []}
        for _ in range(ROUNDS):
            for service in two:
                began = time.perf_counter()
                assert service.ask("GET", "/v1/hosts").status == 200
                times[service.url].append(time.perf_counter() - began)
        still = sum(map(_is_open, idle))
    beside, alone = (statistics.median(times[service.url]) for service in two)
    print(f"{1000 * beside:.1f} ms beside {still} idle connections, {1000 * alone:.1f} ms without")
    # On a machine that takes over a minute to make them, the first have been idle for too long by then.
    assert still >= CROWD / 2, "the crowd was there"
    assert beside <= MOST * alone


def _idle(port: int) -> socket.socket:
    """A connection that was answered once and is kept."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(ASKED)
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    return connection


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return True
    return False
