"""Round-trip times: matching answers on series with known answers, ICMP parsing, and both kinds of probe for real."""

from __future__ import annotations

import argparse
import os
import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.base import ProbeError, Progress
from profiler.probes.icmp import SO_TIMESTAMPNS, checksum, kernel_time, parse_raw
from profiler.probes.rtt import PROBE, EchoAnswer, Echoes, EchoProbe, exchange, marks, round_trip, summarise
from profiler.probes.sessions import Peer, far_end
from tests.probes.two_ends import StopOnce, options_of

ME = 0x1234


class Wire:
    """A line without a network: each probe is answered after a set time; None = never, below 0 = it is refused."""

    def __init__(self, delays_s: list[float | None], twice: bool = False) -> None:
        self._delays, self._twice = delays_s, twice
        self._due: list[tuple[float, int]] = []
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)

    def fileno(self) -> int:
        self._theirs.send(b"x")
        return self._ours.fileno()

    def send(self, sequence: int) -> None:
        delay = self._delays[sequence] if sequence < len(self._delays) else None
        if delay is not None and delay < 0:
            raise OSError(101, "Network is unreachable")
        if delay is not None:
            self._due += [(time.monotonic() + delay, sequence)] * (1 + self._twice)

    def receive(self) -> Iterable[EchoAnswer]:
        time.sleep(0.001)  # readable all the time
        now = time.monotonic()
        ready = [due for due in self._due if due[0] <= now]
        self._due = [due for due in self._due if due[0] > now]
        return [EchoAnswer(sequence, None) for _, sequence in ready]

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


def sent(delays_s: list[float | None], wait_s: float = 0.3, twice: bool = False) -> Echoes:
    wire = Wire(delays_s, twice)
    try:
        return exchange(wire, len(delays_s), 100, None, wait_s, Progress())
    finally:
        wire.close()


@pytest.mark.measured
def test_answers_are_matched_with_their_probes_even_out_of_order() -> None:
    found = sent([0.1, 0.005, None, 0.03])
    rtts = [probe.rtt_ms for probe in found.sent]
    assert rtts[2] is None
    assert [rtt for rtt in rtts if rtt is not None] == pytest.approx([100, 5, 30], abs=15)


@pytest.mark.measured
def test_lost_late_and_duplicate_answers_are_counted_apart() -> None:
    found = sent([0.005, 0.2, None, 0.005], twice=True)
    values = summarise(found, 0, late_ms=100)
    counted = {name: values[name].value for name in ("samples", "lost", "late", "duplicates")}
    assert counted == {"samples": 4, "lost": 1, "late": 1, "duplicates": 3}
    assert values["max"].value < 100  # a late one is in no statistic


def test_probes_leave_on_a_grid_whatever_answers_do() -> None:
    found = sent([0.05] * 10)
    assert [round(probe.planned_s, 3) for probe in found.sent] == [place / 100 for place in range(10)]
    assert all(probe.sent_s >= probe.planned_s for probe in found.sent)


def test_a_probe_that_the_kernel_refuses_counts_as_lost_and_is_reported() -> None:
    found = sent([0.005, -1, 0.005])
    assert found.refused == 1
    assert summarise(found, 0, 100)["lost"].value == 1
    assert any("refused to send 1" in mark for mark in marks(found, 100))


def test_a_kernel_that_refuses_everything_is_an_error() -> None:
    with pytest.raises(ProbeError, match="Network is unreachable"):
        sent([-1.0] * 10)


def test_no_answer_at_all_is_an_error_and_not_zero() -> None:
    with pytest.raises(ProbeError, match="none of 3 probes was answered"):
        summarise(sent([None] * 3, wait_s=0.05), 0, 100)


def test_the_first_probes_are_dropped() -> None:
    probes = [EchoProbe(0, 0, 0, rtt) for rtt in (500.0, 400.0, 1.0, 2.0, 3.0)]
    values = summarise(Echoes(probes), 2, 1000)
    assert (values["max"].value, values["samples"].value) == (3, 3)


@pytest.mark.measured
def test_a_stop_does_not_count_what_was_under_way_as_lost() -> None:
    wire = Wire([0.001] * 4 + [None] * 10)
    found = exchange(wire, 14, 100, None, 1.0, StopOnce(5))
    wire.close()
    assert len(found.sent) == 4
    assert all(probe.rtt_ms is not None for probe in found.sent)


@given(st.floats(0, 10), st.integers(-(10**12), 10**12), st.floats(0, 1e3))
def test_a_kernel_time_that_cannot_be_is_not_used(sent_s: float, off_ns: int, ours_ms: float) -> None:
    probe = EchoProbe(sent_s, sent_s, 10**18)
    rtt, by_kernel = round_trip(probe, sent_s + ours_ms / 1e3, 10**18 + off_ns)
    assert 0 <= rtt <= ours_ms + 0.011
    assert by_kernel == (0 < off_ns / 1e6 <= (sent_s + ours_ms / 1e3 - sent_s) * 1e3 + 0.01)


def test_probes_that_leave_late_are_marked() -> None:
    late = Echoes([EchoProbe(0.1 * place, 0.1 * place + 0.06, 0, 1.0, True) for place in range(10)])
    assert any("10 of 10 probes left late" in mark for mark in marks(late, 10))
    fine = Echoes([EchoProbe(0.1 * place, 0.1 * place + 0.001, 0, 1.0, True) for place in range(10)])
    assert marks(fine, 10) == ()


def echo(kind: int, number: int, sequence: int) -> bytes:
    return struct.pack("!BBHHH", kind, 0, 0, number, sequence) + b"payload"


def ip4(inside: bytes) -> bytes:
    return bytes([0x45]) + bytes(19) + inside


def test_a_raw_reply_is_ours_by_its_id() -> None:
    answer = parse_raw(ip4(echo(0, ME, 7)), "192.0.2.1", 5, ME)
    assert answer is not None
    assert (answer.sequence, answer.kind, answer.sender, answer.kernel_ns) == (7, "reply", "192.0.2.1", 5)
    assert parse_raw(ip4(echo(0, ME + 1, 7)), "192.0.2.1", 5, ME) is None
    assert parse_raw(ip4(echo(8, ME, 7)), "192.0.2.1", 5, ME) is None  # our own request, seen on loopback


@pytest.mark.parametrize(("kind", "name"), [(11, "exceeded"), (3, "unreachable")])
def test_a_complaint_is_ours_by_the_request_that_it_repeats(kind: int, name: str) -> None:
    complaint = struct.pack("!BBHI", kind, 0, 0, 0)
    answer = parse_raw(ip4(complaint + ip4(echo(8, ME, 9))), "192.0.2.1", None, ME)
    assert answer is not None
    assert (answer.sequence, answer.kind) == (9, name)
    assert parse_raw(ip4(complaint + ip4(echo(8, ME + 1, 9))), "192.0.2.1", None, ME) is None
    assert parse_raw(ip4(complaint + ip4(b"")), "192.0.2.1", None, ME) is None


@given(st.binary(max_size=120))
def test_no_packet_from_outside_breaks_the_parser(packet: bytes) -> None:
    parse_raw(packet, "x", None, ME)
    parse_raw(ip4(packet), "x", None, ME)
    parse_raw(ip4(struct.pack("!BBHI", 11, 0, 0, 0) + packet), "x", None, ME)
    kernel_time([(socket.SOL_SOCKET, SO_TIMESTAMPNS, packet)])


@given(st.binary(min_size=2, max_size=200).filter(lambda data: len(data) % 2 == 0))
def test_data_with_its_checksum_sums_to_nothing(data: bytes) -> None:
    assert checksum(data + checksum(data).to_bytes(2, "big")) == 0


# For real


def options(peer: Peer, *arguments: str) -> argparse.Namespace:
    return options_of("rtt", *arguments, peer=peer)


@pytest.mark.measured
def test_loopback_answers_udp_probes_with_receive_times_of_the_kernel() -> None:
    with far_end(None) as peer:
        run = PROBE.run(options(peer, "--udp", "--count", "60", "--per-second", "200", "--drop", "10"), Progress())
    assert run.values["samples"].value == 50
    assert run.values["lost"].value == 0
    assert 0 < run.values["min"].value < 10
    assert run.circumstances["receive_times"] == "kernel"
    assert len(run.series) == 60


@pytest.mark.parametrize("much", [("--per-second", "0.5"), ("--seconds", "7200")])
def test_more_than_a_responder_serves_for_is_refused_before_it_begins(much: tuple[str, ...]) -> None:
    with pytest.raises(ProbeError, match="at most: ask for less"):
        PROBE.run(options(Peer("127.0.0.1", 9), "--udp", *much), Progress())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, or a ping_group_range that allows us ICMP")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.measured
def test_loopback_answers_icmp_probes(host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("needs IPv6")
    run = PROBE.run(options(Peer(host, 9), "--count", "30", "--per-second", "200"), Progress())
    assert run.values["samples"].value == 27  # a tenth of few probes is dropped
    assert run.values["lost"].value == 0
    assert run.circumstances["receive_times"] == "kernel"
    assert run.circumstances["by"] in ("ICMP (raw socket)", "ICMP (ping socket)")
