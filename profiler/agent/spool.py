"""Batches on disk until the server has them: whole files only, oldest first, bounded in size, one agent at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import math
import os
import re
import threading
import zlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from profiler.agent.loop import Log, StartError
from profiler.collectors.samples import SampleRow
from profiler.collectors.windows import MetricWindow
from profiler.files import TEMPORARY, write_whole
from profiler.metrics import ADDITIONAL_UNITS, BY_NAME, SCOPES, Scope
from profiler.observed import check_id

# Counts of what a spool lost, kept across restarts.


@dataclass(frozen=True, slots=True)
class SpoolLosses:
    """What a spool lost or put aside since it was made."""

    dropped_batches: int = 0
    dropped_samples: int = 0
    broken: int = 0
    refused: int = 0

    @classmethod
    def load(cls, path: Path) -> SpoolLosses:
        """What `save` wrote; zeros where there is nothing or nonsense."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{field.name: int(document[field.name]) for field in fields(cls)})
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return cls()

    def plus(self, **more: int) -> SpoolLosses:
        """With these added."""
        return replace(self, **{name: getattr(self, name) + by for name, by in more.items()})

    def save(self, path: Path) -> None:
        """Write them; a full disk keeps them in memory until the next time."""
        with contextlib.suppress(OSError):
            write_whole(path, json.dumps(asdict(self)).encode())


# One window on its way to the server: compact and compressed in the spool, samples of the API on the wire.

_VERSION = 1
_GZIP = 31  # window bits that make zlib write and read gzip, so that zcat shows a batch
_LEVEL = 1
_LARGEST = 1 << 26  # unpacked; a window of a thousand instances is under 2 MB
_DIGITS, _OF_TAILS = 3, 2  # significant ones, see decision 242: more is noise that fills stores
_TAILS = ("_p95", "_p50_us", "_p99_us", "_p999_us")  # the ends of names of quantiles, which only drawings show
_DECIMALS = {
    "%": 2,
    "1/s": 1,
    "pages/s": 1,
    "Mbit/s": 2,
    "MB/s": 2,
    "ms": 2,
    "us": 0,
    "MB": 0,
    "B": 0,
}  # by unit, at most

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")

Sample = dict[str, str | float | None]


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """The samples of one window; all have the time of its end, RFC 3339 in UTC."""

    host: str
    time: str
    rows: tuple[SampleRow, ...]

    @property
    def size(self) -> int:
        """Number of samples."""
        return sum(len(row.values) for row in self.rows)

    def samples(self) -> Iterator[Sample]:
        """Each sample as `POST /v1/samples` takes it."""
        for row in self.rows:
            for metric, value in row.values.items():
                yield {
                    "host": self.host, "instance": row.instance, "scope": row.scope, "metric": metric,
                    "value": value, "time": self.time,
                }  # fmt: skip

    def window(self) -> dict[str, Any]:
        """The same as a window of `POST /v1/samples`: its metrics are those that at least half of the rows have."""
        having = Counter(metric for row in self.rows for metric in row.values)
        metrics = [metric for metric, number in having.items() if 2 * number >= len(self.rows)]
        shared = set(metrics)
        rows = []
        for row in self.rows:
            sent: dict[str, Any] = {"instance": row.instance, "scope": row.scope}
            sent["values"] = [row.values.get(metric) for metric in metrics]
            if others := {metric: value for metric, value in row.values.items() if metric not in shared}:
                sent["others"] = others
            rows.append(sent)
        return {"host": self.host, "time": self.time, "metrics": metrics, "rows": rows}


def samples_in(document: Mapping[str, Any]) -> list[Sample]:
    """The samples of a body of `POST /v1/samples`, those of its windows, too."""
    found: list[Sample] = list(document.get("samples", ()))
    for window in document.get("windows", ()):
        for row in window["rows"]:
            values = {
                name: value for name, value in zip(window["metrics"], row["values"], strict=True) if value is not None
            }
            found += [
                {
                    "host": window["host"], "instance": row["instance"], "scope": row["scope"], "metric": metric,
                    "value": value, "time": window["time"],
                }
                for metric, value in (*values.items(), *row.get("others", {}).items())
            ]  # fmt: skip
    return found


def batch_of(window: MetricWindow) -> SampleBatch:
    """Means under the metrics' names, and 95th percentiles of the eight as `<name>_p95`."""
    rows: dict[tuple[str | None, Scope], dict[str, float]] = {}
    for (instance, scope, metric), statistic in window.series.items():
        values = rows.setdefault((instance, scope), {})
        values[metric] = short(statistic.mean, metric)
        if metric in BY_NAME:
            values[f"{metric}_p95"] = short(statistic.p95, f"{metric}_p95")
    time = datetime.fromtimestamp(window.end_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return SampleBatch(window.host, time, tuple(SampleRow(*key, values) for key, values in rows.items()))


def short(value: float, metric: str) -> float:
    """With the digits that are sent: three or two significant ones, none below what matters in the metric's unit."""
    digits = _OF_TAILS if metric.endswith(_TAILS) else _DIGITS
    base = metric.removesuffix("_p95")
    unit = BY_NAME[base].unit if base in BY_NAME else ADDITIONAL_UNITS.get(base, "")
    rounded = float(f"{value:.{digits}g}")
    return round(rounded, _DECIMALS[unit]) if unit in _DECIMALS else rounded


def encode(batch: SampleBatch) -> bytes:
    """The batch as compressed JSON."""
    rows = [[row.instance, row.scope, dict(row.values)] for row in batch.rows]
    document = {"version": _VERSION, "host": batch.host, "time": batch.time, "rows": rows}
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(json.dumps(document, separators=(",", ":")).encode()) + packer.flush()


def decode(data: bytes) -> SampleBatch:
    """Inverse of `encode`; ValueError for anything else, whatever is in it."""
    try:
        unpacker = zlib.decompressobj(_GZIP)
        text = unpacker.decompress(data, _LARGEST)
        if not unpacker.eof:
            raise ValueError("it is cut off or too large")
        document = json.loads(text)
        if document["version"] != _VERSION:
            raise ValueError(f"version {str(document['version'])[:20]} is not known")
        rows = tuple(_row(*row) for row in document["rows"])
        if not _TIME.match(document["time"]):
            raise ValueError("its time is not RFC 3339 in UTC")
        return SampleBatch(check_id(document["host"], "host"), document["time"], rows)
    except (zlib.error, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"it is not a batch: {type(error).__name__}: {error}"[:200]) from None


def _row(instance: Any, scope: Any, values: Any) -> SampleRow:
    if instance is not None:
        check_id(instance, "instance")
    if scope not in SCOPES:
        raise ValueError(f"scope {str(scope)[:20]!r} is not known")
    for metric, value in values.items():
        check_id(metric, "metric")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{metric} is not a finite number")
    return SampleRow(instance, cast(Scope, scope), {metric: float(value) for metric, value in values.items()})


_NAME = re.compile(r"(?P<number>\d{12,})-(?P<samples>\d{1,9})\.json\.gz\Z", re.ASCII)
_ASIDE = re.compile(r"(?P<number>\d{12})-\d{1,9}\.json\.gz(?:\.\d+)?\.(?:bad|refused)\Z", re.ASCII)
_FAR = 500_000_000_000  # no agent counts so far; a batch with such a number is renumbered, so that later ones follow it
_MOST_ASIDE = 100  # put-aside files that are kept; they are only there for people to inspect
_MOST_HELD = 60  # batches in memory while the disk takes none: ten minutes of windows of 10 s
_LOCK, _COUNTS, _BROKEN, _REFUSED = "lock", "counts.json", ".bad", ".refused"


class SpoolError(StartError):
    """The spool cannot be used."""


@dataclass(frozen=True, slots=True)
class SpoolEntry:
    """A batch that waits; in memory (`batch`) only as long as the disk does not take it."""

    number: int
    samples: int
    bytes: int = 0
    batch: SampleBatch | None = None

    @property
    def name(self) -> str:
        return f"{self.number:012d}-{self.samples}.json.gz"


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """What waits now, and what was lost since the spool was made (failed writes: since the agent started)."""

    bytes: int
    batches: int
    held: int
    dropped_batches: int
    dropped_samples: int
    broken: int
    refused: int
    write_failures: int


class Spool:
    """A directory of batches: `put` takes one at once, `store` writes it, `oldest` to `acknowledge` are for sending."""

    def __init__(self, directory: Path, most_bytes: int, log: Log) -> None:
        """Take over what an earlier agent left. Raises SpoolError when the directory cannot be written or is in use."""
        self._directory = directory
        self._most_bytes = most_bytes
        self._log = log
        self._inbox: deque[SampleBatch] = deque()
        self._overflow: deque[SampleBatch] = deque()  # dropped from the inbox, to be counted by `store`
        self._lock = threading.Lock()
        self._waiting: dict[int, SpoolEntry] = {}  # by number, oldest first
        self._next = 1  # never given twice while this agent runs
        self._losses = SpoolLosses()
        self._bytes = 0
        self._write_failures = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolError(
                f"spool {directory} cannot be written ({error.strerror}); name another with --spool"
            ) from None
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock_file)
            raise SpoolError(
                f"spool {directory} is in use by another agent; stop it, or name another with --spool"
            ) from None
        try:
            self._take_over()
        except OSError as error:
            os.close(self._lock_file)
            raise SpoolError(
                f"spool {directory} cannot be read ({error.strerror}); name another with --spool"
            ) from None

    def close(self) -> None:
        """Let another agent use the directory."""
        os.close(self._lock_file)

    def put(self, batch: SampleBatch) -> None:
        """Take a batch into memory; `store` writes it. Over the limit the oldest in memory is dropped."""
        if len(self._inbox) >= _MOST_HELD:  # the disk hangs, and `store` with it
            with contextlib.suppress(IndexError):
                self._overflow.append(self._inbox.popleft())
        self._inbox.append(batch)

    def store(self) -> bool:
        """Write everything that is in memory, oldest first; False when the disk does not take it. For one thread."""
        with self._lock:
            while self._overflow:
                self._count(dropped_batches=1, dropped_samples=self._overflow.popleft().size)
            while self._inbox:
                batch = self._inbox.popleft()
                self._waiting[self._next] = SpoolEntry(self._next, batch.size, 0, batch)
                self._next += 1
            held = [entry for entry in self._waiting.values() if entry.batch is not None]
            stored = all(self._write(entry) for entry in held)  # the first refusal ends it
            self._bound_memory()
            return stored

    def oldest(self, most_samples: int) -> list[SpoolEntry]:
        """The batches to send next: at most `most_samples` samples together, but at least one batch if there is any."""
        chosen: list[SpoolEntry] = []
        total = 0
        with self._lock:
            for entry in self._waiting.values():
                total += entry.samples
                if chosen and total > most_samples:
                    break
                chosen.append(entry)
        return chosen

    def read(self, entry: SpoolEntry) -> SampleBatch | None:
        """The batch of an entry; None when it is gone, or broken and therefore put aside. Raises OSError."""
        if entry.batch is not None:
            return entry.batch
        try:
            return decode((self._directory / entry.name).read_bytes())
        except FileNotFoundError:
            with self._lock:
                self._forget(entry)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno != errno.EIO:
                raise  # such as too many open files, which says nothing about this one
            with self._lock:
                self._forget(entry)
                self._put_aside(entry.name, _BROKEN)
                self._count(broken=1)
            self._log.warn("spool_broken", file=entry.name, error=str(error)[:200])
        return None

    def acknowledge(self, entries: Sequence[SpoolEntry]) -> None:
        """Remove batches that the server has. One that cannot be removed is sent again later, which does no harm."""
        with self._lock:
            for entry in entries:
                if self._forget(entry):
                    with contextlib.suppress(OSError):
                        (self._directory / entry.name).unlink(missing_ok=True)

    def refuse(self, entry: SpoolEntry) -> None:
        """Put a batch aside that the server will never take."""
        with self._lock:
            if self._forget(entry):
                self._put_aside(entry.name, _REFUSED)
                self._count(refused=1)

    def status(self) -> SpoolStatus:
        """Numbers of now; does not wait for a slow disk."""
        entries = list(self._waiting.values())
        held = sum(entry.batch is not None for entry in entries)
        return SpoolStatus(
            self._bytes, len(entries) - held, held + len(self._inbox), **asdict(self._losses),
            write_failures=self._write_failures,
        )  # fmt: skip

    def _take_over(self) -> None:
        self._losses = SpoolLosses.load(self._directory / _COUNTS)
        paths = [path for path in sorted(self._directory.iterdir()) if path.is_file() and not path.is_symlink()]
        aside = [int(match["number"]) for path in paths if (match := _ASIDE.match(path.name))]
        self._next = max((number for number in aside if number < _FAR), default=0) + 1
        batches: dict[int, tuple[Path, SpoolEntry]] = {}
        for path in paths:
            if path.name in (_LOCK, _COUNTS) or path.suffix in (_BROKEN, _REFUSED):
                continue
            entry = _entry(path)
            if path.suffix == TEMPORARY:
                path.unlink()  # never finished, so nothing relies on it
            elif entry is None or entry.number in batches:
                self._put_aside(path.name, _BROKEN)
                self._count(broken=1)
                self._log.warn("spool_broken", file=path.name, error="this file is not a batch")
            else:
                batches[entry.number] = path, entry
        for number in sorted(batches):
            self._take_batch(*batches[number])

    def _take_batch(self, path: Path, entry: SpoolEntry) -> None:
        if entry.number >= _FAR:
            entry = replace(entry, number=self._next)
            path.rename(self._directory / entry.name)
        self._waiting[entry.number] = entry
        self._bytes += entry.bytes
        self._next = max(self._next, entry.number + 1)

    def _write(self, entry: SpoolEntry) -> bool:
        assert entry.batch is not None  # noqa: S101 - held entries only
        data = encode(entry.batch)
        if len(data) > self._most_bytes:
            self._drop(entry)
            return True
        self._make_room(len(data))
        try:
            write_whole(self._directory / entry.name, data)
        except OSError as error:
            self._write_failures += 1
            self._log.warn("spool_write", same=str(error.errno), error=f"the disk takes no batch: {error.strerror}")
            return False
        self._waiting[entry.number] = replace(entry, bytes=len(data), batch=None)
        self._bytes += len(data)
        return True

    def _make_room(self, needed: int) -> None:
        for entry in list(self._waiting.values()):
            if self._bytes + needed <= self._most_bytes:
                return
            if entry.batch is None:
                self._drop(entry)

    def _bound_memory(self) -> None:
        held = [entry for entry in self._waiting.values() if entry.batch is not None]
        for entry in held[: max(0, len(held) - _MOST_HELD)]:
            self._drop(entry)

    def _drop(self, entry: SpoolEntry) -> None:
        self._forget(entry)
        with contextlib.suppress(OSError):
            (self._directory / entry.name).unlink(missing_ok=True)
        self._count(dropped_batches=1, dropped_samples=entry.samples)
        self._log.warn("spool_full", error="the oldest batch is dropped; is the server reachable?")

    def _forget(self, entry: SpoolEntry) -> bool:
        known = self._waiting.pop(entry.number, None)
        if known is not None:
            self._bytes -= known.bytes
        return known is not None

    def _put_aside(self, name: str, ending: str) -> None:
        with contextlib.suppress(OSError):
            names = itertools.chain([f"{name}{ending}"], (f"{name}.{again}{ending}" for again in itertools.count(2)))
            free = next(path for path in map(self._directory.joinpath, names) if not path.exists())
            (self._directory / name).rename(free)
            ours = sorted(path for path in self._directory.iterdir() if _ASIDE.match(path.name))
            for path in ours[: max(0, len(ours) - _MOST_ASIDE)]:
                path.unlink()

    def _count(self, **more: int) -> None:
        self._losses = self._losses.plus(**more)
        self._losses.save(self._directory / _COUNTS)


def _entry(path: Path) -> SpoolEntry | None:
    """The batch that a file's name says it is; None when no agent gives this name."""
    match = _NAME.match(path.name)
    if match is None:
        return None
    entry = SpoolEntry(int(match["number"]), int(match["samples"]), path.stat().st_size)
    return entry if entry.name == path.name else None
