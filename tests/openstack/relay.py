"""What stands between Nova's scheduler and Cotenant in the tests: passes questions on, keeps them, or does harm."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.openstack.cloud_scene import TIMEOUT_S

Harm = Callable[["_Answers", bytes], None]


@dataclass
class Relay:
    """On one port for the whole session, so that the scheduler need not be configured anew. `harm` None = pass on."""

    port: int
    target: int = 0  # the port of the service
    harm: Harm | None = None
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)  # question and answer

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def about(self, server: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Questions about one server, with their answers."""
        return [pair for pair in self.asked if pair[0]["instance"]["id"] == server]


class _Answers(BaseHTTPRequestHandler):
    relay: Relay

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.relay.harm is not None:
            self.relay.harm(self, body)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.relay.target, timeout=60)
        connection.request("POST", self.path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        self.relay.asked.append((json.loads(body), json.loads(content)))
        self.send(content, response.status)

    def send(self, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what was asked."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A scheduler that gave up has closed its end."""


@contextmanager
def relaying(port: int = 0) -> Iterator[Relay]:
    """A relay on loopback; with a port on that one."""
    handler: Any = type("Answers", (_Answers,), {})
    with _Server(("127.0.0.1", port), handler) as server:
        relay = handler.relay = Relay(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            server.shutdown()
            thread.join()


def slow(answers: _Answers, _: bytes) -> None:
    """Says nothing for longer than anybody waits."""
    time.sleep(3 * TIMEOUT_S)


def dripping(answers: _Answers, _body: bytes) -> None:
    """Never pauses for long and never ends: each read is in time, the whole is not."""
    answers.send_response(200)
    answers.send_header("Content-Length", "100000")
    answers.end_headers()
    for _ in range(int(30 * TIMEOUT_S)):
        answers.wfile.write(b" ")
        answers.wfile.flush()
        time.sleep(0.1)


def failing(answers: _Answers, _: bytes) -> None:
    answers.send(b'{"title": "Internal error"}', 500)


def garbage(answers: _Answers, _: bytes) -> None:
    answers.send(b"\x00\xff<html>")


def hanging_up(answers: _Answers, _: bytes) -> None:
    answers.connection.close()


def no_http(answers: _Answers, _: bytes) -> None:
    answers.wfile.write(b"220 mail.example.org ESMTP\r\n")
    answers.connection.close()


def not_numbers(answers: _Answers, body: bytes) -> None:
    """NaN, which JSON does not have and Python's reader takes."""
    _scored(answers, body, float("nan"))


def null_scores(answers: _Answers, body: bytes) -> None:
    _scored(answers, body, None)


def _scored(answers: _Answers, body: bytes, score: float | None) -> None:
    """The same score for every host."""
    candidates = [{"host": host, "score": score} for host in json.loads(body)["hosts"]]
    answers.send(json.dumps({"candidates": candidates, "rejected": []}).encode())


def about_others(answers: _Answers, _: bytes) -> None:
    """An answer about hosts that were not asked about."""
    answers.send(b'{"candidates": [{"host": "elsewhere", "score": 0.9}], "rejected": []}')


def knows_none(answers: _Answers, body: bytes) -> None:
    hosts = json.loads(body)["hosts"]
    rejected = [{"host": host, "code": "host.unknown", "reason": "no such host"} for host in hosts]
    answers.send(json.dumps({"candidates": [], "rejected": rejected}).encode())


HARMS: tuple[Harm, ...] = (
    slow, dripping, failing, garbage, hanging_up, no_http, not_numbers, null_scores, about_others, knows_none,
)  # fmt: skip
