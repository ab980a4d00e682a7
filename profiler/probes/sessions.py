"""Sessions of probes with their far end over TCP: frames of bounded size, who begins, who ends."""

from __future__ import annotations

import contextlib
import json
import math
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from profiler.observed import OWN_END
from profiler.probes.base import ProbeError

# The protocol between the two ends of a probe: JSON objects, one per line, of limited length, and binary blocks.

DEFAULT_PORT = 9406
VERSION = 1
TOKEN_BYTES = 16
SESSION_S = 2 * 3600.0  # the longest session: the paper's longest, 5000 pings at 10 a second, takes 500 s
MAX_LINE = 4096  # bytes
MAX_PAYLOAD = 64 << 20  # bytes: a million arrivals with their sizes are 12 MB


class FramingError(Exception):
    """The other end is gone or silent, or violates the protocol."""


class ControlChannel:
    """One control connection; both ends use it. Not for several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._rest = b""

    def send(self, document: Mapping[str, Any], payload: bytes | bytearray | memoryview = b"") -> None:
        """Send an object, and bytes after it; FramingError when the other end is gone."""
        if payload:
            document = {**document, "payload_bytes": len(payload)}
        line = json.dumps(document, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if len(line) > MAX_LINE or len(payload) > MAX_PAYLOAD:
            raise ValueError(f"a message of {len(line)} and {len(payload)} bytes is too long")
        try:
            self.socket.settimeout(30.0)
            self.socket.sendall(line)
            if payload:
                self.socket.sendall(payload)
        except OSError as error:
            raise FramingError(f"the other end is gone ({error.strerror or 'no answer'})") from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next object; FramingError when it does not come in time, is too long or is no object."""
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            if len(self._rest) > MAX_LINE:
                raise FramingError("the other end sends a line without end")
            self._rest += self._some(deadline, MAX_LINE)
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > MAX_LINE:
            raise FramingError("the other end sends too long a line")
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise FramingError("the other end does not speak this protocol")
        return document

    def receive_payload(self, document: Mapping[str, Any], timeout_s: float) -> bytes:
        """The bytes that come after an object; empty when it announces none."""
        length = document.get("payload_bytes", 0)
        if not isinstance(length, int) or isinstance(length, bool) or not 0 <= length <= MAX_PAYLOAD:
            raise FramingError("the other end announces a block of a wrong length")
        deadline = time.monotonic() + timeout_s
        whole = bytearray(self._rest[:length])
        self._rest = self._rest[length:]
        while len(whole) < length:
            whole += self._some(deadline, length - len(whole))
        return bytes(whole)

    def close(self) -> None:
        self.socket.close()

    def _some(self, deadline: float, most: int) -> bytes:
        try:
            self.socket.settimeout(max(deadline - time.monotonic(), 1e-3))  # 0 would mean not to wait at all
            data = self.socket.recv(min(most, 1 << 16))
        except TimeoutError:
            raise FramingError("the other end does not answer") from None
        except OSError as error:
            raise FramingError(f"the other end is gone ({error.strerror})") from None
        if not data:
            raise FramingError("the other end closed the connection")
        return data


def fill(stream: socket.socket, view: memoryview) -> bool:
    """Fill `view` from a stream; False where the stream ends before."""
    filled = 0
    while filled < len(view):
        size = stream.recv_into(view[filled:], len(view) - filled, socket.MSG_WAITALL)
        if not size:
            return False
        filled += size
    return True


def whole(document: Mapping[str, Any], name: str, default: int | None, least: int, most: int) -> int:
    """A whole number out of an object from outside; FramingError names what is wrong. `default` None: it must be
    there."""
    value = document.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise FramingError(f"{name} must be a whole number from {least} to {most}")
    return value


def number(document: Mapping[str, Any], name: str, default: float | None, least: float, most: float) -> float:
    """A number out of an object from outside; FramingError names what is wrong. `default` None: it must be there."""
    value = document.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise FramingError(f"{name} must be a number from {least:g} to {most:g}")
    if not math.isfinite(value):
        raise FramingError(f"{name} must be a finite number")
    return float(value)


LOOPBACK = "127.0.0.1"
_CONNECT_S = 5.0
_START_S = 20.0  # for a responder of our own: starting Python, on a host whose CPUs may be busy
_END_S = 5.0  # in which it ends its sessions
_MEET_S, _TRIES = 0.25, 40
# `-I`-proof: the child finds this package wherever this process found it, be that a checkout or one file.
_OWN = "import sys; sys.path[:] = sys.argv[1:]; from profiler.probes.responder import own; own()"


class Peer:
    """The far end. `port` None = a responder of our own on loopback, started when the first session is opened.

    Probes that need no responder there (ICMP) only use `host`.
    """

    def __init__(self, host: str = LOOPBACK, port: int | None = None) -> None:
        self.host = host
        self.own = port is None
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        return f"{self.host} {OWN_END}" if self.own else self.host

    @property
    def port(self) -> int:
        """Where its responder listens. Starts our own; ProbeError when that fails."""
        if self._port is None:
            self._child = subprocess.Popen(
                [sys.executable, "-c", _OWN, *sys.path],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._port = _printed_port(self._child)
        return self._port

    def close(self) -> None:
        """End our own responder and its sessions; it would end with this process anyway."""
        if self._child is not None:
            with self._child as child:  # closes its pipes and waits
                assert child.stdin is not None  # noqa: S101 - it is a pipe
                child.stdin.close()  # which ends it: one that is killed cannot end its sessions
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(_END_S)
                child.kill()
            self._child = None

    def address(self) -> tuple[socket.AddressFamily, Any]:
        """Family and address to use with sockets; ProbeError when the name has none."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.host, 0, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "no valid name"
            raise ProbeError(f"{self.host} has no address: {reason}") from None
        return family, address

    def open(self, service: str, parameters: Mapping[str, Any] | None = None) -> ProbeSession:
        """Ask the responder for a session of this service; use it in `with`. ProbeError when it refuses."""
        self.address()  # a clear error where the name has none
        try:
            # tries all addresses of a name: localhost is ::1, too, where the responder may not listen
            connection = socket.create_connection((self.host, self.port), _CONNECT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ProbeError(
                f"no responder answers at {self.host} port {self.port} ({error.strerror or 'silence'});"
                " start one there: cotenant-profiler probe serve --listen ADDRESS"
            ) from None
        return ProbeSession(self, ControlChannel(connection), service, parameters or {})


class ProbeSession:
    """One service that runs at the far end; closing the session ends it."""

    def __init__(self, peer: Peer, channel: ControlChannel, service: str, parameters: Mapping[str, Any]) -> None:
        self.peer = peer
        self._channel = channel
        hello = {"cotenant_probe": VERSION, "service": service, "parameters": dict(parameters)}
        try:
            self.welcome: Mapping[str, Any] = self._exchange(hello, _CONNECT_S)
            self.token, self.port = _welcome(self.welcome)
        except BaseException:
            channel.close()
            raise

    def __enter__(self) -> ProbeSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._channel.close()

    def ask(self, document: Mapping[str, Any], timeout_s: float = 30.0) -> tuple[dict[str, Any], bytes]:
        """Send a command to the service and wait for its answer and the bytes after it; ProbeError when none comes."""
        answer = self._exchange(document, timeout_s)
        try:
            return answer, self._channel.receive_payload(answer, timeout_s)
        except FramingError as error:
            raise self._error(error) from None

    def connect(self, prepare: Callable[[socket.socket], None] | None = None) -> socket.socket:
        """A data connection to the service; `prepare` sets socket options before it is connected."""
        connection = socket.socket(self._channel.socket.family, socket.SOCK_STREAM)
        try:
            if prepare:
                prepare(connection)
            connection.settimeout(_CONNECT_S)
            connection.connect(self.address())
            connection.sendall(self.token)
        except OSError as error:
            connection.close()
            raise self._error(error.strerror or "no answer") from None
        return connection

    def datagrams(self, prepare: Callable[[socket.socket], None] | None = None) -> socket.socket:
        """A UDP socket connected to the service, which has answered on it: the way there and back is open."""
        datagrams = socket.socket(self._channel.socket.family, socket.SOCK_DGRAM)
        try:
            if prepare:
                prepare(datagrams)
            datagrams.connect(self.address())
            datagrams.settimeout(_MEET_S)
            for _ in range(_TRIES):
                with contextlib.suppress(OSError):
                    datagrams.send(self.token)
                    if datagrams.recv(2 * TOKEN_BYTES) == self.token:
                        datagrams.settimeout(None)
                        return _emptied(datagrams)
        except OSError as error:
            datagrams.close()
            raise self._error(error.strerror or "no answer") from None
        except BaseException:
            datagrams.close()
            raise
        datagrams.close()
        raise ProbeError(f"{self.peer.host} is reached by TCP, and UDP to its port {self.port} is not answered")

    def address(self) -> Any:
        """Where the service is: the address of the control connection with its port. OSError when that is gone."""
        address = self._channel.socket.getpeername()
        return (address[0], self.port, *address[2:])

    def _exchange(self, document: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send an object and receive the answer; ProbeError when none comes, or when it is an error."""
        try:
            self._channel.send(document)
            answer = self._channel.receive(timeout_s)
        except FramingError as error:
            raise self._error(error) from None
        if "error" in answer:
            raise self._error(str(answer["error"])[:200])
        return answer

    def _error(self, reason: object) -> ProbeError:
        return ProbeError(f"the responder at {self.peer.host} port {self.peer.port}: {reason}")


def _welcome(answer: Mapping[str, Any]) -> tuple[bytes, int]:
    port = answer.get("port")
    try:
        token = bytes.fromhex(answer["token"])
    except (KeyError, TypeError, ValueError):
        token = b""
    if len(token) != TOKEN_BYTES or not isinstance(port, int) or not 0 <= port <= 65_535:
        raise ProbeError("the responder does not speak this protocol")
    return token, port


def _emptied(datagrams: socket.socket) -> socket.socket:
    """Throw away further answers, where the token was sent more than once."""
    datagrams.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            datagrams.recv(2 * TOKEN_BYTES)
    datagrams.setblocking(True)
    return datagrams


@contextlib.contextmanager
def far_end(to: tuple[str, int | None] | None) -> Iterator[Peer]:
    """The peer that was named, or this machine; a responder of our own ends with the block."""
    peer = Peer() if to is None else Peer(to[0], to[1] or DEFAULT_PORT)
    with contextlib.closing(peer):
        yield peer


def _printed_port(child: subprocess.Popen[bytes]) -> int:
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    ready, _, _ = select.select([child.stdout], [], [], _START_S)
    greeting = child.stdout.readline(16) if ready else b""
    if not greeting.strip().isdigit():
        raise ProbeError("a responder of our own could not be started; name one with --to")
    return int(greeting)
