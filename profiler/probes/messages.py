"""Probe messages: TCP throughput and latency over message sizes of 1 B to 10 MB (CSTACK §III, Fig. 2, 3, C1, C2)."""

from __future__ import annotations

import argparse
import math
import shutil
import socket
import subprocess
import tempfile
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.observed import Quantity
from profiler.pictures import ACCENT, Figure, label, new_figure
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count
from profiler.probes.sessions import Peer, ProbeSession, fill

# NetPIPE's schedule of message sizes, points of a curve over them, and reading of NetPIPE's output.

MOST_MESSAGE_BYTES = 64 << 20  # that the far end sends back
LARGEST = 10 * 1024 * 1024  # CSTACK Fig. 2: 1 B to 10 MB
PERTURBATION = 3  # bytes around each size, NetPIPE's default


class NetpipeOutputError(ValueError):
    """NetPIPE wrote something that is not a curve; the message names the line."""


@dataclass(frozen=True, slots=True)
class MessagePoint:
    """A message size in bytes and the time in s for one way: half of a round trip."""

    size: int
    one_way_s: float

    @property
    def mbit(self) -> float:
        """Mb/s (10^6; NetPIPE prints 2^20) with this size."""
        return self.size * 8e-6 / self.one_way_s


def sizes(largest: int = LARGEST, perturbation: int = PERTURBATION) -> tuple[int, ...]:
    """1, 2, 3, 4, 6, 8, 12, 16 ... with `perturbation` bytes less and more where steps are wider; `largest` is in.

    Raises ValueError unless largest >= 1 and perturbation >= 0.
    """
    if largest < 1 or perturbation < 0:
        raise ValueError(f"sizes up to {largest} with perturbation {perturbation} are none")
    chosen = {largest}
    size, step, taken = 1, 1, 0
    while size <= largest:
        if taken > 2 and taken % 2:  # NetPIPE doubles its step at every second size from the fourth on
            step *= 2
        wide = 0 < perturbation < step - 1
        chosen.update((size - perturbation, size, size + perturbation) if wide else (size,))
        size += step
        taken += 1
    return tuple(sorted(size for size in chosen if size <= largest))


def at(curve: Sequence[MessagePoint], size: int) -> float | None:
    """One-way time in s at `size`, between two measured sizes by a power law; None outside of what was measured.

    `curve` is sorted by size.
    """
    place = bisect_left(curve, size, key=lambda point: point.size)
    if place < len(curve) and curve[place].size == size:
        return curve[place].one_way_s
    if not 0 < place < len(curve):
        return None
    low, high = curve[place - 1], curve[place]
    part = math.log(size / low.size) / math.log(high.size / low.size)
    return math.exp((1 - part) * math.log(low.one_way_s) + part * math.log(high.one_way_s))


def read_netpipe(text: str) -> tuple[MessagePoint, ...]:
    """NetPIPE's output file: size, Mb/s (of 2^20), one-way time in s per line. NetpipeOutputError names a bad line."""
    points = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields:
            continue
        try:
            size, seconds = int(fields[0]), float(fields[2])
        except (ValueError, IndexError):
            raise NetpipeOutputError(f"line {number} of NetPIPE's output is not size, Mb/s, s: {line[:60]!r}") from None
        if size < 1 or not 0 < seconds < math.inf:
            raise NetpipeOutputError(f"line {number} of NetPIPE's output has no size or time above 0: {line[:60]!r}")
        points.append(MessagePoint(size, seconds))
    if not points:
        raise NetpipeOutputError("NetPIPE wrote no sizes")
    return tuple(sorted(points, key=lambda point: point.size))


# Runs NetPIPE (NPtcp) against a responder that starts the receiver, and reads the curve that it writes.

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


_PER_SIZE_S = 0.25  # NetPIPE's own
_TRIALS = 7  # NetPIPE's: the best one counts
_FEW = 3  # round trips per trial, under which the best of seven says little
_THROUGHPUT_AT = {"64b": 64, "1kb": 1 << 10, "16kb": 16 << 10, "64kb": 64 << 10, "1mb": 1 << 20, "10mb": LARGEST}
_LATENCY_AT = {"1b": 1, "64b": 64, "1kb": 1 << 10}


class Messages:
    """Ping-pong over one TCP connection without Nagle's delay; one way is half of a round trip."""

    name = "messages"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--seconds", type=above(0.1, 7000), metavar="S", help="time for all sizes together (0.25 s for each)")
        add(
            "--largest",
            type=count(MOST_MESSAGE_BYTES),
            default=LARGEST,
            metavar="BYTES",
            help=f"largest message ({LARGEST})",
        )
        add(
            "--perturbation",
            type=count(64, 0),
            default=PERTURBATION,
            metavar="BYTES",
            help="bytes below and above each size that are also tried (3)",
        )
        add("--tool", choices=("auto", "own", "netpipe"), default="auto",
            help="program; auto: NetPIPE where both ends have it and --seconds is not set, else our own")  # fmt: skip

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        curve, tool, marks = _measured(options, progress)
        if not curve:
            raise ProbeError("stopped before the first size was measured")
        wanted = [point for point in curve if point.size <= options.largest] or curve  # NetPIPE measures one size more
        peak = max(wanted, key=lambda point: point.mbit)
        values = {"peak": Quantity(peak.mbit, "Mb/s"), "peak_size": Quantity(peak.size, "bytes")}
        for name, size in _THROUGHPUT_AT.items():
            if (one_way := at(curve, size)) is not None:
                values[f"throughput_{name}"] = Quantity(MessagePoint(size, one_way).mbit, "Mb/s")
        for name, size in _LATENCY_AT.items():
            if (one_way := at(curve, size)) is not None:
                values[f"latency_{name}"] = Quantity(1e6 * one_way, "us")
        circumstances = {"tool": tool, "perturbation": str(options.perturbation), "largest": str(options.largest)}
        series = RawSeries({
            "size_bytes": [point.size for point in curve],
            "one_way_us": [1e6 * point.one_way_s for point in curve],
            "throughput_mbit_s": [point.mbit for point in curve],
        })  # fmt: skip
        return ProbeRun(values, "peak", series, circumstances, marks)

    def draw(self, run: ProbeRun) -> Figure:
        """Throughput (CSTACK Fig. 2) and one-way latency (Fig. 3) over message size."""
        figure, panels = new_figure(2)
        shown = (("throughput_mbit_s", "Throughput", "Mb/s"), ("one_way_us", "One-way latency", "µs"))
        for axes, (column, title, unit) in zip(panels, shown, strict=True):
            axes.plot(run.series.columns["size_bytes"], run.series.columns[column], color=ACCENT, linewidth=1.2)
            axes.set_xscale("log")
            axes.set_yscale("log")
            label(axes, title, "message size (bytes)", unit)
        return figure


def _measured(options: argparse.Namespace, progress: Progress) -> tuple[Sequence[MessagePoint], str, tuple[str, ...]]:
    """The curve, the tool that made it, and marks."""
    tool, marks = options.tool, []
    if tool == "netpipe" and shutil.which("NPtcp") is None:
        raise ProbeError("NetPIPE (NPtcp) is not installed here; install it, or choose --tool own")
    if tool == "auto" and (options.seconds is not None or shutil.which("NPtcp") is None):
        tool = "own"
    if tool != "own":
        try:
            curve = measure(options.peer, options.largest, options.perturbation, progress)
        except ProbeError as error:
            if tool == "netpipe" or progress.stopped:
                raise
            marks.append(f"measured by our own ping-pong, for NetPIPE could not be used: {error}")
        else:
            return curve, "netpipe", ()
    own, few = _own(options.peer, sizes(options.largest, options.perturbation), options.seconds, progress)
    if few:
        marks.append(f"{few} sizes were measured with under {_FEW} round trips per trial: raise --seconds")
    return own, "own", tuple(marks)


def _own(
    peer: Peer, wanted: Sequence[int], seconds: float | None, progress: Progress
) -> tuple[list[MessagePoint], int]:  # fmt: skip
    """Our own curve, and how many of its sizes rest on few round trips."""
    per_size = _PER_SIZE_S if seconds is None else seconds / len(wanted)
    curve: list[MessagePoint] = []
    few = 0
    progress.begin(len(wanted), "sizes")
    with peer.open("ping_pong") as session, session.connect() as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.settimeout(None)
        space = memoryview(bytearray(max(wanted)))
        try:
            with progress.interruptible():
                for size in wanted:
                    if progress.stopped:
                        break
                    one_way, repeats = _best(session, stream, space[:size], per_size)
                    few += repeats < _FEW
                    curve.append(MessagePoint(size, one_way))
                    progress.update(len(curve))
        except OSError as error:
            raise ProbeError(f"the responder closed the connection ({error.strerror})") from None
    return curve, few


def _best(session: ProbeSession, stream: socket.socket, view: memoryview, seconds: float) -> tuple[float, int]:
    """One-way time in s by the best of some trials, and the round trips of each."""
    session.ask({"size": len(view), "count": 2})
    _round_trips(stream, view, 1)  # the first fills windows and caches
    usual = _round_trips(stream, view, 1)
    repeats = max(1, min(int(seconds / _TRIALS / usual), 100_000))
    session.ask({"size": len(view), "count": _TRIALS * repeats})
    return min(_round_trips(stream, view, repeats) for _ in range(_TRIALS)) / 2, repeats


def _round_trips(stream: Any, view: memoryview, repeats: int) -> float:
    """Mean time in s of `repeats` round trips."""
    send = stream.sendall
    began = time.perf_counter()
    for _ in range(repeats):
        send(view)
        if not fill(stream, view):
            raise ProbeError("the responder ended the connection")
    return (time.perf_counter() - began) / repeats


PROBE = Messages()
