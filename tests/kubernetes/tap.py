"""Between kube-scheduler and the service: answers of all kinds that no service of ours gives, and none at all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
