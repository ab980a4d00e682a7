"""Sends every datagram back as it came, until the client closes the session or is silent for long."""

from __future__ import annotations

import contextlib

from profiler.probes import wire
from profiler.probes.services import Served

_LARGEST = 65_536
_MOST_SILENCE_S = 120.0


def serve(served: Served) -> None:
    """Parameter `silence_s`: the session ends after so much silence. Answers are never larger than what came."""
    silence_s = wire.number(served.parameters, "silence_s", 30.0, 0.1, _MOST_SILENCE_S)
    with served.datagrams() as datagrams:
        served.ready(datagrams.getsockname()[1])
        served.meet(datagrams)
        datagrams.settimeout(silence_s)
        buffer = memoryview(bytearray(_LARGEST))
        while True:
            try:
                length = datagrams.recv_into(buffer)
            except TimeoutError:
                return
            except ConnectionRefusedError:  # an answer came too late for a client that had gone
                continue
            with contextlib.suppress(ConnectionRefusedError):
                datagrams.send(buffer[:length])
