"""The wire between the lab and the agent in Dom0: commands out, results back, one line of JSON each."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lab.errors import RunError

_TRIES = 4  # of a command that aborts
_PIECE = 16384  # bytes of a file that are fetched at once
_PIECE_TRIES = 5
_PIECE_S = 20.0
_GRACE_S = 60.0  # that an answer may take longer than its command: an emulated machine on a busy host stalls


class Dom0Error(RunError):
    """Dom0 does not answer, went away, or refused."""


class GarbledError(Dom0Error):
    """What arrived is not a line of the agent's."""


@dataclass(frozen=True, slots=True)
class Dom0Answer:
    """How a command ended; `code` None = it took too long or could not be started."""

    argv: tuple[str, ...]
    code: int | None
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")

    def checked(self) -> Dom0Answer:
        """The same; Dom0Error with the command's own words when it failed."""
        if self.code != 0:
            raise Dom0Error(f"{' '.join(self.argv)} failed with {self.code}: {self.errors.strip()[-2000:]}")
        return self


@dataclass(frozen=True, slots=True)
class Dom0Order:
    """A command under way in Dom0."""

    number: int
    argv: tuple[str, ...]
    timeout_s: float


class Dom0Channel:
    """Orders to the agent in Dom0 through a stream socket; several commands may be under way."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._unread = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the agent's greeting; Dom0Error when it does not come."""
        self._answer(0, timeout_s)

    def start(
        self, argv: Sequence[str], *, stdin: bytes = b"", folder: str = "/", timeout_s: float = 60.0
    ) -> Dom0Order:
        """Start a command with `stdin` as its standard input; it is killed after `timeout_s`."""
        text = base64.b64encode(stdin).decode()
        number = self._send(argv=list(argv), input=text, folder=folder, timeout_s=timeout_s)
        return Dom0Order(number, tuple(argv), timeout_s)

    def switch(self, *, pause: Sequence[int] = (), resume: Sequence[int] = ()) -> None:
        """Pause and resume domains, by their numbers, within about a millisecond, and wait until that is done."""
        if problem := self._answer(self._send(pause=list(pause), resume=list(resume)))["problem"]:
            raise Dom0Error(problem)

    def look(self, how: Literal["read", "names", "link"], path: str) -> Any:
        """A file's text, the names of a folder's folders, or a link's target; OSError as Dom0 has it."""
        answer = self._answer(self._send(look=how, path=path))
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), path)
        return answer["found"]

    def snapshot(self, looks: Sequence[tuple[str, str]], trace: str, into: str) -> None:
        """Let Dom0 look at all these (how, path) and the length of the trace at once, and keep it in a file there."""
        self._answer(self._send(snapshot=list(looks), trace=trace, into=into))

    def fetch(self, path: str, most: int | None = None) -> bytes:
        """A file of Dom0, or its first `most` bytes. Pieces that arrive garbled are fetched again."""
        content = b""
        while most is None or len(content) < most:
            piece = self._piece(path, len(content), _PIECE if most is None else min(_PIECE, most - len(content)))
            if not piece:
                break
            content += piece
        return content

    def _piece(self, path: str, begin: int, most: int) -> bytes:
        for _ in range(_PIECE_TRIES):
            number = self._send(piece=path, begin=begin, most=most)
            try:
                answer = self._answer(number, _PIECE_S)
                data = base64.b64decode(answer["found"])
            except (GarbledError, ValueError):
                continue
            if zlib.crc32(data) == answer["crc32"]:
                return data
        raise Dom0Error(f"{path} of Dom0 arrived garbled {_PIECE_TRIES} times")

    def _send(self, **order: Any) -> int:
        """Send an order; its number, by which it is answered."""
        self._last += 1
        try:
            self._wire.settimeout(_GRACE_S)
            self._wire.sendall(json.dumps({"id": self._last, **order}).encode() + b"\n")
        except OSError as error:
            raise Dom0Error(f"Dom0 takes no orders: {error}") from None
        return self._last

    def wait(self, order: Dom0Order) -> Dom0Answer:
        """Wait for a command that was started."""
        answer = self._answer(order.number, order.timeout_s + _GRACE_S)
        output, errors = base64.b64decode(answer["output"]), base64.b64decode(answer["errors"])
        return Dom0Answer(order.argv, answer["code"], output, errors.decode("utf-8", "replace"))

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", folder: str = "/", timeout_s: float = 60.0) -> Dom0Answer:
        """Run one command to its end; again when it aborted, as `xl` does now and then where emulation is slow."""
        for _ in range(_TRIES):
            answer = self.wait(self.start(argv, stdin=stdin, folder=folder, timeout_s=timeout_s))
            if answer.code != -signal.SIGABRT:
                break
        return answer

    def _answer(self, number: int, timeout_s: float = _GRACE_S) -> dict[str, Any]:
        end = time.monotonic() + timeout_s
        while number not in self._answers:
            line = self._line(end)
            try:
                answer = json.loads(line)
            except ValueError:
                raise GarbledError("an answer of Dom0 arrived garbled") from None
            self._answers[answer["id"]] = answer
        return self._answers.pop(number)

    def _line(self, end: float) -> bytes:
        while b"\n" not in self._unread:
            remaining = end - time.monotonic()
            if remaining <= 0:
                raise Dom0Error("Dom0 gave no answer in time")
            self._wire.settimeout(remaining)
            try:
                received = self._wire.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError as error:
                raise Dom0Error(f"Dom0 went away: {error}") from None
            if not received:
                raise Dom0Error("Dom0 went away")
            self._unread += received
        line, _, self._unread = self._unread.partition(b"\n")
        return line
