"""The parent of the workers ends whenever it is told to, whatever the workers are doing then."""

from __future__ import annotations

import multiprocessing
import signal
import socket
from collections.abc import Callable
from typing import Any

import pytest

from advisor.settings import Settings
from api import serving


class Process:
    """A worker of which the start may do something; to wait for one that nobody has told to end would hang."""

    pid, sentinel, exitcode = 1, 0, 0

    def __init__(self, starting: Callable[[], None]) -> None:
        self._starting = starting
        self.alive = False
        self.told = False
        self.stubborn = False

    def start(self) -> None:
        self.alive = True
        self._starting()

    def is_alive(self) -> bool:
        return self.alive

    def terminate(self) -> None:
        self.told = True

    def kill(self) -> None:
        self.alive = self.stubborn = False

    def join(self, timeout: float | None = None) -> None:
        assert self.told, "nobody has told it to end"
        assert timeout is not None or not self.alive, "it may never end"
        self.alive = self.stubborn


class Context:
    """What multiprocessing gives, with processes that are none."""

    def __init__(self, starting: Callable[[int], None], *, stubborn: bool = False) -> None:
        self.made: list[Process] = []
        self._starting = starting
        self._stubborn = stubborn

    def Event(self) -> Any:  # noqa: N802 - as multiprocessing calls it
        return self

    def wait(self, _timeout: float) -> bool:
        return False

    def Process(self, **_: Any) -> Process:  # noqa: N802
        number = len(self.made)
        self.made.append(Process(lambda: self._starting(number)))
        self.made[-1].stubborn = self._stubborn
        return self.made[-1]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_signal_while_workers_start_ends_all_of_them(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: dict[int, Callable[..., None]] = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    told: list[str] = []

    def start(number: int) -> None:
        if number == at:
            handlers[signal.SIGTERM](signal.SIGTERM, None)

    context = Context(start)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)
    with socket.socket() as listener:
        workers = serving._Workers(Settings(), listener, 3)
        assert workers.run(lambda: told.append("listens")) == 0
    assert len(context.made) == at + 1, "no further one is started"
    assert not any(process.alive for process in context.made)
    assert told == []


def test_a_worker_that_does_not_end_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handlers: dict[int, Callable[..., None]] = {}
    monkeypatch.setattr("signal.signal", handlers.__setitem__)
    context = Context(lambda _: handlers[signal.SIGTERM](signal.SIGTERM, None), stubborn=True)
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: context)
    with socket.socket() as listener:
        serving._Workers(Settings(), listener, 1).run(lambda: None)
    assert not context.made[0].alive
    assert "did not end; it is killed" in caplog.text
