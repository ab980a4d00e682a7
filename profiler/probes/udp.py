"""Probe udp: paced at a set rate, received per 256 KB; quiet spells and buffer bursts (EC2NET §III and V-A, E2, E3)."""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from profiler.observed import Quantity
from profiler.pictures import Figure
from profiler.probes import throughput
from profiler.probes.base import ProbeError, ProbeRun, Progress, above, count
from profiler.probes.services import HEADER
from profiler.probes.sessions import FramingError, whole
from profiler.probes.throughput import (
    BUCKET_BYTES,
    QUIET_FLOOR_NS,
    Arrivals,
    BufferBurst,
    EndpointCpu,
    buffer_burst,
    next_start,
    path_mtu,
    set_buffer,
    wait_until,
)

RATE_MBIT = 1000.0  # the paper's, the rate of its network cards
MEGABYTES = 800.0
BURST_BYTES = 128 << 10  # "small idle intervals between every 128KB of data"
SOCKET_BYTES = 128 << 10
PACKET_BYTES = 1472  # 1500 with the headers of IP and UDP
_REACHED = 0.98  # of the set rate: below, the sender did not keep its pace


@dataclass(frozen=True, slots=True)
class _UdpTransfer:
    packets: int
    rate_mbit: float
    effort: EndpointCpu
    seconds: float


class Udp:
    """One paced transfer to the responder, which records what came."""

    name = "udp"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--rate-mbit", type=above(0, 1e5), default=RATE_MBIT, metavar="MBIT", help=f"to send at ({RATE_MBIT:g})")
        add("--megabytes", type=above(0, 1e7), default=MEGABYTES, metavar="MB", help=f"to send ({MEGABYTES:g})")
        add("--seconds", type=above(0, 7000), metavar="S", help="send for this long at most")
        add(
            "--packet-bytes",
            type=count(65_507, 64),
            default=PACKET_BYTES,
            metavar="N",
            help="payload of a packet (1472)",
        )

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        """Send `options.megabytes` or for `options.seconds`, whichever ends first, at `options.rate_mbit`."""
        rate = options.rate_mbit
        bucket_ns = BUCKET_BYTES * 8e3 / rate
        asked_for = {
            "packet_bytes": options.packet_bytes,
            "buffer_bytes": SOCKET_BYTES,
            "gap_floor_ns": min(max(QUIET_FLOOR_NS, int(bucket_ns)), 60_000_000_000),
        }
        with options.peer.open("udp_sink", asked_for) as session:
            with session.datagrams(partial(set_buffer, option=socket.SO_SNDBUF, size=SOCKET_BYTES)) as end:
                sent, mtu = _send(end, options, progress), path_mtu(end)
            answer, block = session.ask({"do": "report"})
        run = _evaluate(sent, answer, block, rate, options.packet_bytes)
        return replace(run, circumstances={**run.circumstances, "path_mtu": mtu}) if mtu else run

    def draw(self, run: ProbeRun) -> Figure:
        return throughput.draw(run.series, "UDP throughput", float(run.circumstances["rate_mbit"]))


def _send(end: socket.socket, options: argparse.Namespace, progress: Progress) -> _UdpTransfer:
    """Send bursts of whole packets, each an interval after the last, until enough went or the time is over."""
    size = options.packet_bytes
    burst = max(1, BURST_BYTES // size)
    total = max(burst, int(options.megabytes * 1e6) // size)
    interval = max(1, int(burst * size * 8e3 / options.rate_mbit))
    packet = bytearray(size)
    progress.begin(total * size / 1e6, "MB")
    began = planned = last_report = time.monotonic_ns()
    before, sent = EndpointCpu.now(), 0
    now = began
    until = began + int(options.seconds * 1e9) if options.seconds else None
    with progress.interruptible():
        while sent < total and not progress.stopped and (until is None or planned < until):
            for number in range(sent, min(sent + burst, total)):
                HEADER.pack_into(packet, 0, number)
                _send_packet(end, packet)
                sent += 1
            planned = next_start(planned, now, interval)
            if now - last_report > 500_000_000:
                last_report = now
                progress.update(sent * size / 1e6)
            wait_until(planned)
            now = time.monotonic_ns()
    elapsed = max(time.monotonic_ns() - began, 1)
    return _UdpTransfer(sent, sent * size * 8e3 / elapsed, EndpointCpu.now().since(before), elapsed / 1e9)


def _send_packet(end: socket.socket, packet: bytearray) -> None:
    try:
        end.send(packet)
    except ConnectionRefusedError:
        raise ProbeError("the responder went away") from None
    except OSError as error:
        raise ProbeError(f"packets of {len(packet)} bytes cannot be sent: {error.strerror}") from None


def _evaluate(sent: _UdpTransfer, answer: Mapping[str, Any], block: bytes, rate: float, packet_bytes: int) -> ProbeRun:
    try:
        split = whole(answer, "first_bytes", None, 0, len(block))
        packets, reordered, dropped = (whole(answer, name, None, 0, 1 << 62) for name in _COUNTS)
    except FramingError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None
    read, arrived = throughput.unpacked(block[:split]), throughput.unpacked(block[split:])
    lost = max(0, sent.packets - packets)
    burst = buffer_burst(read, rate)
    values = throughput.values(read, BUCKET_BYTES * 8e3 / rate)
    values |= {
        "sent_rate": Quantity(sent.rate_mbit, "Mb/s"),
        "lost": Quantity(100 * lost / max(sent.packets, 1), "%"),
        "reordered": Quantity(reordered, "packets"),
        "dropped_by_receiver": Quantity(dropped, "packets"),
        "buffer_burst": Quantity(burst.excess_bytes, "bytes"),
        "buffer_burst_time": Quantity(1e3 * burst.length_s, "ms"),
    }
    values |= sent.effort.values("sender", sent.seconds)
    values |= throughput.far_effort(answer).values("receiver", read.duration_ns / 1e9)
    marks = throughput.few_marks(read) + throughput.marks(values)
    if answer.get("kernel_times") is True:
        values |= _by_kernel(arrived, rate)
        if burst.excess_bytes > 2 * values["kernel_buffer_burst"].value:
            marks.append("by the kernel's arrival times the buffer burst waited mostly in the receiver's own socket")
    else:
        marks.append("the receiving kernel gives no arrival times")
    marks += _marks(sent, rate, dropped, burst)
    circumstances = {"rate_mbit": f"{rate:g}", "packet_bytes": str(packet_bytes), "burst_kb": str(BURST_BYTES >> 10)}
    return ProbeRun(values, "throughput", throughput.series(read), circumstances, tuple(marks))


_COUNTS = ("packets", "reordered", "dropped")


def _by_kernel(arrived: Arrivals, rate: float) -> dict[str, Quantity]:
    """Values by the kernel's arrival times: without the delay of the receiving process, which matters in VMs."""
    values = throughput.values(arrived, BUCKET_BYTES * 8e3 / rate, prefix="kernel_")
    names = ("kernel_quiet_share", "kernel_quiet_spells", "kernel_quiet_longest")
    burst = Quantity(buffer_burst(arrived, rate).excess_bytes, "bytes")
    return {**{name: values[name] for name in names}, "kernel_buffer_burst": burst}


def _marks(sent: _UdpTransfer, rate: float, dropped: int, burst: BufferBurst) -> list[str]:
    marks = []
    if sent.rate_mbit < _REACHED * rate:
        marks.append(f"the sender reached {sent.rate_mbit:.0f} of {rate:g} Mb/s: a buffer burst may be underestimated")
    if dropped:
        marks.append(f"the receiver's own socket buffer had no room for {dropped} packets: this loss is not the path's")
    if 0 < burst.excess_bytes <= BURST_BYTES:
        marks.append("the buffer burst is no more than one paced burst of 128 KB, which pacing itself explains")
    return marks


PROBE = Udp()
