"""Receives paced datagrams, and reports when each 256 KB came (as read, and by the kernel) and what was missing."""

from __future__ import annotations

import struct
from functools import partial

from profiler.probes import framing
from profiler.probes.datagrams import Inbox, prepare_receiver
from profiler.probes.endpoint_cpu import EndpointCpu
from profiler.probes.services import ServedSession
from profiler.probes.throughput_buckets import QUIET_FLOOR_NS, Recorder

HEADER = struct.Struct("!Q")  # the number of the packet
_LEAST, _MOST = 64, 65_507  # bytes of a packet; tokens are shorter


def serve(served: ServedSession) -> None:
    """Parameters `packet_bytes`, `buffer_bytes`, `gap_floor_ns`. Any command ends it once 0.2 s were quiet."""
    packet = framing.whole(served.parameters, "packet_bytes", 1472, _LEAST, _MOST)
    buffer = framing.whole(served.parameters, "buffer_bytes", 128 << 10, 4096, 256 << 20)
    floor = framing.whole(served.parameters, "gap_floor_ns", QUIET_FLOOR_NS, 1_000_000, 60_000_000_000)
    with served.datagrams(partial(prepare_receiver, buffer_bytes=buffer)) as end:
        served.ready(end.getsockname()[1])
        served.meet(end)
        inbox, read, arrived = Inbox(end), Recorder(floor), Recorder(floor)
        before = EndpointCpu.now()
        packets, reordered = _receive(inbox, served, packet, read, arrived)
        effort = EndpointCpu.now().since(before)
    served.channel.receive(1.0)
    answer = {
        "packets": packets,
        "reordered": reordered,
        "dropped": inbox.dropped,
        "kernel_times": inbox.kernel_times,
        **effort.document(),
    }
    first = read.packed()
    served.channel.send({**answer, "first_bytes": len(first)}, first + arrived.packed())


def _receive(inbox: Inbox, served: ServedSession, packet: int, read: Recorder, arrived: Recorder) -> tuple[int, int]:
    """Packets received, and how many of them came after one with a higher number."""
    unpack, take = HEADER.unpack_from, inbox.take
    control = served.channel.socket
    count, reordered, highest = 0, 0, -1
    while True:
        taken = take()
        if taken is None:
            if inbox.finished(control):
                return count, reordered
            continue
        block, read_ns, arrived_ns = taken
        length = len(block)
        if length < _LEAST:
            continue
        read.add(read_ns, length)
        arrived.add(arrived_ns, length)
        for start in range(0, length, packet):
            if length - start < HEADER.size:
                break
            (number,) = unpack(block, start)
            count += 1
            if number > highest:
                highest = number
            else:
                reordered += 1
