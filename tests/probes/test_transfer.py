"""The transfer probe for real, and against far ends that do not give back what was sent."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from profiler.probes.base import ProbeError, Progress
from profiler.probes.sessions import far_end
from profiler.probes.transfer import PROBE, _connect, there_and_back
from tests.probes.two_ends import options_of


def run(*arguments: str) -> dict[str, float]:
    with far_end(None) as peer:
        found = PROBE.run(options_of("transfer", *arguments, peer=peer), Progress())
    assert len(found.series) == found.values["samples"].value
    return {name: quantity.value for name, quantity in found.values.items()}


def test_blocks_go_there_and_back() -> None:
    values = run("--count", "20", "--every", "0.01")
    assert values["samples"] == 20
    assert 0 < values["min"] <= values["median"] < 1000
    assert values["goodput_median"] == pytest.approx(2 * 32768 * 8 / 1e3 / values["median"])


@pytest.mark.measured
def test_a_larger_block_takes_longer() -> None:
    small, large = (run("--count", "10", "--every", "0.01", "--size", size) for size in ("1024", "8_000_000"))
    assert large["min"] > small["min"]


def test_every_block_may_have_a_connection_of_its_own() -> None:
    assert run("--count", "12", "--every", "0.01", "--connect")["samples"] == 12


@pytest.mark.measured
def test_a_connection_is_made_anew_before_its_session_would_end(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[Any, ...]] = []

    def counted(*arguments: Any) -> socket.socket:
        opened.append(arguments)
        return _connect(*arguments)

    monkeypatch.setattr("profiler.probes.transfer._connect", counted)
    monkeypatch.setattr("profiler.probes.transfer._RENEW_S", 0.15)
    assert run("--count", "10", "--every", "0.05")["samples"] == 10
    assert 3 <= len(opened) <= 6


def test_blocks_begin_on_a_grid_of_time() -> None:
    begin = time.monotonic()
    run("--seconds", "0.5", "--every", "0.1")
    assert time.monotonic() - begin >= 0.4


def far(answer: bytes) -> socket.socket:
    """A connection whose other end takes four bytes, says this, and closes."""
    near, other = socket.socketpair()

    def serve() -> None:
        with other:
            other.recv(4)
            other.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return near


@pytest.mark.parametrize(("answer", "words"), [(b"", "closed"), (b"123", "closed"), (b"4321", "not what was sent")])
def test_what_does_not_come_back_is_an_error_and_no_time(answer: bytes, words: str) -> None:
    with far(answer) as connection, pytest.raises(ProbeError, match=words):
        there_and_back(connection, b"1234", memoryview(bytearray(4)), 0.0)


def test_what_comes_back_in_parts_is_whole() -> None:
    with far(b"1234") as connection:
        assert there_and_back(connection, b"1234", memoryview(bytearray(4)), 0.0).took_ms > 0
