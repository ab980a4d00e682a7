"""What clients that cost more than they ask do to a service: its memory, its CPU time, and how long others wait.

    python -m research.benchmarks.http_attacks [--connections 10000] [--json]

One worker, 100 hosts, the prior. Others' latency is that of GET /v1/hosts/h00000, asked 20 times a second for 5 s while
the attack goes on or, where it is one body, right after that has been sent.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import socket
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from research.benchmarks.http_load import LoadedCloud, rss_mb, service
from research.benchmarks.open_loop import ask

MB = 2**20
HEAD = b"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(options.connections + 200, hard), hard))
    number = options.connections
    attacks: dict[str, Callable[[int], list[socket.socket]]] = {
        "nothing": lambda _: [],
        f"{number} connections, one request each, then idle": lambda port: _crowd(port, number, ASKED),
        f"{number} heads that do not end": lambda port: _crowd(port, number, b"GET / HTTP/1.1\r\nX: "),
        "100 MB in chunks": lambda port: [_chunks(port, 100)],
        "100 MB announced": lambda port: [_sent(port, HEAD + b"Content-Length: 104857600\r\n\r\n")],
        "15 MB of zeros as samples": lambda port: [_body(port, b'{"samples":[' + b"0," * (7 * MB) + b"0]}")],
        "15 MB of brackets": lambda port: [_body(port, b"[" * (15 * MB))],
        "15 MB of fields": lambda port: [_body(port, b"{%s}" % b",".join(b'"%d":0' % at for at in range(1_400_000)))],
    }
    rows = []
    for name, attack in attacks.items():
        with tempfile.TemporaryDirectory() as folder, service(Path(folder), LoadedCloud.of(100), None, 1) as served:
            rows.append({"attack": name} | _under(served.port, attack))
    print(json.dumps(rows, indent=1) if options.json else "\n".join(_line(row) for row in rows))


def _under(port: int, attack: Callable[[int], list[socket.socket]]) -> dict[str, Any]:
    before_mb, before_s = rss_mb(port), _cpu_s(port)
    held: list[socket.socket] = []
    attacking = threading.Thread(target=lambda: held.extend(attack(port)))
    attacking.start()
    others = ask(port, "/v1/hosts/h00000", [b""], rate=20, seconds=5)
    attacking.join()
    time.sleep(1)
    found = {
        "p50_ms": others.at(0.5),
        "max_ms": others.at(1.0),
        "lost": others.lost,
        "more_mb": rss_mb(port) - before_mb,
        "cpu_s": _cpu_s(port) - before_s,
    }
    for one in held:
        one.close()
    return found


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['attack']:50} others p50 {row['p50_ms']:6.1f} max {row['max_ms']:7.1f} ms, {row['lost']} lost; "
        f"{row['more_mb']:+.0f} MB, {row['cpu_s']:.2f} s of CPU"
    )


def _sent(port: int, data: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    with suppress(OSError):
        connection.sendall(data)
    return connection


def _crowd(port: int, number: int, request: bytes) -> list[socket.socket]:
    return [_sent(port, request) for _ in range(number)]


def _body(port: int, body: bytes) -> socket.socket:
    return _sent(port, HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def _chunks(port: int, number: int) -> socket.socket:
    connection = _sent(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    with suppress(OSError):
        for _ in range(number):
            connection.sendall(b"100000\r\n" + b" " * MB + b"\r\n")
    return connection


def _cpu_s(port: int) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    found = re.search(r"^process_cpu_seconds_total (\S+)", text, re.MULTILINE)
    return float(found[1]) if found else float("nan")


if __name__ == "__main__":
    main()
