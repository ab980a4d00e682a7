"""A real service that is asked to stop: first it says that it is not ready, then it finishes what it has, and ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

PROGRAM = (sys.executable, "-W", "error", "-c", "from api.cli import main; main()")
QUESTION = json.dumps(
    {"host": {"id": "x", "kind": "kvm", "pcpus": 2, "memory_mb": 1}, "instances": [{"id": "a", "vcpus": 1}]}
).encode()
DRAIN_S = 6.0  # under the 10 s that a body may pause


@contextmanager
def service(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`cotenant serve` in a folder of its own, with a log for people; the process and its port."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("COTENANT_")},
        "COTENANT_DRAIN_S": str(DRAIN_S),
        "COTENANT_LOG_FORMAT": "text",
    }
    with (folder / "log").open("w") as log:
        argv = (*PROGRAM, "serve", "--listen", "127.0.0.1:0", *arguments)
        process = subprocess.Popen(argv, cwd=folder, stderr=log, text=True, env=environment)
    try:
        yield process, _port(process, folder / "log")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[str], log: Path) -> int:
    deadline = time.monotonic() + 240
    while not (found := re.search(r"listens on http://127\.0\.0\.1:(\d+) ", log.read_text())):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return int(found[1])


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def _until(deadline_s: float, true: object) -> float:
    """When it became true, in seconds from now."""
    began = time.monotonic()
    while not true():  # type: ignore[operator]
        assert time.monotonic() - began < deadline_s
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.measured
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_service_asked_to_stop_is_not_ready_first_then_refuses_and_finishes_what_it_has(
    tmp_path: Path, workers: str
) -> None:
    with service(tmp_path, "--workers", workers) as (process, port):
        url = f"http://127.0.0.1:{port}"
        assert httpx.get(f"{url}/readyz").status_code == 200
        head = "POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=30) as under_way:
            under_way.sendall(f"{head}Content-Length: {len(QUESTION)}\r\n\r\n".encode() + QUESTION[:9])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            reported: list[httpx.Response] = []

            def draining() -> bool:
                reported.append(httpx.get(f"{url}/readyz"))
                return reported[-1].status_code == 503

            _until(2, draining)  # of two workers one may hear it first
            assert reported[-1].json()["code"] == "service.stopping"
            assert httpx.get(f"{url}/healthz").status_code == 200
            answered = httpx.post(
                f"{url}/v1/predictions", content=QUESTION, headers={"Content-Type": "application/json"}
            )
            assert answered.status_code == 200, "who has not heard yet is answered"
            took_s = _until(DRAIN_S + 5, lambda: _refused(port))
            assert took_s > 0.5, "it went on to take connections while it drained"
            assert process.poll() is None, "it waits for the request under way"
            under_way.sendall(QUESTION[9:])
            answer = b""
            while part := under_way.recv(65536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"throughput_ratio"' in answer
        assert process.wait(30) == 0
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert re.search(r"route=/readyz path=/readyz status=503 code=service\.stopping ", log)
