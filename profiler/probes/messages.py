"""Probe messages: TCP throughput and latency over message sizes of 1 B to 10 MB (CSTACK §III, Fig. 2, 3, C1, C2)."""

from __future__ import annotations

import argparse
import shutil
import socket
import time
from collections.abc import Sequence
from typing import Any

from profiler.observed import Quantity
from profiler.pictures import ACCENT, Figure, label, new_figure
from profiler.probes import messages_netpipe
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries
from profiler.probes.framing import fill
from profiler.probes.messages_sizes import LARGEST, PERTURBATION, MessagePoint, at, sizes
from profiler.probes.options import above, count
from profiler.probes.services.ping_pong import MOST_BYTES
from profiler.probes.sessions import Peer, ProbeSession

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
        add("--largest", type=count(MOST_BYTES), default=LARGEST, metavar="BYTES", help=f"largest message ({LARGEST})")
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
            curve = messages_netpipe.measure(options.peer, options.largest, options.perturbation, progress)
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
