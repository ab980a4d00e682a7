"""Answers requests of a set size with as much, on many TCP connections at once, one by one (epoll) in one process."""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from dataclasses import dataclass

from profiler.probes import framing
from profiler.probes.services import ServedSession

MOST_CONNECTIONS = 1024
MOST_BYTES = 65_536
_SEND_S = 5.0


@dataclass(slots=True)
class _Client:
    stream: socket.socket
    missing: int


def serve(served: ServedSession) -> None:
    """Parameter `size`: bytes of a request and of its answer. A command is answered by the CPU time used so far."""
    size = framing.whole(served.parameters, "size", 64, 1, MOST_BYTES)
    with served.listener(backlog=MOST_CONNECTIONS) as listener:
        served.ready(listener.getsockname()[1])
        _ResponseServer(served, listener, size).run()


class _ResponseServer:
    def __init__(self, served: ServedSession, listener: socket.socket, size: int) -> None:
        self._served, self._listener, self._size = served, listener, size
        self._answer = bytes(size)
        self._control = served.channel.socket.fileno()
        self._poll = select.epoll()
        self._clients: dict[int, _Client] = {}
        for descriptor in (listener.fileno(), self._control):
            self._poll.register(descriptor, select.EPOLLIN)

    def run(self) -> None:
        """Serve for as long as the session lasts."""
        listening = self._listener.fileno()
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == listening:
                    self._welcome()
                elif descriptor == self._control:
                    self._served.channel.receive(1.0)
                    self._served.channel.send({"cpu_s": time.process_time()})
                else:
                    self._serve(descriptor)

    def _welcome(self) -> None:
        with suppress(framing.FramingError):
            stream = self._served.accept(self._listener, 1.0)
            if len(self._clients) >= MOST_CONNECTIONS:
                stream.close()
                return
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[stream.fileno()] = _Client(stream, self._size)
            self._poll.register(stream, select.EPOLLIN)

    def _serve(self, descriptor: int) -> None:
        client = self._clients[descriptor]
        try:
            size = len(client.stream.recv(client.missing))
            client.missing -= size
            if not client.missing:
                client.missing = self._size
                _send_whole(client.stream, self._answer)
        except BlockingIOError:
            return
        except OSError:
            size = 0
        if not size:
            self._poll.unregister(descriptor)
            del self._clients[descriptor]
            client.stream.close()


def _send_whole(stream: socket.socket, answer: bytes) -> None:
    """Send all of it at once, or wait for the socket's buffer where that is smaller than the answer."""
    sent = 0
    with suppress(BlockingIOError):
        sent = stream.send(answer)
    if sent < len(answer):
        stream.settimeout(_SEND_S)
        stream.sendall(memoryview(answer)[sent:])
        stream.setblocking(False)
