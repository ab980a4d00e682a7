"""Fetches one path of a server again and again over kept connections, and counts what came in each bin of time.

Run as a file of its own: `fetch.py ADDRESS PORT PATH CONNECTIONS`; ends at SIGTERM, then prints one object of JSON:
`bin_s`, and `amounts` by number of the bin (CLOCK_MONOTONIC / bin_s), in requests (bytes over the answer's whole size).
"""

from __future__ import annotations

import json
import select
import signal
import socket
import sys
import time

BIN_S = 0.005
_READ = 1 << 18
_PATIENCE_S = 20.0


class Fetcher:
    """One connection; `take` reads what came and sends the next request when an answer is complete."""

    def __init__(self, address: str, port: int, path: str) -> None:
        self.socket = socket.create_connection((address, port), _PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self._head = b""
        self._left = self.size = 0
        self.ask()

    def ask(self) -> None:
        self._head, self._left = b"", 0
        self.socket.sendall(self._request)

    def take(self) -> float:
        """What came, as a part of an answer."""
        data = self.socket.recv(_READ)
        if not data:
            sys.exit("the server hung up")
        if not self._left:
            self._head += data
            head, blank_line, body = self._head.partition(b"\r\n\r\n")
            if not blank_line:
                return 0.0
            if b" 200 " not in head.split(b"\r\n")[0]:
                sys.exit(f"the server answered {head[:60]!r}")
            (length,) = [
                line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            ]
            self.size = self._left = int(length)
            data = body
        self._left -= len(data)
        if self._left <= 0:
            self.ask()
        return len(data) / self.size


def main(address: str, port: int, path: str, connections: int) -> None:
    amounts: dict[int, float] = {}

    def end(_signal: int, _frame: object) -> None:
        json.dump({"bin_s": BIN_S, "amounts": amounts}, sys.stdout)
        sys.stdout.flush()
        sys.exit(0)

    poll = select.poll()
    opened = [Fetcher(address, port, path) for _ in range(connections)]
    fetchers = {fetcher.socket.fileno(): fetcher for fetcher in opened}
    for descriptor in fetchers:
        poll.register(descriptor, select.POLLIN)
    signal.signal(signal.SIGTERM, end)
    while True:
        for descriptor, _event in poll.poll():
            part = fetchers[descriptor].take()
            number = int(time.monotonic() / BIN_S)
            amounts[number] = amounts.get(number, 0.0) + part


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
