"""The clients of emulated guests, here against servers of this machine: what they tell of progress over time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from lab.emulated_xen.client_progress import ClientProgress
from lab.emulated_xen.machine import FILES
from tests.servers.local_http import QuietHandler, on_loopback

SIZE = 3000


class _Answering(QuietHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        self.server.answered += 1  # type: ignore[attr-defined]
        self.reply(200 if self.path == "/1k" else 404, b"x" * SIZE)


@pytest.fixture
def web() -> Iterator[ThreadingHTTPServer]:
    with on_loopback(_Answering) as server:
        server.answered = 0  # type: ignore[attr-defined]
        yield server


def start(*arguments: object) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", "-S", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(client: subprocess.Popen[str]) -> dict[str, Any]:
    client.send_signal(signal.SIGTERM)
    output, _ = client.communicate(timeout=120)
    report: dict[str, Any] = json.loads(output)
    return report


def progress(report: dict[str, Any]) -> ClientProgress:
    return ClientProgress(report["bin_s"], {int(number): amount for number, amount in report["amounts"].items()})


def test_a_fetcher_counts_as_many_answers_as_the_server_gave_at_the_time_it_gave_them(web: ThreadingHTTPServer) -> None:
    begin = time.monotonic()
    client = start(FILES / "fetch.py", "127.0.0.1", web.server_port, "/1k", 3)
    while web.answered < 50:  # type: ignore[attr-defined]
        time.sleep(0.01)
    bins = progress(ended(client))
    amount, _ = bins.between(begin - 0.01, time.monotonic() + 0.01)
    answered = web.answered  # type: ignore[attr-defined]
    assert answered - 3 - 1 <= amount <= answered  # three are under way, and one may be whole but not counted yet
    assert bins.between(begin - 100, begin - 1)[0] == 0


def test_a_fetcher_says_what_the_server_refused(web: ThreadingHTTPServer) -> None:
    client = start(FILES / "fetch.py", "127.0.0.1", web.server_port, "/none", 1)
    _, errors = client.communicate(timeout=120)
    assert client.returncode
    assert "404" in errors


def test_a_loop_in_a_guest_tells_its_progress_in_the_clock_outside() -> None:
    served = start(FILES / "spin.py", "serve", "127.0.0.1", 7191)
    try:
        time.sleep(0.5)
        begin = time.monotonic()
        client = start(FILES / "spin.py", "drive", "127.0.0.1", 7191)
        time.sleep(1)
        report = ended(client)
    finally:
        served.kill()
        served.communicate()
    inside, _ = progress(report).between(begin, time.monotonic())
    assert inside == sum(report["amounts"].values()) > 0
    assert report["clock_off_s"] < 0.05
