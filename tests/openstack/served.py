"""The real service as a process on loopback, with a database of its own, and the real command line."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PROGRAM = (sys.executable, "-c", "from api.cli import main; main()")
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Service:
    """A running service: its port, the folder that its database is in, and a client."""

    folder: Path
    port: int
    http: httpx.Client

    def put(self, path: str, body: object) -> None:
        """PUT, which must be taken."""
        self.http.put(path, json=body).raise_for_status()

    def get(self, path: str) -> Any:
        answer = self.http.get(path)
        answer.raise_for_status()
        return answer.json()

    def command(self, *words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """`cotenant WORDS` on the same database."""
        return command(self.folder, *words, env=env)

    def sync(self, env: Mapping[str, str], *words: str) -> dict[str, Any]:
        """`cotenant sync openstack --json`: what it says; its exit code must fit to that."""
        done = self.command("sync", "openstack", "--json", *words, env=env)
        assert done.stdout, done.stderr
        reported: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if reported["complete"] else 1), done.stderr
        return reported


def command(folder: Path, *words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`cotenant WORDS` on the database below a folder."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **env}
    return subprocess.run(
        (*PROGRAM, *words), cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@contextmanager
def serving(folder: Path, *, env: Mapping[str, str] | None = None, words: Sequence[str] = ()) -> Iterator[Service]:
    """A service with an empty database in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})}
    argv = (*PROGRAM, "serve", "--listen", "127.0.0.1:0", *words)
    with (
        (folder / "service.log").open("w+", encoding="utf-8") as log,
        subprocess.Popen(argv, cwd=folder, stderr=log, env=environment) as process,
    ):
        try:
            port = _port(process, folder / "service.log")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                yield Service(folder, port, client)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _port(process: subprocess.Popen[bytes], log: Path) -> int:
    for _ in range(600):
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8")):
            return int(found[1])
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(log.read_text(encoding="utf-8"))
