"""What a remote write holds, read back by the formats' definitions: snappy blocks, protobuf fields, label by label."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator

import numpy as np
import pytest

from advisor.telemetry.layouts import Template
from profiler.agent.http_client import HttpAnswer, HttpClient, parse_url
from profiler.agent.store_connection import StoreConnection, write_request
from profiler.observed import MetricSample


def varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def unpacked(block: bytes) -> bytes:
    """Of literals with lengths in the tag, in one byte or in two (format_description.txt, 2.1)."""
    length, at = varint(block, 0)
    data = b""
    while at < len(block):
        tag = block[at]
        assert tag & 3 == 0, "a literal"
        extra = max((tag >> 2) - 59, 0)
        size = (int.from_bytes(block[at + 1 : at + 1 + extra], "little") if extra else tag >> 2) + 1
        at += 1 + extra
        data, at = data + block[at : at + size], at + size
    assert len(data) == length
    return data


def fields(data: bytes) -> Iterator[tuple[int, bytes | int | float]]:
    """Numbers of fields with their values (protobuf's encoding): varints, doubles, and what has a length."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
            yield key >> 3, value
        elif key & 7 == 1:
            yield key >> 3, struct.unpack("<d", data[at : at + 8])[0]
            at += 8
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            yield key >> 3, data[at : at + size]
            at += size


def series(body: bytes) -> list[tuple[dict[str, str], float, int]]:
    """Labels, value and time in ms of each series of a `WriteRequest`; labels are in order."""
    found = []
    for number, one in fields(unpacked(body)):
        assert number == 1
        assert isinstance(one, bytes)
        labels, (sample,) = [], [value for field, value in fields(one) if field == 2]
        for field, value in fields(one):
            if field == 1:
                assert isinstance(value, bytes)
                (_, name), (_, text) = fields(value)
                assert isinstance(name, bytes)
                assert isinstance(text, bytes)
                labels.append((name.decode(), text.decode()))
        assert labels == sorted(labels)
        assert isinstance(sample, bytes)
        (_, number_of), (_, time_ms) = fields(sample)
        assert isinstance(number_of, float)
        assert isinstance(time_ms, int)
        found.append((dict(labels), number_of, time_ms))
    return found


@pytest.mark.parametrize(
    ("sample", "labels", "value"),
    [
        (
            ("i1", "instance", "cpu", 61.5),
            {"__name__": "cotenant_cpu_ratio", "instance": "i1", "statistic": "mean"},
            0.615,
        ),
        (
            ("i1", "instance", "cpu_p95", 80.0),
            {"__name__": "cotenant_cpu_ratio", "instance": "i1", "statistic": "p95"},
            0.8,
        ),
        ((None, "host", "switch", 9.0), {"__name__": "cotenant_switch_per_second", "statistic": "mean"}, 9.0),
        (
            ("i1", "driver_domain", "cpu", 5.0),
            {"__name__": "cotenant_attributed_cpu_ratio", "instance": "i1", "statistic": "mean"},
            0.05,
        ),
        (
            ("i1", "instance", "waited_for:i2", 3.0),
            {"__name__": "cotenant_waited_for_ratio", "instance": "i1", "other": "i2", "statistic": "mean"},
            0.03,
        ),
        (
            ("i1", "instance", "sessions.open", 7.0),
            {"__name__": "cotenant_other", "instance": "i1", "metric": "sessions.open", "statistic": "mean"},
            7.0,
        ),
    ],
)
def test_a_sample_has_the_exporters_name_labels_and_unit(
    sample: tuple[str | None, str, str, float], labels: dict[str, str], value: float
) -> None:
    instance, scope, metric, measured = sample
    body = write_request([MetricSample("h1", instance, scope, metric, measured, 1_795_000_000.0379)])  # type: ignore[arg-type]
    assert series(body) == [({"host": "h1", "scope": scope, **labels}, pytest.approx(value), 1_795_000_000_037)]


def test_many_samples_are_in_several_literals() -> None:
    sent = [MetricSample("h1", f"i{one}", "instance", "cpu", float(one), 60.0 * one) for one in range(2000)]
    body = write_request(sent)
    assert len(body) > 2 << 16
    assert [(labels["instance"], time_ms) for labels, _, time_ms in series(body)] == [
        (f"i{one}", 60_000 * one) for one in range(2000)
    ]


class Client(HttpClient):
    """Answers what it was made with, and keeps what it got."""

    def __init__(self, status: int, said: bytes = b"") -> None:
        super().__init__(parse_url("http://127.0.0.1/api/v1/write"), lambda: None, "test/1")
        self.answer, self.got = HttpAnswer(status, said, "7"), b""

    def post(self, body: bytes, to: str = "", content: object = None) -> HttpAnswer:
        self.got = body
        return self.answer


BATCH = json.dumps(
    {
        "samples": [
            {
                "host": "h1",
                "instance": None,
                "scope": "host",
                "metric": "busy",
                "value": 50.0,
                "time": "2026-11-29T12:00:00Z",
            }
        ]
    }
).encode()


def test_an_agents_store_answers_as_the_service_would() -> None:
    client = Client(204)
    answer = StoreConnection(client).post(BATCH)
    assert (answer.status, json.loads(answer.body)) == (200, {"accepted": 1, "duplicate": 0, "dropped": 0})
    assert series(client.got)[0][2] == 1_795_953_600_000


@pytest.mark.parametrize(
    ("status", "said", "becomes"), [(400, b"out of order", 400), (500, b"too old sample", 400), (503, b"", 503)]
)
def test_what_a_store_never_takes_differs_from_what_it_may_take_later(status: int, said: bytes, becomes: int) -> None:
    answer = StoreConnection(Client(status, said)).post(BATCH)
    assert answer.status == becomes
    assert answer.retry_after == ("7" if becomes == 503 else None)


def test_a_body_of_known_series_is_that_of_its_samples() -> None:
    chance = random.Random(1)
    series = [
        *(
            ("h1", f"i{at}", "instance", metric)
            for at in range(900)
            for metric in ("cpu", "cpu_p95", "waited_for:i1", "x")
        ),
        ("h1", "", "host", "busy"),
        ("h1", "", "driver_domain", "cpu"),
        ("h1", "i1", "driver_domain", "cpu"),
    ]
    template = Template.of(series)
    for time_s in (1_769_860_800.25, 1_769_860_860.001):
        values = [chance.uniform(0, 1e6) for _ in series]
        samples = [
            MetricSample(host, instance or None, scope, metric, value, time_s)  # type: ignore[arg-type]
            for (host, instance, scope, metric), value in zip(series, values, strict=True)
        ]
        assert template.body(np.array(values), time_s) == write_request(samples)
