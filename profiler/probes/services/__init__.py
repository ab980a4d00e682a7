"""The responder's services for probes: one module per service, found by its name, with `serve(served)`.

A service runs in a process of its own, which is killed when its client goes away or its time is over: it may block
anywhere, and needs no clean-up beyond closing what it opened. It also ends by itself when the client closes the
session, because a responder that was killed can no longer end it. It sends datagrams only to the address of its control
connection, and only after that address sent the session's token (`ServedSession.meet`), so that no client can aim a
responder at a third machine.
"""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import select
import socket
from collections.abc import Callable, Mapping
from typing import Any

from profiler.probes.framing import TOKEN_BYTES, ControlChannel, FramingError, fill

_MEET_S = 10.0


class ServedSession:
    """The far end's view of one session: the control connection, what was asked for, and the token of the session."""

    def __init__(self, channel: ControlChannel, parameters: Mapping[str, Any], token: bytes) -> None:
        self.channel = channel
        self.parameters = parameters  # from outside: read it with framing.whole and framing.number
        self.token = token
        self._family = channel.socket.family
        self._local: str = channel.socket.getsockname()[0]
        self._peer: str = channel.socket.getpeername()[0]

    def ready(self, port: int = 0, **further: Any) -> None:
        """Tell the client that the service waits for it at `port`; check the parameters before."""
        self.channel.send({"ok": True, "token": self.token.hex(), "port": port, **further})

    def left(self, wait_s: float = 0.0) -> bool:
        """Whether the client closes the session, or sends something, within `wait_s`."""
        return bool(select.select([self.channel.socket], [], [], wait_s)[0])

    def listener(self, prepare: Callable[[socket.socket], None] | None = None, backlog: int = 64) -> socket.socket:
        """A listening TCP socket on a free port of the control connection's address; `prepare` sets socket options."""
        listener = socket.socket(self._family, socket.SOCK_STREAM)
        if prepare:
            prepare(listener)
        listener.bind((self._local, 0))
        listener.listen(backlog)
        return listener

    def accept(self, listener: socket.socket, timeout_s: float = _MEET_S) -> socket.socket:
        """The next data connection of this session: others, and those without the token, are closed unanswered.

        FramingError when none comes in time.
        """
        listener.settimeout(timeout_s)
        while True:
            try:
                connection, address = listener.accept()
            except OSError as error:
                raise FramingError(f"no data connection came ({error.strerror or 'too late'})") from None
            connection.settimeout(timeout_s)
            token = bytearray(TOKEN_BYTES)
            with contextlib.suppress(OSError):
                if address[0] == self._peer and fill(connection, memoryview(token)) and token == self.token:
                    return connection
            connection.close()

    def datagrams(self, prepare: Callable[[socket.socket], None] | None = None) -> socket.socket:
        """A UDP socket on a free port of the control connection's address; `prepare` sets socket options."""
        datagrams = socket.socket(self._family, socket.SOCK_DGRAM)
        if prepare:
            prepare(datagrams)
        datagrams.bind((self._local, 0))
        return datagrams

    def meet(self, datagrams: socket.socket, timeout_s: float = _MEET_S) -> None:
        """Wait for the token from the client's address, answer it, and connect to where it came from.

        From then on the kernel drops what comes from elsewhere. FramingError when it does not come in time.
        """
        datagrams.settimeout(timeout_s)
        while True:
            try:
                token, address = datagrams.recvfrom(2 * TOKEN_BYTES)
            except OSError as error:
                raise FramingError(f"no datagram came ({error.strerror or 'too late'})") from None
            if address[0] == self._peer and token == self.token:
                datagrams.connect(address)
                datagrams.send(self.token)
                datagrams.settimeout(None)
                return


def find(name: str) -> Callable[[ServedSession], None]:
    """The service of this name; FramingError when there is none."""
    module = name.replace("-", "_") if isinstance(name, str) else ""
    if module not in names():
        raise FramingError("this responder has no such service: is it of another version?")
    serve: Callable[[ServedSession], None] = importlib.import_module(f"{__name__}.{module}").serve
    return serve


def names() -> frozenset[str]:
    """Modules of this folder, which are the services."""
    return frozenset(module.name for module in pkgutil.iter_modules(__path__))
