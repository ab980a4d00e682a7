"""The lab's connection to a guest's agent: requests and answers as JSON lines, and programs in the guest."""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lab.errors import RunError
from lab.processes import Program

_ANSWER_WITHIN_S = 30.0  # an emulated guest that shares its CPU with three others takes its time
_SHOWN = 400  # characters of a program's complaint that an error repeats
_MOST = 64 << 20  # bytes of one line; the agent never sends so many
_EARLY = "the lab ended it"


class AgentChannel:
    """A connection to one agent. `explain` returns the guest's console, for errors when the agent is silent."""

    def __init__(self, connection: socket.socket, name: str, explain: Callable[[], str]) -> None:
        self._connection = connection
        self._name = name
        self._explain = explain
        self._rest = bytearray()
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._ended: dict[int, dict[str, Any]] = {}
        self.up = False
        connection.setblocking(False)

    def wait_up(self, timeout_s: float) -> bool:
        """Wait for the agent's first message; False when it does not come in this time, or the guest hangs up."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(RunError):
            while not self.up and time.monotonic() < deadline:
                self._listen(min(0.5, deadline - time.monotonic()))
        return self.up

    def ask(self, do: str, **details: object) -> dict[str, Any]:
        """Send a request and return its answer; RunError when the agent refuses or does not answer."""
        number = next(self._numbers)
        self.tell(do, number=number, **details)
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while number not in self._answers:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._silent(f"did not answer within {_ANSWER_WITHIN_S:.0f} s")
            self._listen(left)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RunError(f"guest {self._name} refused {do} {details.get('path', '')}: {answer['error']}")
        return answer

    def tell(self, do: str, **details: object) -> None:
        """Send a request without waiting for an answer."""
        data = json.dumps({"do": do, **details}).encode() + b"\n"
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while data:
            try:
                data = data[self._connection.send(data) :]
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise self._silent("takes no requests") from None
                select.select([], [self._connection], [], 0.5)
            except OSError as error:
                raise self._silent(f"hung up ({error.strerror})") from None

    def start(self, command: Sequence[str], directory: Path, *, wait: bool = False) -> GuestProgram:
        """Start a program in the guest; with `wait` it begins when it is released."""
        program = next(self._numbers)
        self.ask("start", program=program, command=list(command), directory=str(directory), wait=wait)
        return GuestProgram(self, program, tuple(command))

    def call(self, *command: str, timeout_s: float = 60.0) -> str:
        """Run a small tool in the guest to its end; RunError repeats its complaint."""
        program = self.start(command, Path("/"))
        if self.wait(program, timeout_s) != 0:
            raise RunError(f"in guest {self._name} {' '.join(command[:6])} failed: {program.errors()}")
        return program.output()

    def wait(self, program: GuestProgram, timeout_s: float) -> int:
        """Wait for a program to end and return its status; RunError when it does not in this time."""
        deadline = time.monotonic() + timeout_s
        while (code := program.returncode) is None:
            if time.monotonic() > deadline:
                raise self._silent(f"did not finish {program.command[0]} within {timeout_s:.0f} s")
            self._listen(0.2)
        return code

    def read(self, path: str) -> str:
        return str(self.ask("read", path=path).get("text", ""))

    def write(self, path: str, text: str) -> None:
        self.ask("write", path=path, text=text)

    def ended(self, program: int) -> dict[str, Any] | None:
        """The agent's report of this program's end; None while it runs."""
        if program not in self._ended:
            self._listen(0.0)
        return self._ended.get(program)

    def forget(self, program: int) -> None:
        self._ended.pop(program, None)

    def close(self) -> None:
        self._connection.close()

    def _listen(self, timeout_s: float) -> None:
        """Take in what the agent sent; wait for it at most so long."""
        if not select.select([self._connection], [], [], max(0.0, timeout_s))[0]:
            return
        try:
            data = self._connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            raise self._silent(f"hung up ({error.strerror})") from None
        if not data:
            raise self._silent("hung up")
        *lines, rest = (bytes(self._rest) + data).split(b"\n")
        self._rest = bytearray(rest)
        if len(rest) > _MOST:
            raise self._silent("sends what is not an answer")
        for line in lines:
            self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # noise of a console on the same line
        if not isinstance(message, dict):
            return
        if "up" in message:
            self.up = True
        elif isinstance(message.get("ended"), int) and isinstance(message.get("status"), int):
            self._ended[message["ended"]] = message
        elif isinstance(message.get("number"), int):
            self._answers[message["number"]] = message

    def _silent(self, how: str) -> RunError:
        return RunError(f"the agent of guest {self._name} {how}: {self._explain()[-_SHOWN:] or 'its console is empty'}")


class GuestProgram(Program):
    """A program inside a guest; the agent's report of its end holds its status and its output."""

    def __init__(self, channel: AgentChannel, number: int, command: tuple[str, ...]) -> None:
        self.command = command
        self._channel = channel
        self._number = number
        self._end: dict[str, Any] | None = None
        self._asked = False

    @property
    def returncode(self) -> int | None:
        if self._end is None:
            self._end = self._channel.ended(self._number)
            self._channel.forget(self._number)
        return None if self._end is None else int(self._end["status"])

    def release(self) -> None:
        self._channel.tell("release", program=self._number)

    def output(self) -> str:
        return self._text("output")

    def errors(self) -> str:
        return " ".join((self._text("errors") or self._text("output")).split())[-_SHOWN:]

    def terminate(self) -> None:
        """Nothing happens when the guest is gone."""
        with contextlib.suppress(RunError):
            if not self._asked and self.returncode is None:
                self._signal(signal.SIGTERM)
        self._asked = True

    def stop(self, patience_s: float = 1.0) -> None:
        """Safe also when the guest is gone."""
        with contextlib.suppress(RunError):
            if patience_s > 0 and self.returncode is None:
                self.terminate()
                self._wait(patience_s)
            if self.returncode is None:
                self._signal(signal.SIGKILL)
                self._wait(_ANSWER_WITHIN_S)
        if self._end is None:
            self._end = {"status": -signal.SIGKILL, "errors": _EARLY}

    def _text(self, name: str) -> str:
        texts = self._channel.ask("output", program=self._number) if self.returncode is None else {}
        if self.returncode is not None:  # also when it ended just now: the agent reported that before it answered
            texts = self._end or {}
        return str(texts.get(name, ""))

    def _signal(self, number: signal.Signals) -> None:
        self._channel.tell("signal", program=self._number, signal=int(number))

    def _wait(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self.returncode is None and time.monotonic() < deadline:
            time.sleep(0.005)
