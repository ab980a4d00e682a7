"""Probe requests: rates and latencies that must fit together, beside sockperf where it is installed."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from profiler.probes.base import ProbeError, Progress
from profiler.probes.requests import PROBE, RequestClient, _threads
from profiler.probes.services import MOST_RESPONSE_BYTES
from profiler.probes.sessions import far_end
from tests.probes.two_ends import numbers, run


@pytest.mark.measured
def test_rate_and_latency_fit_together_for_every_number_at_once() -> None:
    """Little's law: what is on its way is rate times latency, and in a closed loop that is how many ask."""
    result, run_ = run("requests", "--threads", "1,4,16", "--seconds", "0.5")
    values = numbers(result)
    for threads in (1, 4, 16):
        on_the_way = values[f"requests_{threads}"] * values[f"mean_{threads}"] / 1e6
        assert on_the_way == pytest.approx(threads, rel=0.15)
        assert values[f"p95_{threads}"] >= values[f"mean_{threads}"] * 0.5
    assert values["requests_16"] > values["requests_1"] * 0.8
    assert result.main == "requests_16"
    assert len(PROBE.draw(run_).axes) == 2


@pytest.mark.measured
def test_a_connection_for_each_request_costs_time() -> None:
    # Eight at once keep both ends busy. With two, the ends mostly wait to be woken, and connecting hides in that wait.
    kept, _ = run("requests", "--threads", "8", "--seconds", "0.5")
    each, _ = run("requests", "--threads", "8", "--seconds", "0.5", "--connect")
    assert numbers(each)["requests_8"] < 0.8 * numbers(kept)["requests_8"]
    assert (kept.circumstances["connect"], each.circumstances["connect"]) == ("once", "each")


@pytest.mark.measured
def test_a_connection_for_each_request_leaves_no_port_waiting() -> None:
    with far_end(None) as peer, peer.open("responses", {"size": 64}) as session:
        load = RequestClient(session.connect, 1, 64, reconnect=True).run(0.3, Progress())
        table = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    waiting = [one for one in table if one[2].endswith(f":{session.port:04X}") and one[3] == "06"]  # TIME_WAIT, proc(5)
    assert len(load.took_s) > 10
    assert len(waiting) <= 1  # the last one


def test_an_answer_larger_than_the_socket_buffers_comes_whole() -> None:
    def narrow(stream: socket.socket) -> None:
        """The other end makes its first buffer for so small segments; this one takes a little at a time."""
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)

    with (
        far_end(None) as peer,
        peer.open("responses", {"size": MOST_RESPONSE_BYTES}) as session,
        session.connect(narrow) as stream,
    ):
        stream.settimeout(60)
        stream.sendall(bytes(MOST_RESPONSE_BYTES))
        time.sleep(0.3)  # now it can send no more
        got = 0
        while some := len(stream.recv(MOST_RESPONSE_BYTES - got)):
            got += some
        assert got == MOST_RESPONSE_BYTES


def test_a_responder_that_is_silent_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.probes.requests._LOST_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = RequestClient(lambda: socket.create_connection(server.getsockname()), 2, 64, reconnect=False)
        with pytest.raises(ProbeError, match="does not answer any more"):
            client.run(5.0, Progress())


@pytest.mark.skipif(shutil.which("sockperf") is None, reason="needs sockperf (apt-get install sockperf)")
@pytest.mark.lab
@pytest.mark.measured
def test_sockperf_sees_a_similar_latency() -> None:
    """The shortest round trips, within a factor of three: sockperf is C++ and does nothing else, ours is Python."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    address = ["--tcp", "-i", "127.0.0.1", "-p", port]
    with subprocess.Popen(["sockperf", "server", *address], stdout=subprocess.DEVNULL) as server:
        try:
            time.sleep(0.4)
            theirs = sockperf_rtt_us(address)
        finally:
            server.kill()
    _, run_ = run("requests", "--threads", "1", "--seconds", "0.7")
    (ours,) = run_.series.columns["shortest_us"]
    assert isinstance(ours, float) and 0.33 < ours / theirs < 3, (ours, theirs)


def sockperf_rtt_us(address: list[str]) -> float:
    """Its shortest round trip with 64 bytes; the mean is whatever else the machine does."""
    said = subprocess.run(
        ["sockperf", "ping-pong", *address, "-t", "1", "-m", "64", "--full-rtt"],
        capture_output=True, text=True, check=True, timeout=120,
    ).stdout  # fmt: skip
    match = re.search(r"<MIN> observation\s*=\s*([\d.]+)", said)
    assert match, said
    return float(match[1])


def test_numbers_at_once_are_read_in_any_order() -> None:
    assert _threads("8,1,4,4") == (1, 4, 8)
