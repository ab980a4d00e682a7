"""The client of probe requests: many connections, each with one request on its way, in one process by epoll."""

from __future__ import annotations

import select
import socket
import struct
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from profiler.probes.base import ProbeError, Progress

_LOST_S = 5.0  # without any answer: the responder is gone, or the path is
_RESET = struct.pack("@ii", 1, 0)  # SO_LINGER: closed by a reset, or every port would wait for a minute in TIME_WAIT


@dataclass(slots=True)
class LoadResult:
    """Result of a run: its length in s, the time of each answer in s, and the CPU that the client used, in %."""

    seconds: float = 0.0
    took_s: array[float] = field(default_factory=lambda: array("d"))
    cpu_percent: float = 0.0

    @property
    def per_s(self) -> float:
        """Answers per second."""
        return len(self.took_s) / self.seconds if self.seconds else 0.0


@dataclass(slots=True)
class _PendingRequest:
    stream: socket.socket
    began: float
    missing: int


class RequestClient:
    """Keeps `threads` requests on their way; each answer is followed by the next request.

    With `reconnect`, every request has a connection of its own, and its time begins before it is connected.
    """

    def __init__(self, connect: Callable[[], socket.socket], threads: int, size: int, *, reconnect: bool) -> None:
        self._connect, self._size, self._reconnect = connect, size, reconnect
        self._request = bytes(size)
        self._poll = select.epoll()
        self._pending: dict[int, _PendingRequest] = {}
        self._threads = threads

    def run(self, seconds: float, progress: Progress, done: float = 0.0) -> LoadResult:
        """Send requests for this time; `done` is the initial progress. ProbeError when the responder goes away."""
        load = LoadResult()
        began = time.perf_counter()
        used = time.process_time()
        try:
            with progress.interruptible():
                for _ in range(self._threads):
                    self._open()
                began = time.perf_counter()
                used = time.process_time()
                self._loop(load, began, seconds, progress, done)
        except OSError as error:
            raise ProbeError(f"the responder does not answer any more ({error.strerror or 'too late'})") from None
        finally:
            load.seconds = time.perf_counter() - began
            load.cpu_percent = 100 * (time.process_time() - used) / max(load.seconds, 1e-9)
            for request in self._pending.values():
                request.stream.close()
            self._poll.close()
        return load

    def _loop(self, load: LoadResult, began: float, seconds: float, progress: Progress, done: float) -> None:
        clock, poll, pending = time.perf_counter, self._poll.poll, self._pending
        end, last_report = began + seconds, began
        while not progress.stopped:
            ready = poll(_LOST_S)
            now = clock()
            if now >= end:
                return
            if not ready:
                raise TimeoutError
            for descriptor, _ in ready:
                request = pending[descriptor]
                size = len(request.stream.recv(request.missing))
                if not size:
                    raise ConnectionResetError
                request.missing -= size
                if not request.missing:
                    load.took_s.append(clock() - request.began)
                    self._again(descriptor, request)
            if now - last_report > 0.5:
                last_report = now
                progress.update(done + now - began)

    def _again(self, descriptor: int, request: _PendingRequest) -> None:
        if self._reconnect:
            self._poll.unregister(descriptor)
            del self._pending[descriptor]
            request.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            request.stream.close()
            self._open()
            return
        request.missing, request.began = self._size, time.perf_counter()
        request.stream.sendall(self._request)

    def _open(self) -> None:
        began = time.perf_counter()
        stream = self._connect()
        stream.settimeout(_LOST_S)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._reconnect:
            began = time.perf_counter()
        stream.sendall(self._request)
        self._pending[stream.fileno()] = _PendingRequest(stream, began, self._size)
        self._poll.register(stream, select.EPOLLIN)
