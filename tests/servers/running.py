"""A real server for a test: a child that ends with the test, on a free port of loopback, as a user that may run it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.servers.forked import Forked

START_S = 120.0  # ten times what the slowest needs on a machine with nothing else to do
_KEEPERS: list[socket.socket] = []  # of the ports that were given away


class NotInstalled(Exception):  # noqa: N818 - reads as what it says
    """A program that the server needs is not here: the test that wanted it is skipped with this reason."""


class Running:
    """A server's process; `start` waits until `ready` says so, `stop` until it is gone.

    It dies with the thread that started it, even by kill -9 (prctl(2), PR_SET_PDEATHSIG), and runs as `nobody` when the
    test runs as root and `drop` is set: servers such as PostgreSQL refuse root. A program in Python may be `forked`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        ready: Callable[[], bool],
        log: Path,
        *,
        drop: bool,
        stop_by: signal.Signals = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        forked: bool = False,
    ) -> None:
        self._argv = [*argv] if forked else [*as_child(drop, stop_by), *argv]
        self._ready = ready
        self._stop_by = stop_by
        self._environment = {**os.environ, **(environment or {})}
        self._forked = forked
        self.log = log
        self.process: subprocess.Popen[bytes] | Forked | None = None

    def start(self) -> None:
        """Raises RuntimeError with the end of its log when it ends or is not ready in time."""
        if self._forked:
            self.process = Forked(*self._argv, environment=self._environment, log=self.log)
        else:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(self._argv, stdout=log, stderr=log, env=self._environment)
        deadline = time.monotonic() + START_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
                self.stop(signal.SIGKILL)
                raise RuntimeError(f"{self._argv} did not start: {said}")
            time.sleep(0.02)

    def stop(self, by: signal.Signals | None = None) -> None:
        """Harmless when it does not run."""
        if self.process is None:
            return
        with suppress(ProcessLookupError):
            self.process.send_signal(by or self._stop_by)
        try:
            self.process.wait(START_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def as_child(drop: bool, dies_by: signal.Signals = signal.SIGTERM) -> list[str]:
    """What to put before an argv list so that the program ends with its parent and runs as `nobody`, not as root."""
    argv = [found("setpriv"), "--pdeathsig", dies_by.name.removeprefix("SIG")]
    if drop and os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        argv += [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return argv


def found(program: str, *elsewhere: Path) -> str:
    """Where a program is, on PATH, in a folder for administrators' programs or `elsewhere`; else NotInstalled."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", *map(str, elsewhere)])
    where = shutil.which(program, path=path)
    if where is None:
        raise NotInstalled(f"{program} is not installed")
    return where


def own_folder(prefix: str) -> Path:
    """A new folder that `nobody` owns where the test is root; pytest's own cannot be entered by others."""
    folder = Path(tempfile.mkdtemp(prefix=f"cotenant-{prefix}-"))
    hand_over(folder)
    return folder


def hand_over(path: Path) -> None:
    """Give a file or folder to `nobody` where the test is root."""
    if os.geteuid() == 0:
        account = pwd.getpwnam("nobody")
        os.chown(path, account.pw_uid, account.pw_gid)


def free_port() -> int:
    """A port of 127.0.0.1 that no other process is given while this one lives.

    Its server may take seconds to begin, and ends between two starts. Until then, and meanwhile, a socket that never
    listens keeps the port: whoever asks for any port gets another, and the server, which names this one and reuses
    addresses as servers do (socket(7), SO_REUSEADDR), gets it all the same.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    _KEEPERS.append(keeper)
    return int(keeper.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a program takes connections on a port of 127.0.0.1."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
