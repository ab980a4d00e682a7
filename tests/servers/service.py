"""The service as users start it: `cotenant serve` as a process of its own on a port of its own."""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.servers.running import Running, free_port

COTENANT = Path(sys.executable).with_name("cotenant")


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (by name in lower case) and body of an answer; the body is None where it is not JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Service:
    """A service that is not started yet; `state` is its folder and `more` are settings without their prefix.

    A `forked` one starts in a tenth of the time (`forked.Forked`).
    """

    def __init__(
        self, database: str, state: Path, *arguments: str, port: int | None = None, forked: bool = False, **more: str
    ) -> None:
        self.database = database
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {
            "COTENANT_DATABASE": database,  # not on the command line: it may hold a password
            "COTENANT_STATE_DIR": str(state),
            **{f"COTENANT_{name.upper()}": value for name, value in more.items()},
        }
        argv = [str(COTENANT), "serve", "--listen", f"127.0.0.1:{self.port}", *arguments]
        log = state / f"serve-{self.port}.log"
        self.running = Running(argv, self._listens, log, drop=False, environment=environment, forked=forked)
        self._former_log = 0

    def start(self) -> Service:
        """Wait until all workers listen: the first may answer earlier, and one that is killed before ends them all."""
        log = self.running.log
        self._former_log = log.stat().st_size if log.exists() else 0
        self.running.start()
        return self

    def kill(self) -> None:
        """By kill -9."""
        self.running.stop(signal.SIGKILL)

    def ask(self, method: str, path: str, body: Any = None, *, timeout: float = 30.0) -> Answer:
        """Ask; OSError when no server answers."""
        return ask(f"{self.url}{path}", method, body, timeout=timeout)

    def _listens(self) -> bool:
        with suppress(OSError):  # also of a log that a forked one has not begun
            announced = b"Cotenant listens on " in self.running.log.read_bytes()[self._former_log :]
            return announced and self.ask("GET", "/healthz", timeout=2).status == 200
        return False


def ask(url: str, method: str = "GET", body: Any = None, *, timeout: float = 30.0) -> Answer:
    """One request on a connection of its own; OSError when no server answers, or not to the end."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        try:
            answer = urllib.request.urlopen(request, timeout=timeout)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            return _read(answer.status, dict(answer.headers), answer.read())
    except HTTPException as error:
        raise ConnectionError(f"half an answer: {error!r}") from error


def _read(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    headers = {name.lower(): value for name, value in headers.items()}
    with suppress(ValueError):
        return Answer(status, headers, json.loads(body))
    return Answer(status, headers, None)
