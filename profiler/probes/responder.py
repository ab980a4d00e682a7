"""The responder: the far end of probes between two hosts; one process per session, limited in number and time."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from profiler.probes.base import ProbeError
from profiler.probes.services import ServedSession, find
from profiler.probes.sessions import SESSION_S, TOKEN_BYTES, VERSION, ControlChannel, FramingError

MOST_SESSIONS = 8
_HELLO_S = 5.0
_MEMORY = 1 << 30  # bytes of address space that a session may take
_TICK_MS = 1000


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    connection: socket.socket  # our copy, which shows when the client is gone
    deadline: float  # on the monotonic clock


class Responder:
    """Listens and starts a process per client; the process ends when the client disconnects."""

    def __init__(self, listen: tuple[str, int], until: int | None = None, most_s: float = SESSION_S) -> None:
        """Bind; ProbeError when that is not possible. Nothing is served before `run`.

        `until` is a pipe whose other end the owner of the responder holds: `run` ends when that is closed. No session
        lasts longer than `most_s`.
        """
        self._most_s = most_s
        family = socket.AF_INET6 if ":" in listen[0] else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind(listen)
            self._listener.listen(MOST_SESSIONS)
        except (OSError, TypeError, UnicodeError) as error:  # the latter two: a host name that cannot be encoded
            self._listener.close()
            reason = getattr(error, "strerror", None) or error
            where = f"{listen[0]} port {listen[1]}"
            raise ProbeError(f"cannot listen on {where} ({reason}); choose with --listen") from None
        self._listener.setblocking(False)
        self._wake, self._stop = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._listener, select.POLLIN)
        self._enders = {self._wake} if until is None else {self._wake, until}
        for descriptor in self._enders:
            self._poll.register(descriptor, select.POLLIN)
        self._children: dict[int, _Child] = {}  # by the descriptor of their connection

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, with the port that was really taken."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def stop(self) -> None:
        """End `run`; safe in signal handlers and from other threads."""
        os.write(self._stop, b"x")

    def run(self) -> None:
        """Serve until `stop`; then every session is ended."""
        try:
            while True:
                for descriptor, _ in self._poll.poll(_TICK_MS):
                    if descriptor in self._enders:
                        return
                    if descriptor == self._listener.fileno():
                        self._welcome()
                    elif descriptor in self._children:
                        self._end(descriptor)  # its client closed the connection
                self._end_finished()
        finally:
            for descriptor in list(self._children):
                self._end(descriptor)
            self._listener.close()
            os.close(self._wake)
            os.close(self._stop)

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # the client went away again
            return
        if len(self._children) >= MOST_SESSIONS:
            _refuse(connection, f"{MOST_SESSIONS} sessions run already")
            return
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or too many processes: running sessions go on
            _refuse(connection, f"no process for a session ({error.strerror})")
            return
        if pid == 0:
            self._serve(connection)
        self._children[connection.fileno()] = _Child(pid, connection, time.monotonic() + self._most_s)
        self._poll.register(connection, select.POLLRDHUP)

    def _end_finished(self) -> None:
        """Clean up after sessions that ended, and end those whose time is over."""
        for descriptor, child in list(self._children.items()):
            ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            if ended or time.monotonic() > child.deadline:
                self._end(descriptor)

    def _end(self, descriptor: int) -> None:
        child = self._children.pop(descriptor)
        self._poll.unregister(descriptor)
        child.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # with whatever a service started
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # it may not have got its group yet
        os.waitpid(child.pid, 0)

    def _serve(self, connection: socket.socket) -> None:
        """The process of a session; never returns."""
        code = 1
        try:
            os.setpgid(0, 0)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            self._listener.close()
            for child in self._children.values():
                child.connection.close()
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            _session(ControlChannel(connection))
            code = 0
        except BaseException as error:  # noqa: BLE001 - nothing catches it after this
            if not isinstance(error, OSError | FramingError):
                print(f"cotenant-profiler: a session ended: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
        finally:
            os._exit(code)


def _refuse(connection: socket.socket, reason: str) -> None:
    with contextlib.suppress(FramingError), contextlib.closing(ControlChannel(connection)) as channel:
        channel.send({"error": reason})


def _session(channel: ControlChannel) -> None:
    channel.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        hello = channel.receive(_HELLO_S)
        if hello.get("cotenant_probe") != VERSION:
            raise FramingError(f"this responder speaks version {VERSION} of the protocol")  # noqa: TRY301 - answered below
        parameters: Any = hello.get("parameters", {})
        if not isinstance(parameters, dict):
            raise FramingError("parameters must be an object")  # noqa: TRY301
        find(hello.get("service", ""))(ServedSession(channel, parameters, secrets.token_bytes(TOKEN_BYTES)))
    except FramingError as error:
        channel.send({"error": str(error)})


def own() -> None:
    """A responder on a free loopback port for one probe: prints the port, and ends when its standard input closes."""
    responder = Responder(("127.0.0.1", 0), until=sys.stdin.fileno())
    signal.signal(signal.SIGTERM, lambda _number, _frame: responder.stop())
    sys.stdout.write(f"{responder.address[1]}\n")
    sys.stdout.flush()
    responder.run()
