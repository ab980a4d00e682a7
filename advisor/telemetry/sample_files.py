"""Samples from files: JSON lines as the agent sends and keeps them, read strictly."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from advisor.errors import InvalidInput
from advisor.validation import MAX_NUMBER, load_json
from profiler import files
from profiler.metrics import SCOPES
from profiler.observed import MetricSample, check_id

MAX_LINE = 16 * files.MEGABYTE  # a batch of the agent is far smaller
MOST_BYTES = 4096 * files.MEGABYTE  # of all lines of a file
LAST_S = 253_370_764_800  # the year 9999


def read_samples(paths: Sequence[Path]) -> list[MetricSample]:
    """Read samples as JSON lines, plain or gzip: each a sample of `POST /v1/samples`, or a whole body of it.

    InvalidInput names the file and line that is wrong. A last line without its end, which a killed writer leaves, is
    skipped.
    """
    return [sample for path in paths for sample in _samples_of(path)]


def _samples_of(path: Path) -> Iterator[MetricSample]:
    try:
        with path.open("rb") as probe:
            packed = probe.read(2) == files.GZIP
        with files.open_limited(path, MOST_BYTES, packed=packed) as file:
            for number, line in enumerate(files.lines(file, MAX_LINE), start=1):
                if line.strip():
                    yield from _of_line(path, number, line)
    except (OSError, EOFError, zlib.error, files.TooLargeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"samples cannot be read from {path}: {reason}", field="samples") from error


def _of_line(path: Path, number: int, line: bytes) -> Iterator[MetricSample]:
    try:
        entry = load_json(line)
    except (ValueError, RecursionError) as error:
        if not line.endswith(b"\n") and number > 1:
            return
        raise InvalidInput(f"{path}, line {number}: it is not JSON", field="samples") from error
    batch = entry.get("samples") if isinstance(entry, dict) and "samples" in entry else [entry]
    if not isinstance(batch, list):
        raise InvalidInput(f"{path}, line {number}: samples is not a list", field="samples")
    for item in batch:
        try:
            yield _sample(item)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            reason = f"{error.args[0]} is missing" if isinstance(error, KeyError) else error
            raise InvalidInput(f"{path}, line {number}: {reason}", field="samples") from error


def _sample(entry: Any) -> MetricSample:
    """One sample as `POST /v1/samples` takes it; `time_s` may stand for `time`."""
    if not isinstance(entry, dict):
        raise TypeError("it is not a sample: host, instance, metric, value, time")
    instance, metric = entry.get("instance"), check_id(_text(entry["metric"]), "metric")
    scope_text = entry.get("scope") or ("host" if instance is None else "instance")
    scope = next((known for known in SCOPES if known == scope_text), None)
    if scope is None:
        raise ValueError(f"scope {str(scope_text)[:40]!r} is none of {', '.join(SCOPES)}")
    value = _number(entry["value"], "value", MAX_NUMBER)
    time_s = _number(entry["time_s"], "time_s", LAST_S) if "time_s" in entry else _time(_text(entry["time"]))
    owner = None if instance is None else check_id(_text(instance), "instance")
    return MetricSample(check_id(_text(entry["host"]), "host"), owner, scope, metric, value, time_s)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is not a text")
    return value


def _number(value: Any, name: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError(f"{name} {str(value)[:40]} is not a number from 0 to {most:.3g}")
    return float(value)


def _time(text: str) -> float:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"time {text[:40]!r} has no zone")
    return _number(time.timestamp(), "time", LAST_S)
