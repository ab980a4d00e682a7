"""A loop that counts its turns in each bin of time: work of the CPU alone.

Run as a file of its own: `spin.py serve ADDRESS PORT` in a guest waits for `spin.py drive ADDRESS PORT` outside, which
ends the loop at SIGTERM and translates the guest's clock into its own, by the quickest of some questions before and
after the work. It prints what fetch.py prints; the unit of `amounts` is 1,000 turns of the loop.
"""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
import sys
import time

BIN_S = 0.005
_QUESTIONS = 20
_TURNS = 1000
_PATIENCE_S = 60.0


def serve(address: str, port: int) -> None:
    """In the guest: serve one client after another."""
    with socket.create_server((address, port)) as listener:
        while True:
            connection, _peer = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with contextlib.suppress(OSError), connection, connection.makefile("r") as orders:
                for order in orders:
                    if order == "time\n":
                        connection.sendall(f"{time.monotonic()}\n".encode())
                    elif order == "spin\n":
                        amounts = spin(connection)
                        connection.sendall(json.dumps(amounts).encode() + b"\n")


def spin(connection: socket.socket) -> dict[int, int]:
    """Count until something comes on the connection."""
    amounts: dict[int, int] = {}
    last_look = 0
    while True:
        for _ in range(_TURNS):
            pass
        number = int(time.monotonic() / BIN_S)
        amounts[number] = amounts.get(number, 0) + 1
        if number > last_look + 20:  # each tenth of a second
            last_look = number
            if select.select([connection], [], [], 0)[0]:
                return amounts


def drive(address: str, port: int) -> None:
    """Outside: let the guest count until SIGTERM, and print its amounts by the clock of this side."""
    signals = [signal.SIGTERM]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with socket.create_connection((address, port), _PATIENCE_S) as connection, connection.makefile("r") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ahead() -> tuple[float, float]:
            """How far the guest's clock is ahead, and the uncertainty of that."""
            tries = []
            for _ in range(_QUESTIONS):
                began = time.monotonic()
                connection.sendall(b"time\n")
                there = float(answers.readline())
                ended = time.monotonic()
                tries.append((ended - began, there - (began + ended) / 2))
            took, offset = min(tries)
            return offset, took / 2

        before = ahead()
        connection.sendall(b"spin\n")
        signal.sigwait(signals)
        connection.sendall(b"time\n")
        in_guest_time = json.loads(answers.readline())
        answers.readline()
        after = ahead()
    shift = round((before[0] + after[0]) / 2 / BIN_S)
    amounts = {int(number) - shift: amount for number, amount in in_guest_time.items()}
    off = max(before[1], after[1], abs(before[0] - after[0]))
    json.dump({"bin_s": BIN_S, "amounts": amounts, "clock_off_s": off}, sys.stdout)


if __name__ == "__main__":
    {"serve": serve, "drive": drive}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
