"""Probe tcp: throughput per 256 KB with windows of 256 KB, quiet spells, retransmissions (EC2NET §III and V-A, E2)."""

from __future__ import annotations

import argparse
import socket
import struct
import time
from dataclasses import dataclass
from functools import partial

from profiler.observed import Quantity
from profiler.pictures import Figure
from profiler.probes import throughput
from profiler.probes.base import ProbeError, ProbeRun, Progress, above, count
from profiler.probes.throughput import EndpointCpu, set_buffer

WINDOW_BYTES = 256 << 10
MEGABYTES = 800.0  # per test of the paper's campaign, of 10^6 bytes
_CHUNK = 64 << 10  # small against the window, so that progress is seen and a stop is heard
_TCP_INFO_PMTU, _TCP_INFO_RETRANSMITS = 60, 100  # offsets in struct tcp_info, linux/tcp.h


@dataclass(frozen=True, slots=True)
class TcpInfo:
    """The kernel's facts about a connection: path MTU in bytes, retransmitted segments."""

    path_mtu: int
    retransmits: int


def read_tcp_info(block: bytes) -> TcpInfo | None:
    """The fields of struct tcp_info; None when this kernel's is too short for them."""
    if len(block) < _TCP_INFO_RETRANSMITS + 4:
        return None
    offsets = (_TCP_INFO_PMTU, _TCP_INFO_RETRANSMITS)
    return TcpInfo(*(struct.unpack_from("@I", block, offset)[0] for offset in offsets))


@dataclass(frozen=True, slots=True)
class _TcpTransfer:
    window: int  # bytes that this kernel granted
    seconds: float
    effort: EndpointCpu
    info: TcpInfo | None


class Tcp:
    """One bulk transfer to the responder, which records what came."""

    name = "tcp"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--megabytes", type=above(0, 1e7), default=MEGABYTES, metavar="MB", help=f"to send ({MEGABYTES:g})")
        add("--seconds", type=above(0, 7000), metavar="S", help="send for this long at most")
        add(
            "--window-kb",
            type=count(1 << 18, 4),
            default=WINDOW_BYTES >> 10,
            metavar="KB",
            help="send and receive window (256)",
        )

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        """Send `options.megabytes` or for `options.seconds`, whichever ends first."""
        total = int(options.megabytes * 1e6)
        window = options.window_kb << 10
        with options.peer.open("tcp_sink", {"window_bytes": window}) as session:
            with session.connect(partial(set_buffer, option=socket.SO_SNDBUF, size=window)) as stream:
                sent = _send(stream, total, options.seconds, progress)
            answer, block = session.ask({"do": "report"})
        arrivals = throughput.unpacked(block)
        values = throughput.values(arrivals)
        circumstances = {"window_kb": str(window >> 10)}
        if sent.info is not None:
            values["retransmits"] = Quantity(sent.info.retransmits, "segments")
            circumstances["path_mtu"] = str(sent.info.path_mtu)
        values["received"] = Quantity(arrivals.received / 1e6, "MB")
        values |= sent.effort.values("sender", sent.seconds)
        values |= throughput.far_effort(answer).values("receiver", arrivals.duration_ns / 1e9)
        marks = throughput.few_marks(arrivals) + throughput.marks(values)
        for end, granted in (("near", sent.window), ("far", session.welcome.get("window_bytes"))):
            if isinstance(granted, int) and granted < window:
                marks.append(f"the {end} end granted a window of {granted >> 10} KB instead of {window >> 10} KB")
        return ProbeRun(values, "throughput", throughput.series(arrivals), circumstances, tuple(marks))

    def draw(self, run: ProbeRun) -> Figure:
        return throughput.draw(run.series, "TCP throughput")


def _send(stream: socket.socket, total: int, seconds: float | None, progress: Progress) -> _TcpTransfer:
    """Send zeros until enough went or the time is over; then end the stream."""
    stream.settimeout(None)
    chunk = memoryview(bytes(_CHUNK))
    began, before, size = time.monotonic(), EndpointCpu.now(), 0
    progress.begin(total / 1e6, "MB")
    last_report = began
    try:
        with progress.interruptible():
            while size < total and not progress.stopped:
                size += stream.send(chunk[: min(_CHUNK, total - size)])
                now = time.monotonic()
                if seconds is not None and now - began >= seconds:
                    break
                if now - last_report > 0.5:
                    last_report = now
                    progress.update(size / 1e6)
        elapsed, used = time.monotonic() - began, EndpointCpu.now().since(before)
        window = stream.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) // 2  # the kernel doubles what was asked
        info = read_tcp_info(stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256))
        stream.shutdown(socket.SHUT_WR)
    except OSError as error:
        raise ProbeError(f"the responder closed the connection after {size} bytes ({error.strerror})") from None
    return _TcpTransfer(window, elapsed, used, info)


PROBE = Tcp()
