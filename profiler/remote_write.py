"""Samples as Prometheus remote write 1.0 takes them: a protobuf of series, in a block of snappy.

The message is `prometheus.WriteRequest` (prometheus/prompb/remote.proto): series of sorted labels with samples. The
block holds literals only (google/snappy, format_description.txt), which every reader takes: it costs no CPU time here,
and five times the bytes on the way to a store that is near.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache

from profiler.metrics import ADDITIONAL_UNITS, ATTRIBUTED, BY_NAME, PREFIX, WAITED_FOR, gauge_of
from profiler.observed import MetricSample

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
_TOO_OLD = "too old sample"  # Prometheus says so with 500 before its pull request 13335 (January 2024)
OTHER = f"{PREFIX}other"  # with the label `metric`: what is none of the agent's own metrics
WAITED = f"{PREFIX}waited_for_ratio"  # with the label `other`: the instance that ran meanwhile
P95 = "_p95"
_SERIES_KEPT = 1 << 17  # of which the labels are kept as bytes, about 250 each
_LITERAL = 1 << 16  # bytes of one literal, whose length is written in two
_SAMPLE = struct.Struct("<BdB")  # field 1, a double; field 2, a varint


def gauge_name(metric: str, scope: str, *, owned: bool) -> tuple[str, dict[str, str], float]:
    """The exporter's gauge of a metric: its name, labels beside host, instance and scope, and the factor to its unit.

    `owned` = it is of an instance. `cpu` of scope `instance` → `cotenant_cpu_ratio`, `statistic="mean"`, 0.01.
    """
    base = metric.removesuffix(P95)
    labels = {"statistic": "mean" if base == metric else "p95"}
    if base.startswith(WAITED_FOR):
        return WAITED, {**labels, "other": base.removeprefix(WAITED_FOR)}, 0.01
    unit = BY_NAME[base].unit if base in BY_NAME else ADDITIONAL_UNITS.get(base)
    if unit is None:
        return OTHER, {**labels, "metric": base}, 1.0
    gauge, factor = gauge_of(base, unit)
    return f"{ATTRIBUTED if scope == 'driver_domain' and owned else PREFIX}{gauge}", labels, factor


def write_request(samples: Iterable[MetricSample]) -> bytes:
    """The body of a remote write: every sample as a series with one value, times in whole ms (rounded down)."""
    parts = []
    for sample in samples:
        labels, factor = _labels(sample.host, sample.instance, sample.scope, sample.metric)
        value = _SAMPLE.pack(0x09, sample.value * factor, 0x10) + _varint(int(sample.time_s * 1000))
        series = labels + b"\x12" + _varint(len(value)) + value
        parts.append(b"\x0a" + _varint(len(series)) + series)
    return _literals(b"".join(parts))


def is_refusal(status: int, said: str) -> bool:
    """Whether a store will never take what it was sent: as too old, or as another value of the same time."""
    return status == 400 or _TOO_OLD in said


@lru_cache(maxsize=_SERIES_KEPT)
def _labels(host: str, instance: str | None, scope: str, metric: str) -> tuple[bytes, float]:
    name, others, factor = gauge_name(metric, scope, owned=instance is not None)
    labels = {"__name__": name, "host": host, "scope": scope, **others}
    if instance is not None:
        labels["instance"] = instance
    fields = (_text(b"\x0a", key) + _text(b"\x12", labels[key]) for key in sorted(labels))
    return b"".join(b"\x0a" + _varint(len(field)) + field for field in fields), factor


def _text(tag: bytes, text: str) -> bytes:
    data = text.encode()
    return tag + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _literals(data: bytes) -> bytes:
    blocks = [_varint(len(data))]
    for begin in range(0, len(data), _LITERAL):
        block = data[begin : begin + _LITERAL]
        blocks += [b"\xf4" + struct.pack("<H", len(block) - 1), block]  # 61 << 2: a literal, its length in two bytes
    return b"".join(blocks)
