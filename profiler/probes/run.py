"""Runs a probe with its far end, records the environment and marks, and writes the result."""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import time
from pathlib import Path
from typing import Any

from profiler.observed import ProbeResult
from profiler.pictures import save
from profiler.probes import PROBES, load
from profiler.probes.base import Probe, ProbeError, ProbeRun, Progress, RawSeries
from profiler.probes.environment import doubts, read_counters, surroundings
from profiler.probes.sessions import far_end

STOPPED = "stopped before its end"


def run_probe(name: str, options: argparse.Namespace, progress: Progress) -> tuple[ProbeResult, ProbeRun]:
    """Run a probe with its options (`to` names the far end, None = one of our own); ProbeError when it cannot.

    A stop on the way gives what was measured until then, marked.
    """
    probe = load(name)
    circumstances = surroundings()
    with contextlib.ExitStack() as ends:
        if PROBES[name].needs_peer:
            options.peer = ends.enter_context(far_end(options.to))
            circumstances["peer"] = str(options.peer)
            if options.peer.own:
                progress.say("no --to is given: both ends are on this machine, and loopback is the network between")
        before = read_counters(time.monotonic())
        run = probe.run(options, progress)
        after = read_counters(time.monotonic())
    marks = ((STOPPED,) if progress.stopped else ()) + run.marks + doubts(before, after, circumstances)
    return ProbeResult(name, run.values, run.main, {**circumstances, **run.circumstances}, marks), run


def write_series(series: RawSeries, path: Path) -> None:
    """Write the raw series as CSV, compressed where the name ends in .gz; ProbeError when that fails.

    Unknown cells are empty. The same series gives the same bytes.
    """
    try:
        with contextlib.ExitStack() as files:
            raw: Any = files.enter_context(path.open("wb"))
            if path.suffix == ".gz":
                # no name and no time inside; level 6 takes a third of 9's time for a percent more bytes
                raw = files.enter_context(gzip.GzipFile("", "wb", 6, raw, 0))
            text = files.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(series.columns)
            writer.writerows(series.rows())
    except OSError as error:
        raise ProbeError(f"{path} cannot be written: {error.strerror}") from None


def draw(probe: Probe, run: ProbeRun, path: Path) -> None:
    """Draw a run into a file; PictureError when that fails."""
    save(probe.draw(run), path)
