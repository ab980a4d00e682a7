"""The wire between the lab and the agent in Dom0: commands out, results back, one line of JSON each."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_GRACE_S = 60.0  # what an answer may take longer than its command: an emulated machine on a busy host stalls


class ChannelError(Exception):
    """Dom0 does not answer or went away."""


@dataclass(frozen=True, slots=True)
class Done:
    """A command that ended; `code` None = it took too long or could not be started."""

    argv: tuple[str, ...]
    code: int | None
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")

    def checked(self) -> Done:
        """This, or ChannelError with the command's own words when it failed."""
        if self.code != 0:
            raise ChannelError(f"{' '.join(self.argv)} failed with {self.code}: {self.errors.strip()[-2000:]}")
        return self


@dataclass(frozen=True, slots=True)
class Order:
    """A command under way in Dom0."""

    number: int
    argv: tuple[str, ...]
    timeout_s: float


class Channel:
    """Commands in Dom0 through a stream socket; several may be under way."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._unread = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the agent's greeting; ChannelError when it does not come."""
        self._answer(0, timeout_s)

    def start(self, argv: Sequence[str], *, given: bytes = b"", folder: str = "/", timeout_s: float = 60.0) -> Order:
        """Start a command with `given` as its standard input; it is killed after `timeout_s`."""
        self._last += 1
        order = {
            "id": self._last, "argv": list(argv), "input": base64.b64encode(given).decode(), "folder": folder,
            "timeout_s": timeout_s,
        }  # fmt: skip
        try:
            self._wire.settimeout(_GRACE_S)
            self._wire.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise ChannelError(f"Dom0 takes no orders: {error}") from None
        return Order(self._last, tuple(argv), timeout_s)

    def wait(self, order: Order) -> Done:
        """Wait for a command that was started."""
        answer = self._answer(order.number, order.timeout_s + _GRACE_S)
        output, errors = base64.b64decode(answer["output"]), base64.b64decode(answer["errors"])
        return Done(order.argv, answer["code"], output, errors.decode("utf-8", "replace"))

    def run(self, argv: Sequence[str], *, given: bytes = b"", folder: str = "/", timeout_s: float = 60.0) -> Done:
        """Run one command to its end."""
        return self.wait(self.start(argv, given=given, folder=folder, timeout_s=timeout_s))

    def _answer(self, number: int, timeout_s: float) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while number not in self._answers:
            line = self._line(end)
            answer = json.loads(line)
            self._answers[answer["id"]] = answer
        return self._answers.pop(number)

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._unread:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise ChannelError("Dom0 gave no answer in time")
            self._wire.settimeout(remaining)
            try:
                received = self._wire.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                raise ChannelError(f"Dom0 went away: {error}") from None
            if not received:
                raise ChannelError("Dom0 went away")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line
