"""Receives a TCP stream with a set window, and reports when each 256 KB of it had come."""

from __future__ import annotations

import socket
import time

from profiler.probes import framing
from profiler.probes.datagrams import set_buffer
from profiler.probes.endpoint_cpu import EndpointCpu
from profiler.probes.services import ServedSession
from profiler.probes.throughput_buckets import BUCKET_BYTES, Recorder


def serve(served: ServedSession) -> None:
    """Parameter `window_bytes`. A command after the end of the stream asks for the report."""
    window = framing.whole(served.parameters, "window_bytes", 256 << 10, 4096, 256 << 20)
    granted = 0

    def prepare(listener: socket.socket) -> None:  # before listening, or the window would not be scaled for it
        nonlocal granted
        granted = set_buffer(listener, socket.SO_RCVBUF, window)

    with served.listener(prepare) as listener:
        served.ready(listener.getsockname()[1], window_bytes=granted)
        with served.accept(listener) as stream:
            stream.settimeout(None)
            recorder = Recorder()
            before = EndpointCpu.now()
            _drain(stream, recorder)
            effort = EndpointCpu.now().since(before)
    served.channel.receive(10.0)
    served.channel.send(effort.document(), recorder.packed())


def _drain(stream: socket.socket, recorder: Recorder) -> None:
    buffer = memoryview(bytearray(BUCKET_BYTES))
    try:
        while size := stream.recv_into(buffer):
            recorder.add(time.monotonic_ns(), size)
    except ConnectionResetError:  # the sender was cut off: what came until then counts
        return
