"""Serves the metrics to Prometheus: read-only HTTP, bounded against slow clients and against many."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from profiler.agent.loop import StartError

_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
_MOST_CLIENTS = 8  # at the same time; Prometheus and its twin need two
_SILENCE_S = 3.0  # between bytes of a client
_DEADLINE_S = 10.0  # for a whole request and its answer
_FRESH_S = 1.0  # scrapes within this time share one page, so that many clients cost what one does


class ExporterError(StartError):
    """The exporter cannot listen."""


class Exporter:
    """Answers `GET /metrics` and `GET /healthz`."""

    def __init__(self, listen: tuple[str, int], page: Callable[[], bytes]) -> None:
        """Bind; raises ExporterError when that is not possible. Nothing is served before `start`."""
        self._page = page
        self._lock = threading.Lock()
        self._made: tuple[float, bytes] | None = None
        try:
            self._server = _MetricsServer(listen, self._render)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ExporterError(f"cannot listen on {listen[0]}:{listen[1]} ({reason}); choose with --listen") from None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was really taken."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="exporter", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _render(self) -> bytes:
        with self._lock:
            now = time.monotonic()
            if self._made is None or now - self._made[0] > _FRESH_S:
                self._made = now, self._page()
            return self._made[1]


class _MetricsServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 32

    def __init__(self, listen: tuple[str, int], render: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self.render = render
        self._slots = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__(listen, _MetricsHandler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's asks the name service who we are, which may take long

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = threading.Timer(_DEADLINE_S, _cut, (request,))
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: a client that goes away is not an error."""


def _cut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _MetricsHandler(BaseHTTPRequestHandler):
    server: _MetricsServer
    timeout = _SILENCE_S
    wbufsize = -1  # headers and body leave in one piece
    server_version = "cotenant-profiler"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            body, kind = self.server.render(), _TEXT_FORMAT
        elif path == "/healthz":
            body, kind = b"ok\n", "text/plain; charset=utf-8"
        else:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log no scrapes."""
