"""Between kube-scheduler and services: answers of all kinds that none of ours gives, none at all, and a Service."""

from __future__ import annotations

import itertools
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal["500", "garbage", "empty", "hang"]
HANGS_S = 20.0


@contextmanager
def answering(fault: Fault) -> Iterator[str]:
    """The address of a server that answers every question with this."""

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            if fault == "hang":
                time.sleep(HANGS_S)
            body = {"500": b"broken", "garbage": b"<html>not JSON</html>", "empty": b"{}", "hang": b"{}"}[fault]
            self.send_response(500 if fault == "500" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with _serving(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as url:
        yield url


@contextmanager
def forwarding(ports: Sequence[int]) -> Iterator[str]:
    """The address of a server that hands each connection on to the next port of 127.0.0.1 that takes it, as a Service
    of Kubernetes does to its endpoints."""
    turns = itertools.count()

    def connected() -> socket.socket | None:
        first = next(turns)
        for number in range(len(ports)):
            with suppress(OSError):
                return socket.create_connection(("127.0.0.1", ports[(first + number) % len(ports)]))
        return None

    class Forwards(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            there = connected()
            if there is None:
                return
            with there:
                back = threading.Thread(target=_pass_on, args=(there, self.request))
                back.start()
                _pass_on(self.request, there)
                back.join()

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forwards)
    server.block_on_close = False
    with _serving(server) as url:
        yield url


@contextmanager
def _serving(server: ThreadingHTTPServer | socketserver.ThreadingTCPServer) -> Iterator[str]:
    """Its address, until the end of this context."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(65536):
            to.sendall(some)
    with suppress(OSError):
        to.shutdown(socket.SHUT_WR)
