"""A responder that is killed while a probe works with it is one sentence, for every probe that needs one throughout."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from profiler.probes.base import ProbeError
from tests.probes.two_ends import children, responder, run

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
