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

_ABORTED = 4  # tries of a command that aborts
_PIECE = 16384  # bytes of a file
_GARBLED = 5  # tries for each
_PIECE_S = 20.0
_GRACE_S = 60.0  # what an answer may take longer than its command: an emulated machine on a busy host stalls


class Dom0Error(RunError):
    """Dom0 does not answer or went away."""


class GarbledError(Dom0Error):
    """What arrived is none of the agent's lines."""


@dataclass(frozen=True, slots=True)
class Dom0Answer:
    """A command that ended; `code` None = it took too long or could not be started."""

    argv: tuple[str, ...]
    code: int | None
    output: bytes
    errors: str

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")

    def checked(self) -> Dom0Answer:
        """This, or Dom0Error with the command's own words when it failed."""
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
    """Commands in Dom0 through a stream socket; several may be under way."""

    def __init__(self, wire: socket.socket) -> None:
        self._wire = wire
        self._unread = b""
        self._answers: dict[int, dict[str, Any]] = {}
        self._last = 0

    def wait_ready(self, timeout_s: float) -> None:
        """Wait for the agent's greeting; Dom0Error when it does not come."""
        self._answer(0, timeout_s)

    def start(
        self, argv: Sequence[str], *, given: bytes = b"", folder: str = "/", timeout_s: float = 60.0
    ) -> Dom0Order:
        """Start a command with `given` as its standard input; it is killed after `timeout_s`."""
        self._last += 1
        self._send({
            "id": self._last, "argv": list(argv), "input": base64.b64encode(given).decode(), "folder": folder,
            "timeout_s": timeout_s,
        })  # fmt: skip
        return Dom0Order(self._last, tuple(argv), timeout_s)

    def switch(self, *, pause: Sequence[int] = (), resume: Sequence[int] = ()) -> None:
        """Pause and resume domains, by their numbers, within about a millisecond, and wait until that is done."""
        self._last += 1
        self._send({"id": self._last, "pause": list(pause), "resume": list(resume)})
        if problem := self._answer(self._last, _GRACE_S)["problem"]:
            raise Dom0Error(problem)

    def look(self, how: Literal["read", "names", "link"], path: str) -> Any:
        """A file's text, the names of a folder's folders, or a link's target; OSError as Dom0 has it."""
        self._last += 1
        self._send({"id": self._last, "look": how, "path": path})
        answer = self._answer(self._last, _GRACE_S)
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]), path)
        return answer["found"]

    def snapshot(self, looks: Sequence[tuple[str, str]], trace: str, into: str) -> None:
        """Let Dom0 look at all of these (how, path) at once, and at the trace's length, and keep it in a file there."""
        self._last += 1
        self._send({"id": self._last, "snapshot": list(looks), "trace": trace, "into": into})
        self._answer(self._last, _GRACE_S)

    def fetch(self, path: str, most: int | None = None) -> bytes:
        """A file of Dom0, or the first bytes of it. Parts that arrive garbled are asked for again."""
        found = b""
        while most is None or len(found) < most:
            piece = self._piece(path, len(found), _PIECE if most is None else min(_PIECE, most - len(found)))
            if not piece:
                break
            found += piece
        return found

    def _piece(self, path: str, begin: int, most: int) -> bytes:
        for _ in range(_GARBLED):
            self._last += 1
            self._send({"id": self._last, "piece": path, "from": begin, "most": most})
            try:
                answer = self._answer(self._last, _PIECE_S)
                data = base64.b64decode(answer["found"])
            except (GarbledError, ValueError):
                continue
            if zlib.crc32(data) == answer["crc32"]:
                return data
        raise Dom0Error(f"{path} of Dom0 arrived garbled {_GARBLED} times")

    def _send(self, order: dict[str, Any]) -> None:
        try:
            self._wire.settimeout(_GRACE_S)
            self._wire.sendall(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise Dom0Error(f"Dom0 takes no orders: {error}") from None

    def wait(self, order: Dom0Order) -> Dom0Answer:
        """Wait for a command that was started."""
        answer = self._answer(order.number, order.timeout_s + _GRACE_S)
        output, errors = base64.b64decode(answer["output"]), base64.b64decode(answer["errors"])
        return Dom0Answer(order.argv, answer["code"], output, errors.decode("utf-8", "replace"))

    def run(self, argv: Sequence[str], *, given: bytes = b"", folder: str = "/", timeout_s: float = 60.0) -> Dom0Answer:
        """Run one command to its end; again when it aborted, as `xl` does now and then where emulation is slow."""
        for _ in range(_ABORTED):
            answer = self.wait(self.start(argv, given=given, folder=folder, timeout_s=timeout_s))
            if answer.code != -signal.SIGABRT:
                break
        return answer

    def _answer(self, number: int, timeout_s: float) -> dict[str, Any]:
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
