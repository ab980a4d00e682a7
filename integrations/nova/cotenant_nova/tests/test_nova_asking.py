"""One question over HTTP: a time-out that holds for the whole, secrets that stay, and one kind of failure."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cotenant_nova import asking
from cotenant_nova.asking import NoAnswer, Service

TIMEOUT_S = 0.4
PATIENCE_S = 60.0  # where an answer comes, however busy the machine
LATE_S = 4.0  # beyond the time-out on a busy machine; every server below would take longer
Serve = Callable[[socket.socket], None]


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """A TCP server that does that with each connection; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # who waits too long hangs up
                    serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def saying(answer: bytes, heard: list[bytes] | None = None) -> Serve:
    """Answers that; what came first of each question is put into `heard`."""

    def serve(connection: socket.socket) -> None:
        question = connection.recv(65_536)
        if heard is not None:
            heard.append(question)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):  # closed with a part of the question unread, the answer would be lost
            pass

    return serve


def http(body: bytes, status: str = "200 OK", more: str = "") -> Serve:
    return saying(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)


def silent(connection: socket.socket) -> None:
    time.sleep(5)


def dripping(connection: socket.socket) -> None:
    """Each read is in time, also those of the status line."""
    for char in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100:
        connection.send(bytes([char]))
        time.sleep(0.05)


def test_the_answer_is_what_was_said() -> None:
    with serving(http(b'{"candidates": []}')) as url:
        assert Service(url, timeout_s=PATIENCE_S).ask({}) == {"candidates": []}


@pytest.mark.parametrize("serve", [silent, dripping], ids=lambda one: one.__name__)
@pytest.mark.measured
def test_the_time_out_holds_for_the_whole_question(serve: Serve) -> None:
    with serving(serve) as url:
        begin = time.monotonic()
        with pytest.raises(NoAnswer, match=r"no answer within 0\.4 s|timed out"):
            Service(url, timeout_s=TIMEOUT_S).ask({})
        assert TIMEOUT_S * 0.9 < time.monotonic() - begin < LATE_S


@pytest.mark.measured
def test_the_time_out_holds_for_looking_up_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(5))
    begin = time.monotonic()
    with pytest.raises(NoAnswer, match="no answer within"):
        Service("http://cotenant.example", timeout_s=TIMEOUT_S).ask({})
    assert time.monotonic() - begin < LATE_S


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (http(b"<html>"), "Expecting value"),
        (http(b"\xff\xfe"), "Expecting value"),
        (http(b'{"score": NaN}'), "NaN is no JSON"),
        (http(b"", "204 No Content"), "status 204"),
        (http(b'{"title": "Too many\\nrequests"}', "429 Too Many Requests"), "status 429: Too many requests"),
        (http(b"moved", "307 Temporary Redirect", "Location: http://127.0.0.1:1/\r\n"), "status 307"),
        (saying(b"220 mail.example.org\r\n"), "220 mail.example.org"),
        (saying(b""), "without response"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), "Expecting property name"),
    ],
)
def test_whatever_is_no_answer_is_one_kind_of_failure_with_a_reason(serve: Serve, reason: str) -> None:
    with serving(serve) as url, pytest.raises(NoAnswer, match=reason):
        Service(url, timeout_s=PATIENCE_S).ask({})


def test_an_endless_answer_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MOST_BYTES", 1000)
    with serving(http(b" " * 2000)) as url, pytest.raises(NoAnswer, match="more than 1000 bytes"):
        Service(url, timeout_s=PATIENCE_S).ask({})


def test_an_absent_server_is_reported_at_once() -> None:
    with socket.socket() as taken, pytest.raises(NoAnswer, match="refused"):
        taken.bind(("127.0.0.1", 0))  # so that nothing else listens there
        Service(f"http://127.0.0.1:{taken.getsockname()[1]}", timeout_s=PATIENCE_S).ask({})


@pytest.mark.parametrize(
    "url", ["", "ftp://x", "cotenant:8080", "http://", "file:///etc/passwd", "http://[", "http://x:y"]
)
def test_a_url_that_makes_no_sense_is_a_failure_too(url: str) -> None:
    with pytest.raises(NoAnswer):
        Service(url, timeout_s=TIMEOUT_S).ask({})


def test_the_token_is_read_for_each_question_and_sent_as_a_bearer(tmp_path: Path) -> None:
    seen: list[bytes] = []
    token = tmp_path / "token"
    token.touch(0o600)
    with serving(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", seen)) as url:
        for secret in ("first", "second"):
            token.write_text(f"{secret}\n")
            Service(url, timeout_s=PATIENCE_S, token_file=str(token)).ask({})
    assert [b"Authorization: Bearer first\r\n" in seen[0], b"Authorization: Bearer second\r\n" in seen[1]] == [
        True,
        True,
    ]


def test_the_token_is_not_sent_in_the_clear_beyond_this_machine(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with pytest.raises(NoAnswer, match="not sent in the clear") as caught:
        Service("http://192.0.2.1:1", token_file=str(tmp_path / "token")).ask({})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o620])
def test_a_token_that_others_may_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(mode)
    with pytest.raises(NoAnswer, match=rf"others may read or change it \(mode {mode:o}\); chmod 640 it"):
        Service("http://127.0.0.1:1", token_file=str(tmp_path / "token")).ask({})


def test_a_token_file_that_is_missing_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(NoAnswer, match="No such file"):
        Service("http://127.0.0.1:1", token_file=str(tmp_path / "none")).ask({})
