"""Delivers finished windows to the server: one thread encodes and spools them, another one sends them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from profiler.agent.announcement import Announcer
from profiler.agent.http_client import PLAIN_VARIABLE, ServerConnection, ServerUrl, check_token, may_carry_token
from profiler.agent.log import Log
from profiler.agent.push import Pusher, PushStatus
from profiler.agent.spool import Spool, SpoolStatus, batch_of
from profiler.collectors.windows import MetricWindow
from profiler.files import read_secret

_RETRY_S = 5.0  # after a write that the disk refused
TOKEN_VARIABLE = "COTENANT_TOKEN"  # noqa: S105 - the name of the variable, not a token


class PushToken:
    """The bearer token: from a file that is read before every post, so that it can be renewed, or the environment."""

    def __init__(self, file: Path | None, server: ServerUrl) -> None:
        """Read it once. ValueError is one sentence: no token in the file, or a server that must not get it."""
        self._file = file
        self._fixed = os.environ.get(TOKEN_VARIABLE) if file is None else None
        if self() is not None and not may_carry_token(server):
            raise ValueError(
                f"the token is not sent to {server}: use https, a server on this machine, or {PLAIN_VARIABLE}=1 where "
                "no other machine can listen"
            )

    def __call__(self) -> str | None:
        if self._file is not None:
            try:
                text = read_secret(self._file)
            except ValueError as error:
                raise ValueError(f"token file {error}") from None
            return check_token(text)
        return check_token(self._fixed) if self._fixed else None


class Delivery:
    """Takes windows from the agent without blocking it, and stores and sends them in threads of its own."""

    def __init__(self, spool: Spool, wire: ServerConnection, log: Log, announcer: Announcer | None = None) -> None:
        self._spool = spool
        self._log = log
        self._pusher = Pusher(spool, wire, log, announcer=announcer)
        self._new = threading.Event()
        self._ending = False
        self._writer = threading.Thread(target=self._write, name="spool", daemon=True)
        self._pusher.start()
        self._writer.start()

    def deliver(self, window: MetricWindow) -> None:
        """Take a window; quick, whatever disk and server do."""
        try:
            self._spool.put(batch_of(window))
        except (ValueError, OverflowError, OSError) as error:  # the wall clock is far outside what dates can be
            self._log.warn("window_lost", error=f"its time {window.end_s} is not a date: {error}")
        self._new.set()

    def status(self) -> tuple[SpoolStatus, PushStatus]:
        return self._spool.status(), self._pusher.status()

    def close(self, timeout_s: float) -> None:
        """Write what is in memory, stop sending, leave the spool to the next agent."""
        self._ending = True
        self._new.set()
        self._writer.join(timeout_s)
        self._pusher.stop(timeout_s)
        self._spool.close()

    def _write(self) -> None:
        stored = True
        while True:
            self._new.wait(None if stored else _RETRY_S)
            self._new.clear()
            ending = self._ending
            stored = self._spool.store()
            self._pusher.wake()
            if ending:
                return
