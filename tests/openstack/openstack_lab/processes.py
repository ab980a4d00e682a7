"""Programs that were started, each with a log of its own; they end by their ids, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

GRACE_S = 20.0


class Processes:
    """Started programs by name; each leads a session, so that its children end with it."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: str | None = None,
    ) -> None:
        """Start a program; its output goes to `logs`/NAME.out. `user` None = who runs this."""
        with self.log(name).open("ab") as out:
            self._running[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
                user=user,
            )

    def log(self, name: str) -> Path:
        """Where a program's output goes."""
        return self.logs / f"{name}.out"

    @property
    def names(self) -> tuple[str, ...]:
        """What runs, in the order of its start."""
        return tuple(self._running)

    def check(self) -> None:
        """RuntimeError when a program has ended by itself, with the last lines of its log."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}: {self.tail(name)}")

    def tail(self, name: str, lines: int = 15) -> str:
        return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])

    def stop(self, name: str) -> None:
        """SIGTERM to the program, SIGKILL to whatever of its session is left after the grace."""
        process = self._running.pop(name)
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop_all(self) -> None:
        """The last one first."""
        for name in reversed(list(self._running)):
            self.stop(name)

    def wait_for(self, what: str, ready: Callable[[], bool], *, seconds: float = 180.0) -> None:
        """Until `ready`; RuntimeError when time is up or a program ended."""
        until = time.monotonic() + seconds
        while not ready():
            self.check()
            if time.monotonic() > until:
                raise RuntimeError(f"{what} did not come within {seconds:.0f} s")
            time.sleep(0.25)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that no program listens on now; held open together, so that they differ."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def listens(port: int) -> bool:
    """Whether a program takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(url: str) -> bool:
    """Whether an HTTP server says anything there."""
    try:
        with urllib.request.urlopen(url, timeout=5.0):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
