"""Shared by all probes: the Probe protocol, the result of a run, ProbeError, types of options, and statistics."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING, Protocol

from profiler.collectors.windows import percentile
from profiler.observed import Quantity

if TYPE_CHECKING:
    from profiler.pictures import Figure

Cell = float | str | None


class ProbeError(Exception):
    """A probe cannot measure here; one sentence that says what is wrong and what to do."""


class Stopped(KeyboardInterrupt):  # passes `except Exception`, and ends the command if it comes just outside the block
    """The user or the system asked the probe to end; raised only inside of `Progress.interruptible`."""


@dataclass(frozen=True, slots=True)
class RawSeries:
    """The raw series of a run, column by column, all of one length; names end in their unit, None = unknown."""

    columns: Mapping[str, Sequence[Cell]]

    def __post_init__(self) -> None:
        if len({len(column) for column in self.columns.values()}) > 1:
            raise ValueError(f"columns of unequal length: { {n: len(c) for n, c in self.columns.items()} }")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[tuple[Cell, ...]]:
        return zip(*self.columns.values(), strict=True)


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """The result of a run: values, the main one of them, the probe's own circumstances and marks, and the raw series.

    Circumstances of the machine and marks about it are added by `run.run_probe`.
    """

    values: Mapping[str, Quantity]
    main: str
    series: RawSeries
    circumstances: Mapping[str, str]
    marks: tuple[str, ...] = ()


class Probe(Protocol):
    """One measurement. `name` is its name in PROBES; the module of a probe holds one instance as PROBE."""

    @property
    def name(self) -> str:
        """Its name in PROBES."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options, with the paper's numbers as defaults."""

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        """Measure. `options.peer` is a `peer.Peer` for probes with a far end.

        Raises ProbeError when it cannot. When stopped it returns what it has measured, or raises ProbeError when that
        is nothing; `run.run_probe` marks the result.
        """

    def draw(self, run: ProbeRun) -> Figure:
        """A picture of the run; raises PictureError without matplotlib."""


class Progress:
    """Reports a probe's progress and lets it be stopped. This base class reports nothing. One per run."""

    def __init__(self) -> None:
        self.stopped = False
        self._open = False

    def begin(self, total: float, unit: str) -> None:
        """Work begins: `total` of `unit` (seconds, samples) are to be done; may be called again for a new part."""

    def update(self, done: float) -> None:
        """`done` of the total are done. Costs up to a millisecond on a terminal: keep it out of what is timed."""

    def say(self, text: str) -> None:
        """Show a sentence that people must not miss."""

    def stop(self) -> None:
        """Ask the probe to end (called by signal handlers); the second time it ends without a result."""
        again, self.stopped = self.stopped, True
        if self._open:
            raise Stopped
        if again:
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """A block in which a stop raises Stopped, at any point, which ends the block; outside it only sets `stopped`.

        Put it around what waits or computes for long, check `stopped` in loops, and collect results in one `append`
        each, so that they are whole whenever the stop comes.
        """
        self._open = True
        try:
            yield
        except Stopped:
            pass
        finally:
            self._open = False


# Argument types of probes' options: numbers within a range, with one-sentence errors.


def count(most: int, least: int = 1) -> Callable[[str], int]:
    """A whole number from `least` to `most`; `_` and `,` may group its digits."""

    def read(text: str) -> int:
        digits = text.replace("_", "").replace(",", "")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 15 or not least <= int(digits) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least:,} to {most:,}")
        return int(digits)

    return read


def above(lowest: float, most: float) -> Callable[[str], float]:
    """A number above `lowest`, up to `most`."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not lowest < value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number above {lowest:g}, up to {most:g}")
        return value

    return read


# Statistics that probes share: variation, histograms, and summaries of series of times.


def described(values: Iterable[float], unit: str, *, prefix: str = "") -> dict[str, Quantity]:
    """min, median, mean, p95, max and (from two values on) stdev of a series; nothing for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    numbers = {
        "min": ordered[0],
        "median": median(ordered),
        "mean": min(max(fmean(ordered), ordered[0]), ordered[-1]),  # rounding may carry it out of the range by an ulp
        "p95": percentile(ordered, 0.95),
        "max": ordered[-1],
    }
    if len(ordered) > 1:
        numbers["stdev"] = stdev(ordered)
    return {f"{prefix}{name}": Quantity(value, unit) for name, value in numbers.items()}


def variation_percent(values: Sequence[float]) -> float | None:
    """Coefficient of variation in %, sample standard deviation over mean; None for under two values or mean 0."""
    if len(values) < 2 or not fmean(values):
        return None
    return 100 * stdev(values) / abs(fmean(values))


def log_bins(values: Iterable[float], lowest: float, per_decade: int = 5) -> list[tuple[float, float, int]]:
    """Histogram with bins of equal width on a logarithmic scale: (from, to, count), from `lowest` on, none left out.

    The first bin begins at `lowest`, and holds what is below, too; the last one holds the largest value.
    """
    counts: dict[int, int] = {}
    for value in values:
        place = math.floor(per_decade * math.log10(value / lowest) + 1e-9) if value > lowest else 0
        counts[place] = counts.get(place, 0) + 1
    edges = range(max(counts, default=-1) + 1)
    step = 10 ** (1 / per_decade)
    return [(lowest * step**place, lowest * step ** (place + 1), counts.get(place, 0)) for place in edges]
