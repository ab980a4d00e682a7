"""A real HTTP server that behaves as the test says and remembers what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from profiler.agent.spool import samples_in


@dataclass
class Reply:
    """What to answer: `status` None = hang up without a word; `body` None = as the API does."""

    status: int | None = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    stored: bool = True  # whether the samples are kept, whatever is answered
    delay_s: float = 0.0


class Double:
    """`decide` says what to do with each request's samples; `kept` counts how often each sample was stored."""

    def __init__(self) -> None:
        self.decide: Callable[[list[dict[str, Any]]], Reply] = lambda _samples: Reply()
        self.requests: list[list[dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.bodies: list[str] = []  # by their first field
        self.knows_windows = True
        self.connections = 0
        self.announced: list[dict[str, Any]] = []
        self.welcome = Reply(body=b'{"notes": []}')  # to announcements, and to whoever only reads
        self.kept: dict[tuple[Any, ...], float] = {}
        self.lock = threading.Lock()
        self.url = ""

    def answer(self, samples: list[dict[str, Any]], reply: Reply) -> bytes:
        accepted = 0
        with self.lock:
            self.requests.append(samples)
            if reply.stored:
                for sample in samples:
                    key = tuple(sample[name] for name in ("host", "instance", "scope", "metric", "time"))
                    accepted += key not in self.kept
                    value = sample["value"]
                    assert self.kept.setdefault(key, value) == value, "sent again with another value"
        if reply.body is not None:
            return reply.body
        counts = {"accepted": accepted, "duplicate": len(samples) - accepted, "dropped": 0, "reasons": []}
        return json.dumps(counts).encode()


@contextmanager
def serving() -> Iterator[Double]:
    double = Double()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            double.connections += 1
            super().setup()

        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not {"samples", "windows"} & sent.keys():
                double.paths.append(self.path)
                double.announced.append(sent)
                self._reply(double.welcome, double.welcome.body or b"{}")
                return
            double.bodies.append(next(iter(sent)))
            if "windows" in sent and not double.knows_windows:
                refusal = b'{"status": 422, "detail": "samples: is missing", "field": "samples"}'
                self._reply(Reply(status=422), refusal)
                return
            samples = samples_in(sent)
            double.headers.append(dict(self.headers))
            double.paths.append(self.path)
            reply = double.decide(samples)
            body = double.answer(samples, reply)
            time.sleep(reply.delay_s)
            if reply.status is None:
                self.close_connection = True
                return
            self._reply(reply, body)

        def do_GET(self) -> None:
            double.paths.append(self.path)
            self._reply(double.welcome, double.welcome.body or b"{}")

        def _reply(self, reply: Reply, body: bytes) -> None:
            self.send_response(reply.status or 500)
            for name, value in {"Content-Length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    double.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
