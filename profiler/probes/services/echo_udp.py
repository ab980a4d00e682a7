"""Sends every datagram back as it came, until the client closes the session."""

from __future__ import annotations

from profiler.probes.services import ServedSession

_LARGEST = 65_536
_LOOK_S = 1.0  # of silence between looks whether the client is still there


def serve(served: ServedSession) -> None:
    """No parameters. Answers are never larger than what came."""
    with served.datagrams() as datagrams:
        served.ready(datagrams.getsockname()[1])
        served.meet(datagrams)
        datagrams.settimeout(_LOOK_S)
        buffer = memoryview(bytearray(_LARGEST))
        while True:
            try:
                length = datagrams.recv_into(buffer)
                datagrams.send(buffer[:length])
            except TimeoutError:
                if served.left():
                    return
            except ConnectionRefusedError:  # an answer came too late for a client that had gone
                continue
