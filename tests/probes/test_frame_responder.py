"""The responder and its protocol: what it refuses, what it never sends, and that a client takes its session with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.processes import wait_until
from profiler.probes.base import ProbeError
from profiler.probes.responder import MOST_SESSIONS, Responder
from profiler.probes.sessions import (
    MAX_LINE,
    TOKEN_BYTES,
    ControlChannel,
    FramingError,
    Peer,
    ProbeSession,
    far_end,
    number,
    whole,
)
from tests.examples import examples
from tests.probes.two_ends import children, gone
from tests.probes.two_ends import responder as another_responder

ROOT = Path(__file__).parents[2]
SERVE = [sys.executable, "-m", "profiler.cli", "probe", "serve", "--json", "--listen"]


@pytest.fixture(scope="module")
def responder() -> Iterator[tuple[Peer, int]]:
    """One that runs, and its process."""
    with subprocess.Popen([*SERVE, "127.0.0.1:0"], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        yield Peer("127.0.0.1", port), process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@contextlib.contextmanager
def control(peer: Peer) -> Iterator[ControlChannel]:
    with contextlib.closing(ControlChannel(socket.create_connection((peer.host, peer.port), 60))) as channel:
        yield channel


def sessions(pid: int) -> int:
    return len(children(pid))


@pytest.mark.parametrize("name", ["no-such-service", "../serve", "os", "", "echo_udp.serve", "__init__"])
def test_only_services_can_be_named(responder: tuple[Peer, int], name: str) -> None:
    with pytest.raises(ProbeError, match="no such service"):
        responder[0].open(name)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        *((said, "") for said in (b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"cotenant_probe":99}\n', b"[" * 4000 + b"\n")),
        (b"x" * (2 * MAX_LINE), "line"),
    ],
    ids=["HTTP", "a list", "another version", "nested too deep", "a line without end"],
)
def test_whoever_speaks_something_else_gets_an_error(responder: tuple[Peer, int], said: bytes, error: str) -> None:
    with control(responder[0]) as channel:
        channel.socket.sendall(said)
        assert error in channel.receive(5)["error"]


@pytest.mark.parametrize("block", [0, -1, 1 << 30, True, "7", 1.5, None])
def test_parameters_out_of_range_are_named(responder: tuple[Peer, int], block: object) -> None:
    with pytest.raises(ProbeError, match="block_bytes must be a whole number"):
        responder[0].open("echo-stream", {"block_bytes": block})


def test_what_is_sent_comes_back_and_from_the_session_only(responder: tuple[Peer, int]) -> None:
    with responder[0].open("echo-udp") as session, session.datagrams() as ours:
        ours.settimeout(60)
        ours.send(b"hello")
        assert ours.recv(100) == b"hello"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.settimeout(0.3)
            other.sendto(b"hello", ("127.0.0.1", session.port))
            with pytest.raises((TimeoutError, ConnectionRefusedError)):
                other.recv(100)


def test_no_datagram_is_answered_before_the_token_is_said(responder: tuple[Peer, int]) -> None:
    with responder[0].open("echo-udp") as session, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.settimeout(0.3)
        for guess in (b"hello", bytes(TOKEN_BYTES), session.token + b"x"):
            other.sendto(guess, ("127.0.0.1", session.port))
        with pytest.raises(TimeoutError):
            other.recv(100)


def test_a_data_connection_without_the_token_is_closed_and_the_session_lives(responder: tuple[Peer, int]) -> None:
    with responder[0].open("echo-stream", {"block_bytes": 4}) as session:
        with socket.create_connection(("127.0.0.1", session.port), 60) as other:
            other.sendall(bytes(TOKEN_BYTES))
            assert other.recv(10) == b""
        with session.connect() as ours:
            ours.sendall(b"1234")
            assert ours.recv(10) == b"1234"


def test_a_client_that_goes_away_takes_its_session_with_it(responder: tuple[Peer, int]) -> None:
    peer, pid = responder
    assert wait_until(lambda: sessions(pid) == 0, 60)
    session = peer.open("echo-udp")
    assert wait_until(lambda: sessions(pid) == 1, 60)
    session.close()
    assert wait_until(lambda: sessions(pid) == 0, 60)


def test_too_many_sessions_are_refused_and_room_comes_back(responder: tuple[Peer, int]) -> None:
    peer, pid = responder
    assert wait_until(lambda: sessions(pid) == 0, 60)
    with contextlib.ExitStack() as opened:
        for _ in range(MOST_SESSIONS):
            opened.enter_context(peer.open("echo-udp"))
        with pytest.raises(ProbeError, match=f"{MOST_SESSIONS} sessions run already"):
            peer.open("echo-udp")
    assert wait_until(lambda: sessions(pid) == 0, 60)
    peer.open("echo-udp").close()


def test_no_session_lasts_for_ever() -> None:
    code = (
        "from profiler.probes.responder import Responder; r = Responder(('127.0.0.1', 0), 0, most_s=0.5);"
        "print(r.address[1], flush=True); r.run()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        peer = Peer("127.0.0.1", int(child.stdout.readline()))
        with peer.open("echo-udp") as session, pytest.raises(ProbeError, match=r"closed|gone"):
            session.ask({"do": "nothing"}, timeout_s=10)
        assert wait_until(lambda: sessions(child.pid) == 0, 60)


def test_a_port_in_use_is_one_sentence(responder: tuple[Peer, int]) -> None:
    done = subprocess.run(
        [*SERVE, f"127.0.0.1:{responder[0].port}"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "choose with --listen" in done.stderr


def test_our_own_responder_is_started_when_it_is_needed_and_ends_with_the_block_and_its_sessions() -> None:
    before = set(children(os.getpid()))
    with far_end(None) as peer:
        assert set(children(os.getpid())) == before
        session = peer.open("echo-udp")
        (child,) = set(children(os.getpid())) - before
        (serving,) = children(child)
    with contextlib.closing(session):  # which asks for nothing more, and is still open
        assert not Path(f"/proc/{child}").exists()
        assert not Path(f"/proc/{serving}").exists()


def test_sessions_end_with_their_clients_even_if_the_responder_was_killed() -> None:
    with another_responder() as (served, port), contextlib.ExitStack() as clients:
        for service in ("echo-udp", "udp_sink", "loss_sink", "echo-stream", "tcp_sink", "responses", "ping_pong"):
            session = clients.enter_context(Peer("127.0.0.1", port).open(service))
            meets = service in ("echo-udp", "udp_sink", "loss_sink")
            clients.enter_context(session.datagrams() if meets else session.connect())
        serving = children(served.pid)
        served.kill()
        served.wait(60)
        assert len(serving) == 7
        clients.close()
        assert all(gone(pid) for pid in serving)


def test_a_name_with_several_addresses_is_tried_until_a_responder_answers(
    responder: tuple[Peer, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = responder[0].port
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    Peer("localhost", port).open("echo-udp").close()


def test_a_far_end_that_is_gone_before_it_is_greeted_is_an_error() -> None:
    near, far = socket.socketpair()
    far.close()
    with pytest.raises(ProbeError, match="the other end is gone"):
        ProbeSession(Peer("there", 9), ControlChannel(near), "echo-udp", {})


def test_a_name_that_cannot_be_encoded_is_one_sentence() -> None:
    with pytest.raises(ProbeError, match="cannot listen on"):
        Responder(("ä..b", 0))


def test_where_no_process_can_be_made_the_client_gets_an_error_and_the_responder_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    served = Responder(("127.0.0.1", 0))
    thread = threading.Thread(target=served.run)
    thread.start()
    try:
        for _ in range(2):
            with pytest.raises(ProbeError, match="no process for a session"):
                Peer(*served.address).open("echo-udp")
    finally:
        served.stop()
        thread.join()


def serve_one(answer: bytes) -> Peer:
    """A far end that says this and goes away."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(MAX_LINE)
            connection.sendall(answer)

    threading.Thread(target=run, daemon=True).start()
    return Peer("127.0.0.1", listener.getsockname()[1])


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\n", b"not json\n", b'{"ok":true}\n', b'{"token":"zz","port":1}\n', b'{"token":5,"port":1}\n',
        b'{"token":"' + b"00" * TOKEN_BYTES + b'","port":-1}\n', b'{"error":{"a":1}}\n', b"x" * 20_000,
    ],
)  # fmt: skip
def test_a_far_end_that_speaks_nonsense_is_an_error(answer: bytes) -> None:
    with pytest.raises(ProbeError):
        serve_one(answer).open("echo-udp")


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.text(max_size=5), st.integers(-(2**40), 2**40) | st.text(max_size=20) | st.none(), max_size=5),
    st.binary(max_size=100_000),
)
def test_objects_and_bytes_arrive_as_they_were_sent(document: dict[str, Any], payload: bytes) -> None:
    document.pop("payload_bytes", None)
    near, far = (ControlChannel(end) for end in socket.socketpair())
    sender = threading.Thread(target=near.send, args=(document, payload))
    sender.start()
    got = far.receive(5)
    assert far.receive_payload(got, 5) == payload
    got.pop("payload_bytes", None)
    assert got == document
    sender.join()
    near.close()
    with pytest.raises(FramingError):
        far.receive(1)
    far.close()


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.lists(st.integers())


@given(anything)
def test_numbers_from_outside_are_in_range_or_refused(value: object) -> None:
    reads: tuple[Any, ...] = (whole, number)
    for read in reads:
        try:
            got = read({"n": value}, "n", 1, 1, 10)
        except FramingError as error:
            assert str(error).startswith("n must be")
        else:
            assert 1 <= got <= 10
            assert not isinstance(value, bool)


@given(anything)
def test_an_announced_length_is_in_range_or_refused(value: object) -> None:
    if value == 0 and isinstance(value, int):
        return
    near, far = socket.socketpair()
    near.close()
    channel = ControlChannel(far)
    with contextlib.closing(channel), pytest.raises(FramingError):
        channel.receive_payload({"payload_bytes": value}, 0.1)
