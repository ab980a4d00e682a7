"""One window on its way to the server: compact and compressed in the spool, samples of the API on the wire."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from profiler.collectors.samples import SampleRow
from profiler.collectors.windows import MetricWindow
from profiler.metrics import BY_NAME, SCOPES, Scope
from profiler.observed import check_id

_VERSION = 1
_GZIP = 31  # window bits that make zlib write and read gzip, so that zcat shows a batch
_LEVEL = 1
_LARGEST = 1 << 26  # unpacked; a window of a thousand instances is under 2 MB
_DIGITS = 7  # significant ones: far below what any counter resolves, and half the size

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


def batch_of(window: MetricWindow) -> SampleBatch:
    """Means under the metrics' names, and 95th percentiles of the eight as `<name>_p95`."""
    rows: dict[tuple[str | None, Scope], dict[str, float]] = {}
    for (instance, scope, metric), statistic in window.series.items():
        values = rows.setdefault((instance, scope), {})
        values[metric] = _short(statistic.mean)
        if metric in BY_NAME:
            values[f"{metric}_p95"] = _short(statistic.p95)
    time = datetime.fromtimestamp(window.end_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return SampleBatch(window.host, time, tuple(SampleRow(*key, values) for key, values in rows.items()))


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


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
