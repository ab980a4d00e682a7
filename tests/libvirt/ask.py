"""Prints what a guest's web server answers: ADDRESS PATH TIMEOUT_S; run inside the lab's namespaces by guests.py."""

from __future__ import annotations

import socket
import sys


def main(address: str, path: str, timeout_s: str) -> int:
    """HTTP/1.0 by hand: http.client takes longer to import than the answer takes to come."""
    try:
        with socket.create_connection((address, 80), timeout=float(timeout_s)) as connection:
            connection.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode("ascii"))
            received = b""
            while part := connection.recv(1 << 16):
                received += part
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    head, _, body = received.partition(b"\r\n\r\n")
    sys.stdout.buffer.write(body)
    return 0 if b" 200 " in head.split(b"\r\n")[0] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
