"""Sends every message of a TCP stream back once it is complete; sizes and numbers are announced by commands."""

from __future__ import annotations

import socket

from profiler.probes import framing
from profiler.probes.services import ServedSession

MOST_BYTES = 64 << 20
_MOST_MESSAGES = 10_000_000
_SILENCE_S = 120.0


def serve(served: ServedSession) -> None:
    """Serve commands with `size` and `count`: after "ok", that many messages follow and are answered."""
    with served.listener() as listener:
        served.ready(listener.getsockname()[1])
        with served.accept(listener) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.settimeout(None)
            _answer(served, stream)


def _answer(served: ServedSession, stream: socket.socket) -> None:
    space = memoryview(bytearray(1))
    while True:
        command = served.channel.receive(_SILENCE_S)
        size = framing.whole(command, "size", 1, 1, MOST_BYTES)
        count = framing.whole(command, "count", 1, 1, _MOST_MESSAGES)
        if len(space) < size:
            space = memoryview(bytearray(size))
        view = space[:size]
        served.channel.send({"ok": True})
        for _ in range(count):
            if not framing.fill(stream, view):
                return
            stream.sendall(view)
