"""What one request leaves behind on its connection, spoken over real sockets: nothing that hurts the next."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator

import pytest

from advisor.access import tokens
from tests.faults.http_server import Served, answer_of, rest_of, served

ASK = b"GET /v1/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 200_000  # bytes, more than uvicorn reads ahead


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("connections")) as found:
        yield found


def _status(answer: bytes) -> int:
    return int(answer[9:12])


def test_the_time_of_a_request_with_a_long_body_is_not_that_of_the_next(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        tokens, "CACHE_S", 0.0
    )  # each request asks the database who it may be, before its own time begins
    with service.connect() as kept:
        kept.sendall(
            b"POST /v1/placements HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"X-Request-Timeout: 0.1\r\nContent-Length: %d\r\n\r\n" % LONG
        )
        kept.sendall(b" " * LONG)
        assert _status(answer_of(kept)) in {400, 504}
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            kept.sendall(ASK)
            assert _status(answer_of(kept)) == 200


@pytest.mark.parametrize(
    "noise", [b"GET /v1/hosts HTTP/1.1\r\n\r\n", b"G\0T /v1/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_what_is_not_http_is_refused_and_is_no_error_of_ours(
    service: Served, caplog: pytest.LogCaptureFixture, noise: bytes
) -> None:
    with service.connect() as stranger:
        stranger.sendall(noise)
        assert _status(rest_of(stranger)) == 400
    assert service.get("/healthz").status_code == 200  # the loop has gone on, so the line would be there
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("length", [b"6", b"0"])
def test_a_request_with_two_lengths_is_refused_and_nothing_behind_it_is_answered(
    service: Served, length: bytes
) -> None:
    with service.connect() as smuggler:
        smuggler.sendall(
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % length + ASK
        )
        head, _, body = rest_of(smuggler).partition(b"\r\n\r\n")
    assert _status(head) == 400
    problem = json.loads(body)  # one answer, not two
    assert (problem["code"], "Content-Length and a Transfer-Encoding" in problem["detail"]) == ("input.malformed", True)


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://127.0.0.1/v1/hosts?limit=1", b"other.example", 200),  # the target's host counts, not the header
        (b"HTTPS://localhost/v1/hosts", b"localhost", 200),
        (b"http://localhost", b"localhost", 200),
        (b"http://evil.example/v1/hosts", b"localhost", 421),
        (b"http:///v1/hosts", b"localhost", 400),
        (b"ftp://localhost/v1/hosts", b"localhost", 400),
        (b"http://user@localhost/v1/hosts", b"localhost", 400),
        (b"v1/hosts", b"localhost", 400),
        (b"*", b"localhost", 400),
    ],
)
def test_a_target_may_be_a_whole_url(service: Served, target: bytes, host: bytes, status: int) -> None:
    with service.connect() as proxy:
        proxy.sendall(b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (target, host))
        assert _status(rest_of(proxy)) == status
