"""Samples as Prometheus remote write 1.0 takes them: a protobuf of series, in a block of snappy.

The message is `prometheus.WriteRequest` (prometheus/prompb/remote.proto): series of sorted labels with samples. The
block holds literals only (google/snappy, format_description.txt), which every reader takes: it costs no CPU time here,
and five times the bytes on the way to a store that is near.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from profiler.agent.http_client import PATH, HttpAnswer, HttpClient
from profiler.agent.spool import samples_in
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
SAMPLE = struct.Struct("<BdB")  # field 1, a double; field 2, a varint


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
        labels, factor = labels_of(sample.host, sample.instance, sample.scope, sample.metric)
        value = SAMPLE.pack(0x09, sample.value * factor, 0x10) + varint(int(sample.time_s * 1000))
        series = labels + b"\x12" + varint(len(value)) + value
        parts.append(b"\x0a" + varint(len(series)) + series)
    return literals(b"".join(parts))


def is_refusal(status: int, said: str) -> bool:
    """Whether a store will never take what it was sent: as too old, or as another value of the same time."""
    return status == 400 or _TOO_OLD in said


@lru_cache(maxsize=_SERIES_KEPT)
def labels_of(host: str, instance: str | None, scope: str, metric: str) -> tuple[bytes, float]:
    """The labels of a series as fields of the message, and the factor to its gauge's unit."""
    name, others, factor = gauge_name(metric, scope, owned=instance is not None)
    labels = {"__name__": name, "host": host, "scope": scope, **others}
    if instance is not None:
        labels["instance"] = instance
    fields = (_text(b"\x0a", key) + _text(b"\x12", labels[key]) for key in sorted(labels))
    return b"".join(b"\x0a" + varint(len(field)) + field for field in fields), factor


def _text(tag: bytes, text: str) -> bytes:
    data = text.encode()
    return tag + varint(len(data)) + data


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def literals(data: bytes) -> bytes:
    """A block of snappy that holds these bytes as they are."""
    blocks = [varint(len(data))]
    for begin in range(0, len(data), _LITERAL):
        block = data[begin : begin + _LITERAL]
        blocks += [b"\xf4" + struct.pack("<H", len(block) - 1), block]  # 61 << 2: a literal, its length in two bytes
    return b"".join(blocks)


# An agent's way to a time-series database: batches for the server become a remote write, and its answer the server's.
#
# So the spool and the retries are the same, whichever gets the windows. A store says yes or no to a whole batch.


class StoreConnection:
    """Carries batches of samples to a Prometheus-compatible store; for one thread, as the client that it speaks by."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def post(self, body: bytes, to: str = PATH) -> HttpAnswer:  # noqa: ARG002 - a store has one path
        """Write a body of `POST /v1/samples`; HttpError when there is no whole answer in time.

        What the store will never take is 400, which the agent sends window by window, and sets aside what is at fault.
        """
        samples = [
            MetricSample(
                row["host"], row["instance"], row["scope"], row["metric"], row["value"],  # type: ignore[arg-type]
                datetime.fromisoformat(str(row["time"])).timestamp(),
            )
            for row in samples_in(json.loads(body))
        ]  # fmt: skip
        answer = self._client.post(write_request(samples), "", HEADERS)
        said = answer.body[:300].decode("utf-8", "replace")
        if is_refusal(answer.status, said):
            return HttpAnswer(400, json.dumps({"detail": said}).encode(), None)
        if 200 <= answer.status < 300:
            taken = {"accepted": len(samples), "duplicate": 0, "dropped": 0}
            return HttpAnswer(200, json.dumps(taken).encode(), None)
        return answer

    def interrupt(self) -> None:
        self._client.interrupt()

    def close(self) -> None:
        self._client.close()
