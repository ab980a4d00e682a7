"""Starts NetPIPE's receiver for one measurement; it listens on all addresses, for as long as the session lasts."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from profiler.probes import framing
from profiler.probes.messages_netpipe import PORT, arguments
from profiler.probes.messages_sizes import LARGEST, PERTURBATION
from profiler.probes.services import ServedSession

_START_S = 5.0
_LOOK_S = 1.0


def serve(served: ServedSession) -> None:
    """Parameters `largest`, `perturbation` and `port` must be the sender's; ends with NetPIPE, or ends it."""
    largest = framing.whole(served.parameters, "largest", LARGEST, 1, 1 << 30)
    perturbation = framing.whole(served.parameters, "perturbation", PERTURBATION, 0, 64)
    port = framing.whole(served.parameters, "port", PORT, 1024, 65_535)
    if shutil.which("NPtcp") is None:
        raise framing.FramingError("NetPIPE (NPtcp) is not installed there")
    if listens(port):
        raise framing.FramingError(f"port {port}, which NetPIPE needs there, is in use")
    with subprocess.Popen(
        arguments(largest, perturbation, port),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
    ) as receiver:
        deadline = time.monotonic() + _START_S
        while not listens(port):
            if receiver.poll() is not None or time.monotonic() > deadline:
                receiver.kill()
                raise framing.FramingError("NetPIPE's receiver did not start there")
            time.sleep(0.02)
        served.ready(port)
        while receiver.poll() is None and not served.left(_LOOK_S):
            pass
        receiver.kill()


def listens(port: int) -> bool:
    """Whether a TCP socket listens on `port` in this network namespace (state 0A of /proc/net/tcp, proc(5))."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if len(fields) > 3 and fields[3] == "0A" and fields[1].endswith(f":{port:04X}"):
                return True
    return False
