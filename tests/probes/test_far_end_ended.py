"""Probes that end in the middle: a stop shows what was measured, and a responder that is killed is one sentence."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from profiler.probes.base import ProbeError
from tests.probes.two_ends import StopAfter, children, numbers, responder, run

LONG = {
    "tcp": ("--megabytes", "1000000"),
    "udp": ("--megabytes", "1000000", "--rate-mbit", "20"),
    "loss": (),
    "messages": ("--tool", "own"),
    "requests": ("--threads", "2"),
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.measured
def test_a_responder_that_vanishes_is_a_sentence(name: str) -> None:
    with responder() as (served, port):

        def end() -> None:
            while not (sessions := children(served.pid)):
                time.sleep(0.05)
            time.sleep(0.4)
            for session in sessions:
                os.kill(session, signal.SIGKILL)

        killer = threading.Thread(target=end)
        killer.start()
        began = time.monotonic()
        with pytest.raises(ProbeError, match="responder"):
            run(name, *LONG[name], to=("127.0.0.1", port))
        assert time.monotonic() - began < 15
        killer.join()


@pytest.mark.parametrize(
    ("name", "options", "after_s", "value", "least", "most"),
    [
        ("tcp", ["--megabytes", "100000"], 0.4, "received", 1, 100_000),
        ("udp", ["--rate-mbit", "200"], 0.4, "throughput", 1e-9, 1000),
        ("loss", [], 0.8, "probes", 21, 199),
        ("requests", ["--threads", "1,2,4"], 0.5, "requests_1", 1, 1e6),
    ],
)
@pytest.mark.measured
def test_a_stop_shows_what_was_measured_until_then(
    name: str, options: list[str], after_s: float, value: str, least: float, most: float
) -> None:
    result, _ = run(name, *options, progress=StopAfter(after_s))
    assert result.marks[0] == "stopped before its end"
    assert least <= numbers(result)[value] <= most
    assert "requests_2" not in result.values
