"""Takes a block over TCP, whole, and sends it back; again and again, until the client closes."""

from __future__ import annotations

import socket

from profiler.probes import framing
from profiler.probes.services import ServedSession

_LARGEST = 1 << 24
_SILENCE_S = 600.0  # the client may wait long between blocks


def serve(served: ServedSession) -> None:
    """Parameter `block_bytes`: length of a block, 1 to 16 MB."""
    length = framing.whole(served.parameters, "block_bytes", 32 << 10, 1, _LARGEST)
    with served.listener() as listener:
        served.ready(listener.getsockname()[1])
        connection = served.accept(listener)
    block = memoryview(bytearray(length))
    with connection:
        connection.settimeout(_SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while framing.fill(connection, block):
            connection.sendall(block)
