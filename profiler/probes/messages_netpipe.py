"""Runs NetPIPE (NPtcp) against a responder that starts the receiver, and reads the curve that it writes."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from profiler.probes.base import ProbeError, Progress
from profiler.probes.messages_sizes import MessagePoint, NetpipeOutputError, read_netpipe, sizes
from profiler.probes.sessions import Peer

PORT = 5002  # NetPIPE's own
_LONGEST_S = 1800.0
_LOOK_S = 0.1


def arguments(largest: int, perturbation: int, port: int, *more: str) -> list[str]:
    """NetPIPE's command line; both ends must agree on it."""
    return ["NPtcp", "-u", str(largest), "-p", str(perturbation), "-P", str(port), *more]


def measure(
    peer: Peer, largest: int, perturbation: int, progress: Progress, port: int = PORT
) -> tuple[MessagePoint, ...]:
    """The curve up to one step above `largest`, so that it covers `largest`; ProbeError when NetPIPE fails."""
    largest = 3 * largest // 2 + perturbation
    asked_for = {"largest": largest, "perturbation": perturbation, "port": port}
    total = len(sizes(largest, perturbation))
    with tempfile.TemporaryDirectory(prefix="cotenant-netpipe-") as folder, peer.open("netpipe", asked_for) as session:
        curve, log = Path(folder) / "np.out", Path(folder) / "log"
        host = str(session.address()[0])
        with log.open("wb") as output, subprocess.Popen(
            arguments(largest, perturbation, port, "-h", host, "-o", str(curve)),
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=folder,
        ) as sender:  # fmt: skip
            try:
                _wait(sender, curve, total, progress)
            finally:
                sender.kill()
        return _curve(curve, log, stopped=progress.stopped, code=sender.returncode)


def _wait(sender: subprocess.Popen[bytes], curve: Path, total: int, progress: Progress) -> None:
    progress.begin(total, "sizes")
    deadline = time.monotonic() + _LONGEST_S
    with progress.interruptible():
        while sender.poll() is None and not progress.stopped:
            if time.monotonic() > deadline:
                raise ProbeError(f"NetPIPE did not end within {_LONGEST_S:g} s")
            time.sleep(_LOOK_S)
            progress.update(curve.read_bytes().count(b"\n") if curve.exists() else 0)


def _curve(curve: Path, log: Path, *, stopped: bool, code: int) -> tuple[MessagePoint, ...]:
    try:
        text = curve.read_text(encoding="ascii", errors="replace") if curve.exists() else ""
        if stopped:  # its last line may be half written
            text = text[: text.rfind("\n") + 1]
            if not text:
                raise ProbeError("stopped before NetPIPE had measured its first size")
        elif code:
            complaint = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            raise ProbeError(
                f"NetPIPE ended with code {code}: {complaint[-1][:200] if complaint else 'it said nothing'}"
            )
        return read_netpipe(text)
    except NetpipeOutputError as error:
        raise ProbeError(str(error)) from None
