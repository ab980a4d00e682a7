"""Clients that are slow, silent, greedy, many, or do not speak HTTP: they are cut off, and others are answered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from api.http import bodies, connections
from tests.faults.http_server import Served, answer_of, rest_of, served

HEAD = b"POST /v1/samples HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(connections, "HEAD_S", 0.5)
    monkeypatch.setattr(connections, "READER_S", 0.5)
    monkeypatch.setattr(connections, "REST_S", 0.5)
    monkeypatch.setattr(bodies.BodyLimit.__init__, "__defaults__", (0.5,))
    with served(tmp_path) as found:
        yield found


def code_of(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head.lower(), answer
    return int(head[9:12]), json.loads(body)["code"]


def until_left(service: Served, number: int) -> None:
    """Wait until so many connections are open."""
    for _ in range(200):
        if len(service.server.server_state.connections) <= number:
            return
        time.sleep(0.05)
    raise AssertionError(f"{len(service.server.server_state.connections)} connections are still open")


def test_who_says_nothing_is_closed_without_a_word(service: Served) -> None:
    with service.connect() as silent:
        assert rest_of(silent) == b""


@pytest.mark.parametrize(
    ("sent", "reported"),
    [
        pytest.param(HEAD, (408, "request.slow"), id="a head that does not end"),
        pytest.param(HEAD + b"Content-Length: 100\r\n\r\n{", (408, "request.slow"), id="a body that does not come"),
        pytest.param(HEAD + b"X-Filler: " + b"x" * 2 * connections.MOST_HEAD_BYTES,
                     (431, "request.head_too_large"), id="a head that is too large"),
    ],
)  # fmt: skip
def test_a_missing_answer_is_reported_while_others_are_answered(
    service: Served, sent: bytes, reported: tuple[int, str]
) -> None:
    with service.connect() as slow:
        slow.sendall(sent)
        assert service.get("/healthz").status_code == 200
        assert code_of(rest_of(slow)) == reported


def test_a_second_head_that_does_not_end_is_refused_too(service: Served) -> None:
    with service.connect() as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he")
        first, _, second = rest_of(slow).partition(b'{"status":"ok"}')
        assert first.startswith(b"HTTP/1.1 200")
        assert code_of(second) == (408, "request.slow")


def test_a_connection_that_is_kept_is_not_taken_for_a_slow_head(service: Served) -> None:
    with service.connect() as kept:
        for _ in range(2):
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer_of(kept).startswith(b"HTTP/1.1 200")
            time.sleep(0.8)


def test_a_body_that_trickles_is_refused_although_it_never_stops(service: Served) -> None:
    with service.connect() as slow:
        slow.sendall(HEAD + b"Content-Length: 10000\r\n\r\n")
        slow.settimeout(0.1)
        answer = b""
        for _ in range(100):
            try:
                answer = slow.recv(65536)
                slow.settimeout(30)
                answer += rest_of(slow)
                break
            except TimeoutError:
                slow.sendall(b" ")
        assert code_of(answer) == (408, "request.slow")


@pytest.mark.parametrize("length", [b"Content-Length: 104857600", b"Transfer-Encoding: chunked"])
def test_a_hundred_megabytes_are_refused_and_who_sends_on_is_cut_off(service: Served, length: bytes) -> None:
    with service.connect() as greedy:
        chunk = b"" if b"Length" in length else b"100000\r\n" + b" " * 2**20 + b"\r\n"
        greedy.sendall(HEAD + length + b"\r\n\r\n" + chunk + chunk)
        assert code_of(answer_of(greedy)) == (413, "input.too_large")
        with pytest.raises(OSError):
            for _ in range(100):
                greedy.sendall(b"2\r\n  \r\n" if chunk else b"  ")
                time.sleep(0.05)


def test_who_does_not_read_its_answer_is_cut_off(service: Served) -> None:
    hosts = [
        {"id": f"n{at}", "kind": "kvm", "pcpus": 4, "memory_mb": 1, "labels": {"x": "y" * 250}} for at in range(400)
    ]
    with service.connect(small=True) as deaf:
        body = json.dumps({"mode": "merge", "hosts": hosts}).encode()
        deaf.sendall(b"PUT /v1/inventory HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        deaf.sendall(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert answer_of(deaf).startswith(b"HTTP/1.1 200")
        deaf.sendall(b"GET /v1/hosts?limit=1000 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2000)
        until_left(service, 0)


def test_the_connection_that_is_idle_longest_makes_room(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 30.0)
    monkeypatch.setattr(connections.GuardedHTTP, "most", 16)
    idle = [service.connect() for _ in range(40)]
    try:
        until_left(service, 16)
        assert service.get("/healthz").status_code == 200
        assert rest_of(idle[0]) == b""
        idle[-1].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answer_of(idle[-1]).startswith(b"HTTP/1.1 200")
    finally:
        for one in idle:
            one.close()


def test_questions_that_are_asked_at_once_on_one_connection_are_answered_in_turn(service: Served) -> None:
    with service.connect() as eager:
        paths = [b"/healthz", b"/v1/hosts/h1", b"/v1/hosts/nope", b"/healthz"]
        asked = [b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in paths]
        eager.sendall(b"".join(asked[:-1]) + asked[-1].replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = rest_of(eager)
    assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 200, 404, 200]


LINES = st.sampled_from(
    [
        b"GET /v1/hosts HTTP/1.1\r\n",
        b"POST /v1/samples HTTP/1.1\r\n",
        b"GET /v1/hosts/%2e%2e%2f%00 HTTP/1.1\r\n",
        b"GET http://other/ HTTP/1.1\r\n",
        b"GET * HTTP/9.9\r\n",
        b"Host: localhost\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: gzip\r\n",
        b"Content-Type: application/json\r\n",
        b"X-Request-Timeout: 1e999\r\n",
        b"If-None-Match: \xff\r\n",
        b"Upgrade: websocket\r\nConnection: upgrade\r\n",
        b"Expect: 100-continue\r\n",
        b" folded\r\n",
        b"\r\n",
        b"ffffffffffffffff\r\n",
        b"[[[[[[",
        b'{"samples":[1e999,NaN]}',
    ]
)


def test_no_bytes_break_the_service(service: Served) -> None:
    @bounds(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(LINES | st.binary(max_size=60), max_size=8).map(b"".join))
    def speak(noise: bytes) -> None:
        with service.connect() as connection:
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
            for part in rest_of(connection).split(b"HTTP/1.1 ")[1:]:
                assert int(part[:3]) < 500, (noise, part)

    speak()
    assert service.get("/readyz").status_code == 200
