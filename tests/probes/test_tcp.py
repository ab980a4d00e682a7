"""Probe tcp: what it says of transfers whose rate, pauses and length are known."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from profiler.probes.base import ProbeError
from profiler.probes.tcp import read_tcp_info
from profiler.probes.throughput import EndpointCpu, far_effort, set_buffer, unpacked
from tests.probes.two_ends import (
    FAR,
    joined,
    needs_namespaces,
    needs_tun,
    numbers,
    responder,
    run,
    shape,
    stuttering,
    values,
)


def test_a_transfer_over_loopback_arrives_whole() -> None:
    result, run_ = run("tcp", "--megabytes", "60")
    found = numbers(result)
    assert found["received"] == pytest.approx(60)
    assert found["p5"] <= found["median"] <= found["p95"]
    assert sum(float(count or 0) for count in run_.series.columns["bytes"]) == pytest.approx(60e6, rel=0.02)
    assert result.circumstances["window_kb"] == "256"


@pytest.mark.measured
def test_a_receiver_that_is_scheduled_off_shows_as_quiet_spells() -> None:
    with responder() as (served, port), stuttering(served.pid, 0.030, 0.030):
        result, _ = run("tcp", "--megabytes", "100000", "--seconds", "1.2", to=("127.0.0.1", port))
    assert 30 <= result.values["quiet_share"].value <= 85
    assert 5 <= result.values["quiet_spells"].value <= 60
    assert result.values["quiet_longest"].value >= 25


@pytest.mark.measured
def test_an_end_that_shares_its_cpu_with_others_of_its_system_is_named() -> None:
    with responder() as (served, port), subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        cpu = {max(os.sched_getaffinity(0))}
        for pid in (served.pid, busy.pid):
            os.sched_setaffinity(pid, cpu)
        result, _ = run("tcp", "--megabytes", "100000", "--seconds", "0.8", to=("127.0.0.1", port))
        busy.kill()
    assert result.values["receiver_waited"].value > 5
    assert any(mark.startswith("the receiver waited") for mark in result.marks)


def test_what_an_end_did_is_reported_and_read_back() -> None:
    reported = EndpointCpu.now().document()
    assert EndpointCpu.read(reported).document() == reported
    assert EndpointCpu.read({"cpu_s": 1.5, "waited_s": None}).values("sender", 3.0).keys() == {"sender_cpu"}


@pytest.mark.parametrize("answer", [{}, {"cpu_s": "much"}, {"cpu_s": -1}, {"cpu_s": 1, "waited_s": float("nan")}])
def test_what_an_end_cannot_have_done_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(ProbeError, match="makes no sense"):
        far_effort(answer)


@needs_namespaces
@pytest.mark.lab
@pytest.mark.measured
def test_a_line_of_known_rate_is_measured() -> None:
    with joined() as ends, responder(*ends.inside(ends.far), listen=FAR) as (_, port):
        shape(ends.near, "tbf", "rate", "100mbit", "burst", "16k", "latency", "20ms")
        found = values(ends.probe(port, "tcp", "--megabytes", "15"))
    assert found["throughput"] == pytest.approx(100, rel=0.10)


@needs_namespaces
@needs_tun
@pytest.mark.lab
@pytest.mark.measured
def test_packets_that_the_path_loses_are_sent_again_and_counted() -> None:
    with joined(relay=True, drop_every=200) as ends, responder(*ends.inside(ends.far), listen=FAR) as (_, port):
        found = values(ends.probe(port, "tcp", "--megabytes", "6", "--seconds", "4"))
    assert found["retransmits"] >= 0.8 * found["received"] * 1e6 / 1460 / 200


def test_what_the_kernel_says_of_a_connection_is_read() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as near:
        server.accept()[0].close()
        info = read_tcp_info(near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
    assert info is not None
    assert (info.path_mtu, info.retransmits) == (65_535, 0)
    assert read_tcp_info(b"\0" * 100) is None


def test_a_smaller_window_of_this_end_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without root, where the kernel grants no more than net.core.wmem_max."""
    monkeypatch.setattr("profiler.probes.tcp.set_buffer", lambda end, option, size: set_buffer(end, option, size // 4))
    result, _ = run("tcp", "--megabytes", "20")
    assert "the near end granted a window of 64 KB instead of 256 KB" in result.marks
    assert not any(mark.startswith("the far end granted") for mark in result.marks)


def test_a_report_that_makes_no_sense_is_a_sentence() -> None:
    with pytest.raises(ProbeError, match="makes no sense"):
        unpacked(b"1234567")
