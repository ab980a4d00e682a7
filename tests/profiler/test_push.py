"""Pushing: acknowledged only when the server says what it did, tried again when not, never a token shown."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.processes import wait_until
from profiler.agent import http_client, push
from profiler.agent.http_client import HttpClient, check_token, may_carry_token, parse_url
from profiler.agent.loop import Log
from profiler.agent.push import Pusher, PushToken
from profiler.agent.spool import SampleBatch, Spool
from profiler.collectors.samples import SampleRow
from tests.profiler.api_double import Double, Reply, serving

SECRET = "tok-3n-of-ghost"


def batch(number: int, samples: int = 1) -> SampleBatch:
    values = {f"m{position}": float(number) for position in range(samples)}
    return SampleBatch("h", f"2026-01-31T12:00:{number:02d}.000Z", (SampleRow("a", "instance", values),))


class Bench:
    """A spool, a pusher that is driven by hand, and what it logged."""

    def __init__(self, directory: Path, url: str, token: str | None = None) -> None:
        self.said = io.StringIO()
        log = Log(self.said)
        self.spool = Spool(directory, 10**9, log)
        self.wire = HttpClient(parse_url(url), lambda: token, "test/1")
        self.pusher = Pusher(self.spool, self.wire, log, chance=lambda: 1.0)

    def put(self, *batches: SampleBatch) -> None:
        for each in batches:
            self.spool.put(each)
        assert self.spool.store()

    def drain(self, most: int = 50) -> list[float]:
        """Step until there is nothing left; gives the waits that were asked for."""
        waits = []
        while (wait := self.pusher.step()) is not None:
            waits.append(wait)
            assert len(waits) < most, self.said.getvalue()
        return [wait for wait in waits if wait]

    def close(self) -> None:
        self.wire.close()
        self.spool.close()

    @property
    def left(self) -> int:
        return len(self.spool.oldest(10**9))


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as running:
        yield running


@pytest.fixture
def bench(tmp_path: Path, double: Double) -> Iterator[Bench]:
    made = Bench(tmp_path / "spool", double.url, SECRET)
    yield made
    made.close()


def script(*replies: Reply) -> Callable[[object], Reply]:
    """These replies first, then whatever the API would say."""
    coming = list(replies)
    return lambda _samples: coming.pop(0) if coming else Reply()


def test_batches_go_oldest_first_in_one_call_and_are_then_gone(bench: Bench, double: Double) -> None:
    bench.put(batch(1), batch(2), batch(3))
    assert bench.drain() == []
    assert [[sample["value"] for sample in request] for request in double.requests] == [[1.0, 2.0, 3.0]]
    assert double.requests[0][0] == {
        "host": "h", "instance": "a", "scope": "instance", "metric": "m0", "value": 1.0,
        "time": "2026-01-31T12:00:01.000Z",
    }  # fmt: skip
    assert double.paths == ["/v1/samples"]
    assert double.headers[0]["Authorization"] == f"Bearer {SECRET}"
    assert bench.left == 0
    assert bench.pusher.status().accepted == 3
    assert bench.pusher.status().last_success_s == pytest.approx(time.time(), abs=60)


def test_calls_hold_no_more_samples_than_the_server_takes(bench: Bench, double: Double) -> None:
    bench.put(*(batch(number, 4_000) for number in range(5)), batch(9, 25_000))
    bench.drain()
    assert [len(request) for request in double.requests] == [8_000, 8_000, 4_000, 10_000, 10_000, 5_000]
    assert bench.pusher.status().accepted == 45_000


def test_one_connection_serves_many_calls(bench: Bench, double: Double) -> None:
    for number in range(5):
        bench.put(batch(number))
        bench.drain()
    assert (len(double.requests), double.connections) == (5, 1)


def test_an_idle_connection_that_the_server_closed_is_no_failure(bench: Bench, double: Double) -> None:
    bench.put(batch(1))
    bench.drain()
    double.decide = script(Reply(status=None, stored=False))
    bench.put(batch(2))
    assert bench.drain() == []
    assert bench.pusher.status().failures["connection"] == 0
    assert len(double.kept) == 2


GARBAGE = [
    b"", b"OK", b"<html>captive portal</html>", b"null", b"[]", b'{"accepted": 1}', b"\xff\xfe", b"[" * 100_000,
    b'{"accepted": 5, "duplicate": 0, "dropped": 0, "reasons": []}',
    b'{"accepted": -1, "duplicate": 2, "dropped": 0, "reasons": []}',
    b'{"accepted": 1.0, "duplicate": 0, "dropped": 0, "reasons": []}',
    b'{"accepted": true, "duplicate": 0, "dropped": 0, "reasons": []}',
    b'{"accepted": 0, "duplicate": 0, "dropped": 1, "reasons": [5]}',
    b'{"accepted": 1, "duplicate": 0, "dropped": 0, "reasons": null}',
]  # fmt: skip


@pytest.mark.parametrize("body", GARBAGE, ids=lambda body: repr(body[:60]))
def test_a_success_that_does_not_add_up_acknowledges_nothing(bench: Bench, double: Double, body: bytes) -> None:
    double.decide = script(Reply(body=body))
    bench.put(batch(1))
    assert bench.pusher.step() == 1.0
    assert bench.left == 1
    assert bench.pusher.status().failures["garbage"] == 1
    assert bench.drain() == []
    assert (bench.left, len(double.kept), bench.pusher.status().duplicate) == (0, 1, 1)


@given(st.binary(max_size=300))
def test_no_answer_whatsoever_crashes_the_pusher_or_loses_a_batch(body: bytes) -> None:
    class Canned:
        def post(self, _body: bytes) -> http_client.HttpAnswer:
            return http_client.HttpAnswer(200, body, None)

    with tempfile.TemporaryDirectory() as name:
        spool = Spool(Path(name), 10**9, Log(io.StringIO()))
        spool.put(batch(1))
        spool.store()
        wait = Pusher(spool, Canned(), Log(io.StringIO())).step()  # type: ignore[arg-type]
        spool.close()
        assert wait and len(list(Path(name).glob("*.json.gz"))) == 1


@pytest.mark.parametrize(
    ("status", "kind"),
    [(500, "server_error"), (502, "server_error"), (507, "server_error"), (503, "overloaded"), (429, "overloaded"),
     (404, "unexpected_status"), (409, "unexpected_status"), (415, "unexpected_status"),
     (401, "unauthorised"), (403, "unauthorised"), (301, "redirect"), (307, "redirect")],
)  # fmt: skip
def test_a_server_that_cannot_take_samples_now_gets_them_later(
    bench: Bench, double: Double, status: int, kind: str
) -> None:
    away = Reply(status=status, stored=False, headers={"Location": "http://127.0.0.1:1/elsewhere"})
    double.decide = script(*[away] * 10)
    bench.put(batch(1))
    waits = bench.drain()
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert bench.pusher.status().failures[kind] == 10
    assert len(double.kept) == 1
    assert bench.said.getvalue().count("\n") == 1, "said once, not ten times"
    assert set(double.paths) == {"/v1/samples"}
    bench.put(batch(2))
    double.decide = script(away)
    assert bench.pusher.step() == 1.0, "after a success it starts anew"


def test_waiting_is_spread_by_chance(bench: Bench, double: Double) -> None:
    double.decide = lambda _samples: Reply(status=500, stored=False)
    bench.put(batch(1))
    bench.pusher._chance = lambda: 0.0
    assert [bench.pusher.step() for _ in range(3)] == [0.5, 1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [("17", 16, 18), (None, 16, 18), *((strange, 1, 3600) for strange in ("soon", "-5", "9" * 23, "\xe9", ""))],
)
def test_retry_after_is_honoured_and_a_strange_one_does_not_stop_us_for_ever(
    bench: Bench, double: Double, value: str | None, least: float, most: float
) -> None:
    def later(_samples: object) -> Reply:
        """A date (None) is made when it is answered with: what came before, such as the disk, shortens no wait."""
        text = formatdate(time.time() + 17.9, usegmt=True) if value is None else value
        return Reply(status=503, stored=False, headers={"Retry-After": text})

    double.decide = later
    bench.put(batch(1))
    wait = bench.pusher.step()
    assert wait is not None
    assert least <= wait <= most


SAMPLES_LIMIT = b'{"status": 422, "detail": "20 samples in one call, at most 6 are taken", "field": "samples"}'


@pytest.mark.parametrize("refusal", [Reply(413, stored=False), Reply(422, body=SAMPLES_LIMIT, stored=False)], ids=str)
def test_a_call_that_is_too_large_is_split_until_it_fits(bench: Bench, double: Double, refusal: Reply) -> None:
    double.decide = lambda samples: Reply() if len(samples) <= 6 else refusal
    bench.put(*(batch(number, 5) for number in range(4)), batch(9, 30))
    assert bench.drain() == []
    assert len(double.kept) == 50
    assert bench.pusher.status().refused == 0


@pytest.fixture
def small(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A pusher whose calls hold at most 16 samples, and are tried larger after 5 that arrived."""
    monkeypatch.setattr(push, "MOST_SAMPLES", 16)
    monkeypatch.setattr(push, "_GROW_AFTER", 5)
    bench.pusher = Pusher(bench.spool, bench.wire, Log(bench.said))
    return bench


def test_calls_grow_again_once_the_server_takes_larger_ones(small: Bench, double: Double) -> None:
    double.decide = script(Reply(status=413, stored=False), Reply(status=413, stored=False))
    for number in range(24):
        small.put(batch(number))
    small.drain()
    assert [len(request) for request in double.requests] == [16, 8, 4, 4, 4, 4, 4, 4]
    for _ in range(10):
        small.put(batch(1))
        small.drain()
    double.requests.clear()
    small.put(*(batch(number) for number in range(40)))
    small.drain()
    assert [len(request) for request in double.requests] == [16, 16, 8], "as large as at first, and never larger"


def test_a_server_that_keeps_its_limit_refuses_one_call_in_some_for_growing(small: Bench, double: Double) -> None:
    double.decide = lambda samples: Reply() if len(samples) <= 4 else Reply(status=413, stored=False)
    for _ in range(4):
        small.put(*(batch(number) for number in range(50)))
    small.drain(most=1000)
    assert len(double.kept) == 50
    refused = sum(len(request) > 4 for request in double.requests)
    assert 2 < refused <= 2 + len(double.requests) // 6


@pytest.mark.parametrize("status", [400, 422])
def test_a_batch_that_the_server_refuses_is_put_aside_and_the_others_arrive(
    bench: Bench, double: Double, status: int, tmp_path: Path
) -> None:
    detail = b'{"detail": "samples.0.value: is wrong", "field": "samples.0.value"}'
    double.decide = lambda samples: (
        Reply(status=status, body=detail, stored=False) if any(s["value"] == 3 for s in samples) else Reply()
    )
    bench.put(*(batch(number, 2) for number in range(6)))
    bench.drain()
    assert {key[4][17:19] for key in double.kept} == {"00", "01", "02", "04", "05"}
    assert bench.pusher.status().refused == 2
    assert len(list((tmp_path / "spool").glob("*.refused"))) == 1
    assert "is wrong" in bench.said.getvalue()


def test_what_the_server_drops_is_counted_by_reason_and_said_once(bench: Bench, double: Double) -> None:
    reasons = ["unknown host 'h'", "unknown instance 'a'", "unknown instance 'a'", "time is 900 s in the future", "x"]
    listed = [{"index": place, "reason": text} for place, text in enumerate(reasons)]
    body = json.dumps({"accepted": 0, "duplicate": 0, "dropped": 6, "reasons": listed}).encode()
    double.decide = lambda _samples: Reply(body=body)
    for number in range(3):
        bench.put(batch(number, 6))
        bench.drain()
    assert bench.pusher.status().dropped == {"unknown_host": 3, "unknown_instance": 6, "time": 3, "other": 6}
    assert bench.said.getvalue().count("event=not_stored") == 4
    assert bench.left == 0
    of_host, of_instance, *_ = bench.said.getvalue().splitlines()
    assert "unknown host 'h'" in of_host
    assert "give the id that this host has in the inventory with --host" in of_host
    assert "unknown instance 'a'" in of_instance
    assert "--host" not in of_instance


def test_an_acknowledgement_that_is_lost_counts_nothing_twice(bench: Bench, double: Double) -> None:
    double.decide = script(Reply(status=None), Reply(status=None))
    bench.put(batch(1), batch(2))
    bench.drain()
    assert len(double.requests) == 3
    assert len(double.kept) == 2
    assert bench.pusher.status().duplicate == 2


@pytest.mark.parametrize(("listens", "kind"), [(False, "refused"), (True, "timeout")])
def test_a_server_that_does_not_listen_or_says_nothing_is_a_failure_of_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listens: bool, kind: str
) -> None:
    monkeypatch.setattr(http_client, "_SILENCE_S", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        bench = Bench(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}")
        bench.put(batch(1))
        assert bench.pusher.step() == 1.0
        assert bench.pusher.status().failures[kind] == 1
        bench.close()


def _drip(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        while True:
            connection.sendall(b"H")
            time.sleep(0.05)


@pytest.mark.measured
def test_a_server_that_answers_a_byte_at_a_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "_DEADLINE_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as slow:
        thread = threading.Thread(target=_drip, args=(slow,), daemon=True)
        thread.start()
        bench = Bench(tmp_path, f"http://127.0.0.1:{slow.getsockname()[1]}")
        bench.put(batch(1))
        begun = time.monotonic()
        assert bench.pusher.step() == 1.0
        assert time.monotonic() - begun < 3
        assert bench.left == 1
        bench.close()
        thread.join(3)


def _certificate(directory: Path) -> tuple[Path, Path]:
    """A key and a certificate for localhost that it signed itself."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl (apt-get install openssl)")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, certificate


def _serve_tls(listener: socket.socket, context: ssl.SSLContext, received: list[bytes]) -> None:
    """One request, which is answered as the API does."""
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError), context.wrap_socket(connection, server_side=True) as secured:
        while not b"".join(received).endswith(b"]}"):
            received.append(secured.recv(65_536))
            if not received[-1]:
                return
        body = b'{"accepted": 1, "duplicate": 0, "dropped": 0, "reasons": []}'
        secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.parametrize("trusted", [False, True])
def test_over_https_nothing_is_sent_to_an_untrusted_server(
    tmp_path: Path, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = _certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve_tls, args=(listener, context, received), daemon=True)
        thread.start()
        bench = Bench(tmp_path / "spool", f"https://localhost:{listener.getsockname()[1]}", SECRET)
        bench.put(batch(1))
        wait = bench.pusher.step()
        bench.close()
        thread.join(60)
    assert (wait == 0, bench.left == 0) == (trusted, trusted)
    assert bench.pusher.status().failures["tls"] == (not trusted)
    assert (SECRET.encode() in b"".join(received)) == trusted


def test_the_token_is_never_shown(bench: Bench, double: Double) -> None:
    double.decide = lambda _samples: Reply(status=401, stored=False)
    bench.put(batch(1))
    for _ in range(3):
        bench.pusher.step()
    assert SECRET not in bench.said.getvalue()
    assert "refuses the token" in bench.said.getvalue()
    assert SECRET not in repr(bench.wire)


def test_a_token_that_was_renewed_is_used(tmp_path: Path, double: Double) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("first\n")
    bench = Bench(tmp_path / "spool", double.url)
    bench.wire._token = PushToken(file, parse_url(double.url))
    for name in ("first", "second"):
        file.write_text(f"{name}\n")
        bench.put(batch(1))
        bench.drain()
    assert [headers["Authorization"] for headers in double.headers] == ["Bearer first", "Bearer second"]
    file.unlink()
    bench.put(batch(2))
    assert bench.pusher.step() == 1.0
    assert bench.pusher.status().failures["token"] == 1
    bench.close()


@pytest.mark.measured
def test_the_thread_sends_what_comes_and_ends_at_once_while_the_server_hangs(bench: Bench, double: Double) -> None:
    bench.pusher.start()
    bench.put(batch(1))
    bench.pusher.wake()
    assert wait_until(lambda: bool(double.kept), 5)
    double.decide = lambda _samples: Reply(delay_s=5)
    bench.put(batch(2))
    bench.pusher.wake()
    wait_until(lambda: len(double.requests) >= 2, 5)
    begun = time.monotonic()
    bench.pusher.stop(2)
    assert time.monotonic() - begun < 1
    assert not bench.pusher._thread.is_alive()
    assert bench.left == 1


@pytest.mark.parametrize(
    ("url", "shown"),
    [("https://c.example", "https://c.example:443/v1/samples"), ("http://[::1]:8080/", "http://[::1]:8080/v1/samples"),
     ("http://h:1/base/", "http://h:1/base/v1/samples"), ("http://h:1/v1/samples", "http://h:1/v1/samples")],
)  # fmt: skip
def test_urls_are_base_urls(url: str, shown: str) -> None:
    assert str(parse_url(url)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "c.example", "ftp://c.example", "http://", "http://h:99999", "http://h:x", "http://u:secret@h", "http://h?q=1",
     "http://h#f", "http://h/a b", "http://h/\r\nX-Evil: 1", "http://[::1"],
)  # fmt: skip
def test_what_is_no_url_of_a_server_is_refused_in_one_sentence(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_url(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=50))
def test_no_text_crashes_the_url_parser(url: str) -> None:
    try:
        parse_url(url)
    except ValueError:
        return
    assert url.startswith(("http", "HTTP", "Http")) or url.lower().lstrip().startswith("http")


@pytest.mark.parametrize("text", ["", "\n", "two words", "line\nline", "é", "x" * 5000])
def test_what_is_no_token_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="the token is") as caught:
        check_token(text)
    assert not text.strip() or text not in str(caught.value)


def test_tokens_travel_only_over_https_or_inside_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = {
        url: may_carry_token(parse_url(url)) for url in ("https://h", "http://h", "http://127.0.0.1", "http://[::1]")
    }
    assert verdicts == {"https://h": True, "http://h": False, "http://127.0.0.1": True, "http://[::1]": True}
    monkeypatch.setenv("COTENANT_TOKEN", SECRET)
    with pytest.raises(ValueError, match="use https"):
        PushToken(None, parse_url("http://h"))


def test_a_server_that_is_older_gets_samples_one_by_one_and_windows_again_later(
    bench: Bench, double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "_GROW_AFTER", 3)
    double.knows_windows = False
    for number in range(6):
        bench.put(batch(number, 3))
        assert bench.drain() == []
    assert double.bodies == ["windows", *["samples"] * 3, "windows", *["samples"] * 3]
    assert bench.pusher.status().accepted == 18
    assert len(double.kept) == 18
