"""The protocol between the two ends of a probe: JSON objects, one per line, of limited length, and binary blocks."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping
from typing import Any

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
