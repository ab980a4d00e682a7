"""A running service whose clock goes faster: a day passes in some minutes. All else is as users start it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.errors import RunError
from profiler.agent.http_client import ANNOUNCE, PATH, HttpClient, HttpError, parse_url
from research.arena.evenings import VCPUS, DailyContainer

BEGIN = datetime(2026, 11, 2, tzinfo=UTC)  # a Monday
_READY_S = 60.0
_QUICK, _QUICK_S = 5, 0.3  # so many answers in a row in so few seconds
_CLOCK = "clock.json"


class FastService:
    """Context manager: a service on this machine with its database in `folder`, where it stays.

    With `copy` it goes on from what is in the folder, and changes nothing there.
    """

    def __init__(self, folder: Path, *, day_s: float, copy: bool = False) -> None:
        self._folder = folder
        self._faster = 86_400 / day_s
        self._copy = copy
        self._process: subprocess.Popen[bytes] | None = None
        self._at = (0.0, 0.0)  # epoch time of its day at a time of the monotonic clock

    def __enter__(self) -> FastService:
        self._stack = contextlib.ExitStack()
        folder, begin_s = self._folder, BEGIN.timestamp()
        if self._copy:
            folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-newcomers-")), "state")
            shutil.copytree(self._folder, folder)
            begin_s = json.loads((folder / _CLOCK).read_text("utf-8"))
        folder.mkdir(parents=True, exist_ok=True)
        self._here = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        self._listen = listen
        self._client = HttpClient(parse_url(f"http://{listen}"), lambda: None, "newcomers")
        self._at = begin_s, time.monotonic()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("COTENANT_")},
            "COTENANT_DATABASE": f"sqlite:///{folder}/service.sqlite3", "COTENANT_STATE_DIR": str(folder),
            "COTENANT_LOG_LEVEL": "warning",
        }  # fmt: skip
        clock = [repr(one) for one in (*self._at, self._faster)]
        with (folder / "service.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.fast_service", listen, *clock],
                env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()

    def pause(self) -> None:
        """Stop the service where it is: it uses no CPU from now on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End the service by SIGTERM; harmless when called twice."""
        process, self._process = self._process, None
        if process is None:
            return
        (self._here / _CLOCK).write_text(json.dumps(self.clock()), "utf-8")
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def clock(self) -> float:
        """Epoch time of its day, in seconds."""
        return self._at[0] + self._faster * (time.monotonic() - self._at[1])

    def announce(self, document: bytes) -> None:
        """Tell what an agent says of its host."""
        self._post(ANNOUNCE, document)

    def push(self, samples: Sequence[Mapping[str, Any]]) -> None:
        """Send the samples of a host."""
        if samples:
            done = self._post(PATH, json.dumps({"samples": samples}).encode())
            if done["dropped"]:
                raise RunError(f"the service drops samples: {done['reasons'][:2]}")

    def where(self, new_vm: DailyContainer) -> int:
        """The number of the host that the service puts first for a new VM of which only name and size are known."""
        instance = {"id": new_vm.name, "vcpus": VCPUS, "memory_mb": new_vm.memory_mb}
        answer = self._post("/v1/placements", json.dumps({"instance": instance, "limit": 1}).encode())
        if not answer["candidates"]:
            raise RunError(f"no host has room for {new_vm.name}: {answer}"[:500])
        return int(answer["candidates"][0]["host"][1:])

    def _post(self, path: str, body: bytes) -> Any:
        try:
            answer = self._client.post(body, path)
        except HttpError as error:
            raise RunError(f"the service does not answer: {error}") from None
        if not 200 <= answer.status < 300:
            raise RunError(f"the service answers {answer.status} to {path}: {answer.body[:300]!r}")
        return json.loads(answer.body)

    def _wait(self) -> None:
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            if self._process is None or self._process.poll() is not None:
                raise RunError(f"the service ended: {(self._here / 'service.log').read_text('utf-8')[-500:]}")
            try:
                asked = http.client.HTTPConnection(self._listen, timeout=5)
                asked.request("GET", "/readyz")
                answer = asked.getresponse()
                answer.read()
                asked.close()
                if answer.status == 200:
                    break
            except (http.client.HTTPException, OSError):
                pass
            time.sleep(0.2)
        else:
            raise RunError("the service did not begin")
        if self._copy:
            self._warm_up()

    def _warm_up(self) -> None:
        """Ask until answers come quickly: what is compiled at the beginning is not part of the evening."""
        new = {"id": "warm-up", "vcpus": 1, "memory_mb": 1.0}
        body = json.dumps({"instance": new, "dry_run": True, "limit": 1}).encode()
        until, quick = time.monotonic() + _READY_S, 0
        while quick < _QUICK and time.monotonic() < until:
            begin = time.monotonic()
            self._post("/v1/placements", body)
            quick = quick + 1 if time.monotonic() - begin < _QUICK_S else 0
            time.sleep(0.2)
