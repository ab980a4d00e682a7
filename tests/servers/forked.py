"""Python programs as processes of their own, forked from one that has imported Cotenant, which takes over a second."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TextIO

_PR_SET_PDEATHSIG = 1  # prctl(2)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.servers.preloaded"])


class Forked:
    """A process that runs a Python file as `python FILE …` would, but for the modules that it finds imported.

    It has the methods of `subprocess.Popen` that tests use, ends with the test process by kill -9, and reads nothing.
    What it prints is `stdout`, or goes with its errors to the file `log`.
    """

    def __init__(
        self,
        *argv: str | Path,
        folder: Path | None = None,
        environment: Mapping[str, str] = os.environ,
        log: Path | None = None,
    ) -> None:
        readable, writable = _CONTEXT.Pipe(duplex=False)
        words = [str(word) for word in argv]
        self._process = _CONTEXT.Process(
            target=_run, args=(words, str(folder or Path.cwd()), dict(environment), writable, log and str(log))
        )
        self._process.start()
        writable.close()
        self.stdout: TextIO = os.fdopen(os.dup(readable.fileno()), encoding="utf-8")
        readable.close()
        if log is not None:
            self.stdout.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """As in `subprocess.Popen`; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; TimeoutExpired when it does not end in time."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> str:
        """What it still prints until it ends; TimeoutExpired when it does not end in time after that."""
        printed = "" if self.stdout.closed else self.stdout.read()
        self.stdout.close()
        self.wait(timeout)
        return printed

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(argv: list[str], folder: str, environment: Mapping[str, str], printed: Connection, log: str | None) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = printed.fileno() if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(out, 1)
    if log is not None:
        os.dup2(out, 2)
    printed.close()
    sys.argv = argv
    sys.path[0] = str(Path(argv[0]).parent)
    runpy.run_path(argv[0], run_name="__main__")
