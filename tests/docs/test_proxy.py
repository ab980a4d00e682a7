"""The proxy of docs/operations.md, as a real nginx before replicas that end: who asks does not notice."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.servers.nginx import nginx
from tests.servers.running import NotInstalled

BODY = b'{"samples": []}'


class Replica:
    """Sends the same bytes to whoever has asked something, then closes; none = it just closes."""

    def __init__(self, listener: socket.socket, answer: bytes) -> None:
        self.asked: list[bytes] = []
        self.port: int = listener.getsockname()[1]
        self._listener, self._answer = listener, answer
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection, connection.makefile("rb") as lines:
                head = list(iter(lines.readline, b"\r\n")) if (first := lines.readline()) else []
                if not first:
                    return
                length = sum(int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length"))
                lines.read(length)
                self.asked.append(first.split(b" ")[1])
                connection.sendall(self._answer)

    def stop(self) -> None:
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join()


def _answer(status: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}" % status


@contextmanager
def replicas(*answers: bytes) -> Iterator[list[Replica]]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in answers]
    started = [Replica(listener, answer) for listener, answer in zip(listeners, answers, strict=True)]
    try:
        yield started
    finally:
        for one, listener in zip(started, listeners, strict=True):
            one.stop()
            listener.close()


def post(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, BODY, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("ending", [b"", _answer(b"503 Service Unavailable")], ids=["closes", "is stopping"])
def test_a_replica_that_ends_is_passed_over_but_no_roll_back_is_asked_for_twice(ending: bytes) -> None:
    try:
        with replicas(ending, _answer(b"200 OK")) as (ends, stays), nginx([ends.port, stays.port]) as proxy:
            assert [post(proxy.port, "/v1/samples") for _ in range(4)] == [200] * 4
            assert b"/v1/samples" in ends.asked
            before = len(ends.asked) + len(stays.asked)
            reported = [post(proxy.port, "/v1/models/rollback") for _ in range(2)]
    except NotInstalled as error:
        pytest.skip(str(error))
    assert min(reported) == 200
    assert max(reported) in {502, 503}
    assert len(ends.asked) + len(stays.asked) == before + 2
