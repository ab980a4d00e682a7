"""The lab's own programs: load without coordinated omission, viewers, queries, and programs side by side."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.processes import wait_until
from lab.workloads.base import program
from lab.workloads.open_loop import read_at_rate
from lab.workloads.programs import open_loop, stream_clients
from tests.examples import examples

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class _Server:
    """An HTTP server of one thread on loopback; `stall` says how long it sleeps before it answers request number n."""

    def __init__(self, reply: bytes, stall: Callable[[int], float] = lambda _: 0.0) -> None:
        self.reply, self.stall, self.answered = reply, stall, 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        self.wake, self.stop = os.pipe()
        self.thread = threading.Thread(target=self._serve)

    def __enter__(self) -> _Server:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.stop)
        self.thread.join()
        os.close(self.wake)
        self.listener.close()

    def _serve(self) -> None:
        peers: dict[int, socket.socket] = {}
        while True:
            for ready in select.select([self.listener.fileno(), self.wake, *peers], [], [])[0]:
                if ready == self.wake:
                    for peer in peers.values():
                        peer.close()
                    return
                if ready == self.listener.fileno():
                    peer, _ = self.listener.accept()
                    peers[peer.fileno()] = peer
                elif not self._answer(peers[ready]):
                    peers.pop(ready).close()

    def _answer(self, peer: socket.socket) -> bool:
        with contextlib.suppress(OSError):
            if peer.recv(4096):
                time.sleep(self.stall(self.answered))
                self.answered += 1
                peer.sendall(self.reply)
                return bool(self.reply)
        return False


def _run(*command: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def _fails(done: subprocess.CompletedProcess[str], complaint: str) -> None:
    """It ended with status 1 and one sentence."""
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def _load(server: _Server, rate: float, seconds: float, connections: int = 16) -> subprocess.CompletedProcess[str]:
    return _run(*program("open_loop", "http", "127.0.0.1", server.port, "/x", rate, seconds, connections))


@pytest.mark.measured
def test_a_stall_is_counted_for_every_request_due_meanwhile() -> None:
    """A closed loop would see 16 slow requests of 600, and a 95th percentile of a fraction of a millisecond."""
    with _Server(OK, lambda number: 0.5 if number == 120 else 0.0) as server:
        done = _load(server, 400, 1.5)
    reached = read_at_rate(done.stdout)
    assert reached.throughput > 330  # it caught up after the stall; whoever left out what was due meanwhile has 267
    assert reached.further["latency_max"][0] > 480
    # a third of all requests fell into the stall and waited for its rest: the slowest 5 % at least 0.42 s
    assert reached.latency_p95_ms is not None and reached.latency_p95_ms > 350
    assert reached.latency_mean_ms is not None and reached.latency_mean_ms > 50


@pytest.mark.measured
def test_requests_that_are_never_answered_count_with_the_time_they_waited() -> None:
    with _Server(OK, lambda number: 0.9 if number == 100 else 0.0) as server:
        done = _load(server, 200, 1.0)
    report = json.loads(done.stdout)
    assert report["due"] == 200
    assert report["replies"] < 110
    assert report["max_ms"] > 400


@pytest.mark.measured
def test_a_quiet_server_is_asked_as_often_as_was_wanted() -> None:
    with _Server(OK) as server:
        report = json.loads(_load(server, 1000, 1.0).stdout)
    assert report["due"] == 1000
    assert server.answered == 1000


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered b'HTTP/1.1 404"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "answered"),
        (OK + b"more", "more than the reply"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 9000, "no end of its head"),
        (b"", "closed a connection"),
    ],
)
def test_a_server_that_answers_wrongly_ends_the_load_with_one_sentence(reply: bytes, complaint: str) -> None:
    with _Server(reply) as server:
        _fails(_load(server, 100, 0.5), complaint)


def test_a_connection_that_is_closed_before_any_reply_is_no_reply() -> None:
    with _Server(b"") as server:
        _fails(_load(server, 1, 0.5, connections=1), "closed a connection")


@pytest.mark.measured
def test_a_request_that_does_not_fit_at_once_is_sent_whole() -> None:
    target = f"set:1:{8_000_000}"  # above what a socket takes at once (tcp(7): tcp_wmem, at most 4 MB)
    length = len(open_loop.redis_requests(target)[0])

    def answer(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as peer:
            left = length
            while data := peer.recv(1 << 20):
                left -= len(data)
                if not left:
                    peer.sendall(b"+OK\r\n")
                    left = length

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=answer, args=[listener])
        thread.start()
        done = _run(*program("open_loop", "redis", "127.0.0.1", listener.getsockname()[1], target, 4, 1.0, 1))
        thread.join()
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["due"] == 4
    assert report["replies"] >= 3


def test_large_values_are_not_held_a_thousand_times() -> None:
    assert len(open_loop.redis_requests("get:10:1048576")) == 1000
    assert len(open_loop.redis_requests("set:10:1024")) == 1000
    assert 0 < sum(map(len, open_loop.redis_requests("set:10:1048576"))) < 2 << 24


def test_an_absent_far_end_is_one_sentence() -> None:
    _fails(_run(*program("open_loop", "http", "127.0.0.1", 9, "/x", 10, 1, 1)), "Connection refused")
    _fails(_run(*program("stream_clients", "127.0.0.1", 9, "/x", 1, 1, 1, 1024, 1)), "Connection refused")


@settings(max_examples=examples(100))
@given(st.floats(0.2, 5000), st.integers(1, 5), st.sampled_from([0, 5]))
def test_requests_are_due_as_often_as_asked_and_in_order(rate: float, seconds: int, bursts: int) -> None:
    due = list(islice(open_loop.moments(rate, bursts), int(rate * seconds)))
    assert all(earlier <= later for earlier, later in pairwise(due))
    assert due == list(islice(open_loop.moments(rate, bursts), len(due)))  # the same in every run
    for second in range(seconds):
        count = sum(second <= moment < second + 1 for moment in due)
        assert abs(count - rate) <= 1
    if bursts and rate > 100 * bursts:
        assert len({int(moment * 50) for moment in due if moment < 1}) <= 2 * bursts  # 20 ms each, in 20 ms bins


class _Piecemeal:
    """The part of Load that puts replies together, fed by hand."""

    def __init__(self, length: open_loop.Length) -> None:
        self.load = open_loop.OpenLoop([], [b""], length)
        self.connection: Any = open_loop.LoadConnection.__new__(open_loop.LoadConnection)
        self.connection.left, self.connection.head = 0, b""

    def take(self, piece: bytes) -> bool:
        self.load.buffer[: len(piece)] = piece
        return self.load.is_whole(self.connection, len(piece))


@settings(max_examples=examples(200))
@given(st.binary(max_size=3000), st.sets(st.integers(1, 3000)), st.booleans())
def test_a_reply_is_whole_with_its_last_byte_however_it_comes(body: bytes, cuts: set[int], redis: bool) -> None:
    head = b"$%d\r\n" % len(body) if redis else b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    whole = head + body + (b"\r\n" if redis else b"")
    places = [0, *sorted(cut for cut in cuts if cut < len(whole)), len(whole)]
    replies = _Piecemeal(open_loop.redis_length if redis else open_loop.http_length)
    complete = [replies.take(whole[begin:end]) for begin, end in pairwise(places)]
    assert complete == [False] * (len(complete) - 1) + [True]
    assert replies.take(whole)  # and the next one begins afresh


@settings(max_examples=examples(200))
@given(st.binary(max_size=200))
def test_any_bytes_are_a_length_or_an_error(data: bytes) -> None:
    for length in (open_loop.http_length, open_loop.redis_length):
        with contextlib.suppress(open_loop.WrongReplyError):
            size = length(data)
            assert size is None or size >= 0


@settings(max_examples=examples(100))
@given(st.integers(2, 200), st.floats(0.001, 0.2))
def test_pieces_on_schedule_have_no_jitter_and_no_stalls(count: int, period: float) -> None:
    arrivals = array("d", [1 + number * period for number in range(count)])
    assert max(stream_clients.off_schedule(arrivals, period)) < 1e-9
    assert stream_clients.stalls(arrivals, period) == (0, 0.0)


@settings(max_examples=examples(100))
@given(st.integers(2, 50), st.integers(1, 49), st.floats(0.6, 5))
def test_a_pause_longer_than_what_is_buffered_is_one_stall(count: int, place: int, pause: float) -> None:
    period, place = 0.03, min(place, count - 1)
    arrivals = array("d", [number * period + (pause if number >= place else 0) for number in range(count)])
    stalls, waited = stream_clients.stalls(arrivals, period)
    assert stalls == 1
    assert waited == pytest.approx(pause)  # half a second less, which was buffered, and half a second to buffer anew


@settings(max_examples=examples(100))
@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.floats(0.005, 0.2))
def test_a_player_never_stands_still_longer_than_the_pieces_are_late(gaps: list[float], period: float) -> None:
    arrivals = array("d", accumulate(gaps))
    stalls, waited = stream_clients.stalls(arrivals, period)
    assert stalls <= len(gaps)
    assert waited <= arrivals[-1] - arrivals[0] + 0.5 * stalls + 1e-9
    # whoever stood still so often gathered half a second each time, which only a pause as long can use up
    assert (stalls == 0) == (waited == 0)


@pytest.mark.measured
def test_a_viewer_takes_a_film_again_from_its_begin() -> None:
    with _Server(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(1000), lambda _: 0.01) as server:
        done = _run(*program("stream_clients", "127.0.0.1", server.port, "/film", 2, 0.1, 1.05, 250, 0.5))
    report = json.loads(done.stdout)
    assert server.answered > 4
    assert report["mbit_s"] == pytest.approx(server.answered * 1000 * 8 / 1e6 / 0.5, rel=0.3)


@contextlib.contextmanager
def _game(answer: Callable[[int], bool]) -> Iterator[int]:
    """A game server on loopback that answers the queries of these numbers only; gives its port."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    server.settimeout(0.1)
    done = threading.Event()

    def serve() -> None:
        while not done.is_set():
            with contextlib.suppress(TimeoutError):
                query, peer = server.recvfrom(4096)
                number = query.removeprefix(b"\xff\xff\xff\xffgetstatus ")
                if answer(int(number)):
                    server.sendto(b"\xff\xff\xff\xffstatusResponse\n\\a\\b\\challenge\\%s\n" % number, peer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        done.set()
        thread.join()
        server.close()


@pytest.fixture
def qstat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A qstat that reports a ping of 7 ms, for hosts without it."""
    fake = tmp_path / "quakestat"
    fake.write_text("#!/bin/sh\necho '<server status=\"UP\"><ping>7</ping></server>'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


@pytest.mark.usefixtures("qstat")
@pytest.mark.measured
def test_queries_without_an_answer_are_null_and_the_others_are_distinguished() -> None:
    with _game(lambda number: number % 2 == 0) as port:
        report = json.loads(_run(*program("game_queries", "127.0.0.1", port, 1)).stdout)
    own = [number for number in range(9) if number % 5 != 4]
    assert [value is not None for value in report["latencies_ms"]] == [number % 2 == 0 for number in own]
    assert statistics.fmean(value for value in report["latencies_ms"] if value is not None) < 500
    assert report["qstat_ms"] == [7.0]


def test_a_game_server_that_does_not_answer_is_not_ready() -> None:
    with _game(lambda _: False) as port:
        assert _run(*program("game_queries", "127.0.0.1", port, 0)).returncode == 1
    with _game(lambda _: True) as port:
        assert _run(*program("game_queries", "127.0.0.1", port, 0)).returncode == 0


def _alive(marker: str) -> list[str]:
    alive = []
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = cmdline.read_bytes().split(b"\0")
            if marker.encode() in words and b"sleep" in words[0]:
                alive.append(cmdline.parent.name)
    return alive


@pytest.mark.measured
def test_programs_side_by_side_end_with_the_time_and_that_is_a_success() -> None:
    begin = time.monotonic()
    done = _run(*program("run_together", 0.3, "--", "sleep", "61.01", "--", "sleep", "61.02"))
    assert (done.returncode, done.stderr) == (0, "")
    assert 0.3 <= time.monotonic() - begin < 5
    assert _alive("61.01") == _alive("61.02") == []


def test_the_first_that_ends_ends_the_others_with_its_status() -> None:
    code = "import sys; sys.exit('out of luck')"
    _fails(_run(*program("run_together", 0, "--", "sleep", "61.03", "--", sys.executable, "-c", code)), "out of luck")
    assert _alive("61.03") == []


def test_a_program_that_is_not_there_is_named() -> None:
    done = _run(*program("run_together", 5, "--", "no-such-program"))
    assert done.returncode == 127
    assert "no-such-program cannot be started: No such file" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_programs_side_by_side_die_with_who_started_them(number: signal.Signals) -> None:
    seconds = f"62.{os.getpid()}"
    with subprocess.Popen(program("run_together", 0, "--", "sleep", seconds)) as process:
        assert wait_until(lambda: bool(_alive(seconds)), 60)
        process.send_signal(number)
        process.wait(60)
    assert wait_until(lambda: _alive(seconds) == [], 60)
