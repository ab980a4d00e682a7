"""Clients of a streaming server: each takes a film over HTTP as fast as it comes, and notes when each piece arrives.

Run as a file of its own: `python -I -S stream_clients.py HOST PORT PATH CLIENTS MBIT PACE PIECE SECONDS`. The film has
MBIT Mbit/s, the server sends pieces of PIECE bytes at PACE times that rate. Prints one JSON object over all clients.
"""

import gc
import json
import os
import re
import select
import socket
import sys
import time
from array import array
from itertools import pairwise

_CONNECT_S = 5.0
_HEAD = 8192  # no reply's head is longer
_BUFFERED_S = 0.5  # what a player gathers before it plays
_SEEN_S = 0.001  # viewers do not notice a shorter stall


class StreamServerError(Exception):
    """The server answers wrongly; the text says how."""


class StreamClient:
    """One viewer. `arrivals` are the moments at which its pieces were complete, in seconds from the begin."""

    def __init__(self, host: str, port: int, path: str, piece: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        self.request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self.piece = piece
        self.head = b""
        self.left = 0  # bytes of the film that are still to come
        self.received = 0
        self.arrivals = array("d")

    def ask(self) -> None:
        self.socket.send(self.request)
        self.head = b""

    def take(self, data: bytes, now: float) -> None:
        """Take bytes that have come."""
        if not data:
            raise StreamServerError("the server closed a stream")
        if not self.left:
            data = self.begin(data)
        self.left -= len(data)
        self.received += len(data)
        while len(self.arrivals) < self.received // self.piece:
            self.arrivals.append(now)
        if not self.left and not self.head:
            self.ask()

    def begin(self, data: bytes) -> bytes:
        """Read the reply's head; returns the part of the data that is film."""
        self.head += data
        end = self.head.find(b"\r\n\r\n")
        if end < 0 and len(self.head) < _HEAD:
            return b""
        length = re.search(rb"\r\ncontent-length: *(\d+)", self.head[: end + 2], re.IGNORECASE)
        if not self.head.startswith(b"HTTP/1.1 200 ") or length is None:
            raise StreamServerError(f"the streaming server answered {self.head[:40]!r}")
        film, self.head, self.left = self.head[end + 4 :], b"", int(length[1])
        return film


def off_schedule(arrivals: "array[float]", period: float) -> list[float]:
    """The absolute difference between the period and each interval between two pieces, in seconds."""
    return [abs(later - earlier - period) for earlier, later in pairwise(arrivals)]


def stalls(arrivals: "array[float]", period: float) -> tuple[int, float]:
    """The number and the total time of stalls of a player that needs a piece in every period.

    At the begin and after every stall it plays half a second after the piece that it waited for.
    """
    count, waited = 0, 0.0
    for number, arrival in enumerate(arrivals):
        late = arrival - (arrivals[0] + _BUFFERED_S + number * period + waited)
        if late > _SEEN_S:
            count += 1
            waited += late + _BUFFERED_S
    return count, waited


def watch(clients: list[StreamClient], seconds: float) -> None:
    """Take what comes until the time is over."""
    epoll = select.epoll()
    by_number = {client.socket.fileno(): client for client in clients}
    for client in clients:
        epoll.register(client.socket.fileno(), select.EPOLLIN)
    begin = time.perf_counter()
    for client in clients:
        client.ask()
    while (left := begin + seconds - time.perf_counter()) > 0:
        for number, _ in epoll.poll(left):
            data = by_number[number].socket.recv(65_536)
            by_number[number].take(data, time.perf_counter() - begin)


def report(
    clients: list[StreamClient], mbit: float, pace: float, piece: int, seconds: float
) -> dict[str, "float | None"]:
    playing, sending = piece * 8 / (mbit * 1e6), piece * 8 / (mbit * pace * 1e6)
    rates = [client.received * 8 / 1e6 / seconds for client in clients]
    differences = [value for client in clients for value in off_schedule(client.arrivals, sending)]
    waits = [stalls(client.arrivals, playing) for client in clients]
    return {
        "mbit_s": sum(rates),
        "quality_percent": 100 * sum(min(1.0, rate / mbit) for rate in rates) / len(rates),
        "jitter_ms": 1e3 * sum(differences) / len(differences) if differences else None,
        "stalls": sum(count for count, _ in waits), "stalled_s": sum(waited for _, waited in waits),
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    host, port, path, count = arguments[0], int(arguments[1]), arguments[2], int(arguments[3])
    mbit, pace, piece, seconds = float(arguments[4]), float(arguments[5]), int(arguments[6]), float(arguments[7])
    gc.disable()
    try:
        clients = [StreamClient(host, port, path, piece) for _ in range(count)]
        watch(clients, seconds)
    except (BrokenPipeError, ConnectionResetError):
        sys.exit(f"{host}:{port}: the server closed a stream")
    except OSError as error:
        sys.exit(f"{host}:{port} cannot be watched: {error.strerror or error}")
    except StreamServerError as error:
        sys.exit(f"{host}:{port}: {error}")
    os.write(1, json.dumps(report(clients, mbit, pace, piece, seconds)).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
