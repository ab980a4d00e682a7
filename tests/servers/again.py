"""A service that is started again and again, each time a process of its own, without importing itself each time."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.servers.running import START_S, as_child

_PR_SET_PDEATHSIG = 1  # prctl(2)


class Again:
    """As `running.Running`, for `cotenant` with these arguments; `close` ends the parent of its processes, too.

    Starting takes a tenth of the time: what is killed is as real, only its modules are those of its parent (fork(2)).
    """

    def __init__(
        self, arguments: Sequence[str], ready: Callable[[], bool], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = log
        self._ready = ready
        self._pid: int | None = None
        with log.open("ab") as out:
            self._parent = subprocess.Popen(
                [*as_child(False), sys.executable, "-m", "tests.servers.again", json.dumps(list(arguments))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                text=True,
                cwd=Path(__file__).parents[2],
                env={**os.environ, **environment},
            )

    def start(self) -> None:
        """Raises RuntimeError with the end of its log when it is not ready in time."""
        assert self._parent.stdin
        self._parent.stdin.write("start\n")
        self._parent.stdin.flush()
        self._pid = int(self._told())
        deadline = time.monotonic() + START_S
        while not self._ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"it did not start: {self._said()}")
            time.sleep(0.005)

    def stop(self, by: signal.Signals | None = None) -> None:
        """Harmless when it does not run."""
        if self._pid is not None:
            os.kill(self._pid, by or signal.SIGTERM)
            assert self._told() == "gone"
            self._pid = None

    def close(self) -> None:
        """End its processes and their parent."""
        self.stop(signal.SIGKILL)
        self._parent.communicate()

    def _told(self) -> str:
        assert self._parent.stdout
        line = self._parent.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"its parent ended: {self._said()}")
        return line

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


def _main() -> None:
    """For every line of standard input one process, whose id is told first, and then its end."""
    import api.serving  # noqa: F401 - the command would import it only now
    from api.cli import main

    sys.argv = ["cotenant", *json.loads(sys.argv[1])]
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            try:
                main()
            finally:
                os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    _main()
