"""Queries a game server at moments fixed in advance, by itself and by qstat, and reports how long the answers took.

Run as a file of its own: `python -I -S game_queries.py HOST PORT SECONDS`. Prints one JSON object with two lists:
latencies of its own queries in ms, and qstat's pings in whole ms; null = no answer within a second. The
server answers each address ten times at once and then once a second (ioquake3, SVC_RateLimitAddress), so there are
about SECONDS + 8 queries; every fifth is qstat's. SECONDS 0 asks once, and fails when no answer comes.
"""

import json
import os
import re
import select
import socket
import sys
import time

_MARK = b"\xff\xff\xff\xff"  # head of every packet outside a game (Quake III's protocol)
_BURST = 8  # of ten: one is the lab's question whether it is ready
_PATIENCE_S = 1.0
_EVERY = 5
_QSTAT = "quakestat"  # Debian's name of it; Debian's other qstat asks job queues


class Queries:
    """Queries and their answers; times are seconds from `begin`."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.connect((host, port))
        self.begin = time.perf_counter()
        self.sent: dict[int, float] = {}
        self.answered: dict[int, float] = {}
        self.tools: list[tuple[int, int]] = []  # process and descriptor of its output

    def now(self) -> float:
        return time.perf_counter() - self.begin

    def ask(self, number: int, due: float) -> None:
        """Send one query; its challenge comes back and identifies the answer."""
        if number % _EVERY == _EVERY - 1:
            self.ask_by_qstat()
            return
        self.sent[number] = due
        try:
            self.socket.send(_MARK + b"getstatus %d" % number)
        except OSError:
            return  # the queue on the way out is full: no answer will come

    def ask_by_qstat(self) -> None:
        output = os.memfd_create("qstat")
        # It gives up after a second by itself, so it cannot stay behind.
        command = [_QSTAT, "-q3s", self.address, "-xml", "-retry", "1", "-timeout", "1"]
        process = os.posix_spawnp(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, output, 1)])
        self.tools.append((process, output))

    def listen(self, until: float, *, all_of_them: bool = False) -> None:
        """Take answers until that moment, or until there are all of them."""
        while (left := until - self.now()) > 0 and not (all_of_them and len(self.answered) == len(self.sent)):
            if not select.select([self.socket], [], [], left)[0]:
                return
            try:
                answer = self.socket.recv(65_536)
            except ConnectionRefusedError:
                continue  # the server is gone: no answer
            challenge = re.search(rb"\\challenge\\(\d+)", answer)
            if challenge and int(challenge[1]) in self.sent:
                self.answered.setdefault(int(challenge[1]), self.now())

    def latencies(self) -> list["float | None"]:
        """Of each query in ms; None without an answer in time."""
        taken = {number: (at - self.sent[number]) * 1e3 for number, at in self.answered.items()}
        return [taken[n] if taken.get(n, float("inf")) <= _PATIENCE_S * 1e3 else None for n in self.sent]

    def pings(self) -> list["float | None"]:
        """Wait for qstat's processes and read their output."""
        pings: list[float | None] = []
        for process, output in self.tools:
            os.waitpid(process, 0)
            text = os.pread(output, 65_536, 0)
            ping = re.search(rb"<ping>(\d+)</ping>", text) if b'status="UP"' in text else None
            pings.append(float(ping[1]) if ping else None)
        return pings


def main(arguments: list[str]) -> None:
    host, port, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    count = int(seconds) + _BURST if seconds else 1
    try:
        queries = Queries(host, port)
        for number in range(count):
            due = number * seconds / count
            queries.listen(due)
            queries.ask(number, due)
        queries.listen(seconds)
        queries.listen(max(queries.sent.values()) + _PATIENCE_S, all_of_them=True)
        report = {"seconds": seconds, "latencies_ms": queries.latencies(), "qstat_ms": queries.pings()}
    except OSError as error:
        sys.exit(f"{host}:{port} cannot be queried: {error.strerror or error}")
    if not seconds and not queries.answered:
        sys.exit(f"{host}:{port} does not answer")
    os.write(1, json.dumps(report).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
