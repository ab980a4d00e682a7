"""The service as processes: a single one, or several workers on one socket, which their parent watches and stops."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from advisor.service import Advisor
from advisor.settings import Settings
from api import nothing_collected, telemetry
from api.app import create_app
from api.html import Demonstration
from api.http.connections import GuardedHTTP, most_connections
from api.telemetry import counting

GRACE_S = 30  # for requests under way when the service is stopping
SPARE_S = 15  # after GRACE_S, for the database to close, before a worker is killed
KEEP_ALIVE_S = 75  # longer than proxies keep idle connections, so that they close them and not we
STEADY_S = 5.0  # a worker that ends sooner is not replaced at once
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A question computes for milliseconds; the loop and threads that store answers need the interpreter for microseconds.
# With Python's 5 ms a few such steps made even remembered answers late.
SWITCH_S = 0.0005
# Python searches all objects for cycles each time that a quarter more have been made, and answers nothing meanwhile.
# With libraries, model and caches that took 0.13 s, and 0.2-0.4 s under load. So the objects of the start are frozen,
# and the others are searched less often than by default (700, 10, 10).
COLLECT = (20_000, 20, 50)
# glibc gives threads that allocate at once heaps of their own, up to eight for each CPU, and what is freed in one is
# not used by another. Threads that wait for Python's lock allocate one after the other: two heaps are enough for all.
HEAPS = 2
_M_ARENA_MAX = -8  # mallopt(3)
log = logging.getLogger("cotenant.workers")


class Server(uvicorn.Server):
    """Calls `listens` once it listens; when stopping, it answers on for `drain_s` seconds, in which it is not ready."""

    def __init__(self, app: FastAPI, settings: Settings, listens: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=GuardedHTTP,
                log_config=None,
                access_log=False,  # api.telemetry writes the access log
                ws="none",
                lifespan="off",
                server_header=False,
                proxy_headers=bool(settings.trusted_proxies.strip()),  # without proxies no header names the client
                forwarded_allow_ips=settings.trusted_proxies,
                # The rest of a long body is read within its request, and asyncio hands the context of that (deadline,
                # caller) to every later request of the connection: https://github.com/python/cpython/issues/140947
                reset_contextvars=True,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        self._state, self._drain_s, self._listens = app.state, settings.drain_s, listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then call `listens`."""
        await super().startup(sockets)
        self._listens()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Be not ready for a while, then take no more connections, finish the requests under way, and end."""
        self._state.draining = True
        await asyncio.sleep(self._drain_s)
        await super().shutdown(sockets)


def _few_heaps() -> None:
    """Before threads begin; nothing where the C library is another one, or the operator has said how many."""
    if "MALLOC_ARENA_MAX" in os.environ:
        return
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)


def serve(
    settings: Settings, listener: socket.socket, listens: Callable[[], None], shown: Demonstration | None = None
) -> None:
    """Answer on a bound socket until SIGTERM or SIGINT; `listens` is called once it listens.

    Raises what an Advisor raises on a database that it cannot use.
    """
    GuardedHTTP.most = most_connections(settings.max_connections)
    sys.setswitchinterval(SWITCH_S)
    _few_heaps()
    clock = {} if shown is None else {"clock": shown.clock}
    with listener, nothing_collected(), Advisor(settings, **clock) as advisor:
        advisor.cloud.ready()  # a database of another version fails here, not at the first request
        advisor.warm_up()
        app = create_app(advisor, settings, "" if shown is None else shown.words)
        gc.freeze()  # with a megabyte of cycles that no object needs: to find them takes a tenth of the start
        gc.set_threshold(*COLLECT)
        gc.enable()
        server = Server(app, settings, listens)
        # uvicorn stops gracefully, then raises the signal again: that must not kill us before the database closes. A
        # signal that comes before uvicorn handles signals must reach it, too, or the service would not stop.
        for number in SIGNALS:
            signal.signal(number, server.handle_exit)
        server.run(sockets=[listener])
        app.state.lanes.close()


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    listens: Event
    began: float = field(default_factory=time.monotonic)

    @property
    def number(self) -> int:
        return self.process.pid or 0


def serve_with_workers(settings: Settings, listener: socket.socket, number: int, listen: Callable[[], None]) -> int:
    """Let `number` processes answer on one bound socket; a worker that dies is replaced. Returns the exit code.

    `listen` is called once all of them listen. Workers share only the database and the metrics: a limit that is kept in
    memory holds for each of them.
    """
    with Advisor(settings) as advisor:
        advisor.cloud.ready()
    with tempfile.TemporaryDirectory(prefix="cotenant-metrics-") as folder, listener:
        counting.share(Path(folder))
        return _Workers(settings, listener, number).run(listen)


class _Workers:
    def __init__(self, settings: Settings, listener: socket.socket, number: int) -> None:
        self._settings = settings
        self._listener = listener
        self._spawn = multiprocessing.get_context("spawn")
        self._stopping = False
        self._workers: list[_Worker] = []
        for signal_number in SIGNALS:
            signal.signal(signal_number, self._stop)
        for _ in range(number):
            if not self._stopping:
                self._workers.append(self._start())

    def run(self, listen: Callable[[], None]) -> int:
        started = self._all_listen()
        if not started:
            self._stop()
        if not self._stopping:
            listen()
        while not self._stopping:
            wait([worker.process.sentinel for worker in self._workers], timeout=1.0)
            self._replace_the_dead()
        self._listener.close()  # else it would take further connections that are never answered
        self._end()
        return 0 if started else 1

    def _end(self) -> None:
        """Stop all workers, also one that was being started when the signal came, and wait for them."""
        self._tell_to_end()
        ends = time.monotonic() + self._settings.drain_s + GRACE_S + SPARE_S
        for worker in self._workers:
            worker.process.join(max(ends - time.monotonic(), 0.0))
            if worker.process.is_alive():
                log.error("worker %d did not end; it is killed", worker.number)
                worker.process.kill()
                worker.process.join()

    def _start(self) -> _Worker:
        listens = self._spawn.Event()
        process = self._spawn.Process(target=_work, args=(self._settings, self._listener, listens), daemon=False)
        process.start()
        return _Worker(process, listens)

    def _all_listen(self) -> bool:
        for worker in self._workers:
            while not worker.listens.wait(0.05):
                if self._stopping:
                    return True
                if not worker.process.is_alive():
                    exit_code = worker.process.exitcode
                    log.error("worker %d ended with exit code %s before it listened", worker.number, exit_code)
                    return False
        return True

    def _replace_the_dead(self) -> None:
        for at, worker in enumerate(self._workers):
            if self._stopping or worker.process.is_alive():
                continue
            exit_code = worker.process.exitcode
            log.error("worker %d ended with exit code %s; another takes its place", worker.number, exit_code)
            counting.worker_gone(worker.number)
            if time.monotonic() - worker.began < STEADY_S:
                time.sleep(1.0)
            self._workers[at] = self._start()

    def _stop(self, *_: object) -> None:
        self._stopping = True
        self._tell_to_end()

    def _tell_to_end(self) -> None:
        for worker in self._workers:
            if worker.process.is_alive():
                worker.process.terminate()


def _work(settings: Settings, listener: socket.socket, listens: Event) -> None:
    """A worker; it ends with its parent, and is not in the terminal's group, because the parent passes signals on."""
    os.setpgrp()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    telemetry.start_logging(settings.log_level, settings.log_format)
    serve(settings, listener, listens.set)


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
