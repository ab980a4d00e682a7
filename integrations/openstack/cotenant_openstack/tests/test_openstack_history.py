"""History from OpenStack's own telemetry: a range as Aetos takes it, and rates out of Gnocchi's means.

Answers of Gnocchi are those of 4.7.1, of Aetos those of 3.0.0, shortened; `make test-openstack` runs both.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cotenant_openstack.history import MOST_SERVERS, PRESET, CloudEndpoint, Gnocchi, MetricStorage

from advisor.domain import Instance
from advisor.errors import SeriesUnavailable
from advisor.telemetry.monitoring_history import read

SERVER, DISK = "a06b34da-481e-4e05-aeff-3890edf20957", "20564a5c-0c25-549d-ac72-7fbb0f7efadc"
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


@dataclass
class Answer:
    status_code: int
    body: bytes

    def iter_content(self, size: int) -> list[bytes]:
        return [self.body[at : at + size] for at in range(0, len(self.body), size)]


@dataclass
class Replayed:
    """In place of keystoneauth's adapter: one answer for each question, which it keeps."""

    answers: list[tuple[int, object]]
    asked: list[dict[str, Any]] = field(default_factory=list)

    def request(self, path: str, method: str, **more: Any) -> Answer:
        self.asked.append({"path": path, "method": method, **more})
        status, body = self.answers[min(len(self.asked), len(self.answers)) - 1]
        return Answer(status, body if isinstance(body, bytes) else json.dumps(body).encode())


def gnocchi(*answers: tuple[int, object], servers: tuple[str, ...] = (SERVER,)) -> tuple[Gnocchi, Replayed]:
    adapter = Replayed(list(answers))
    return Gnocchi(CloudEndpoint(adapter, "Gnocchi"), servers), adapter


def reported(meter: str, values: list[float], resource: str = SERVER, **more: str) -> tuple[int, object]:
    """An answer with windows that end at noon."""
    first = NOON - timedelta(seconds=300 * len(values))
    rows = [[(first + timedelta(seconds=300 * at)).isoformat(), 300.0, value] for at, value in enumerate(values)]
    reference = {"id": resource, "metrics": {meter: "c9185dce-99e3-4a5e-9749-0b12a8e58674"}, **more}
    return 200, {"measures": {resource: {meter: {"mean": rows}}}, "references": [reference]}


def test_what_came_between_two_means_is_the_rate_of_the_later_window() -> None:
    store, adapter = gnocchi(reported("cpu", [0.0, 1.5e11, 3e11]))
    (series,) = store.range("cpu", NOON - timedelta(seconds=300), NOON, 300)
    assert series.labels == {"server": SERVER}
    assert list(series.times) == [(NOON - timedelta(seconds=300)).timestamp(), NOON.timestamp()]
    assert list(series.values) == [0.5, 0.5]
    (asked,) = adapter.asked
    assert (asked["method"], asked["path"]) == ("POST", "/v1/aggregates")
    assert asked["json"]["search"] == {"in": {"id": [SERVER]}}
    assert asked["params"]["start"] == "2026-11-25T11:45:00+00:00", "one window more, for the first difference"


def test_a_counter_that_began_anew_and_a_window_that_is_missing_say_nothing() -> None:
    status, answer = reported("cpu", [9e11, 0.0, 3e11, 6e11, 9e11])
    del answer["measures"][SERVER]["cpu"]["mean"][3]  # type: ignore[index]
    store, _ = gnocchi((status, answer))
    (series,) = store.range("cpu", NOON - timedelta(hours=1), NOON, 300)
    assert list(series.values) == [1.0]


def test_a_mean_that_is_no_number_teaches_nothing() -> None:
    store, _ = gnocchi(reported("cpu", [0.0, 3e11, math.inf, math.nan, 6e11, 9e11]))
    (series,) = store.range("cpu", NOON - timedelta(hours=1), NOON, 300)
    assert list(series.values) == [1.0, 1.0]


def test_disks_are_those_of_their_server_and_a_meter_without_resources_is_none() -> None:
    missing = 404, {"code": 404, "title": "Not Found", "description": "Metric ['x'] does not exist"}
    store, _ = gnocchi(reported("disk.device.read.bytes", [0.0, 3e8], DISK, instance_id=SERVER), missing)
    (series,) = store.range("disk_mb_s", NOON, NOON, 300)
    assert (series.labels, list(series.values)) == ({"server": SERVER}, [1.0])


def test_many_servers_are_asked_about_in_parts() -> None:
    servers = tuple(f"{at:08x}-481e-4e05-aeff-3890edf20957" for at in range(MOST_SERVERS + 1))
    store, adapter = gnocchi((200, {"measures": {}, "references": []}), servers=servers)
    assert list(store.range("cpu", NOON, NOON, 300)) == []
    assert [len(one["json"]["search"]["in"]["id"]) for one in adapter.asked] == [MOST_SERVERS, 1]


REFUSED = {
    "code": 400,
    "title": "Bad Request",
    "description": {"cause": "Metrics cannot be aggregated", "reason": "Granularities are missing"},
}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, REFUSED, "refused the question with 400: .*Granularities are missing"),
        (403, b"", "refuses with 403; the account needs the role"),
        (200, b"<html>", "answered 200 and nothing that Gnocchi would say"),
        (200, {"measures": {SERVER: 7}, "references": []}, "answered 200 and nothing"),
        (503, b"busy", "answered 503 and nothing"),
    ],
)
def test_what_gnocchi_does_not_tell_is_one_error(status: int, body: object, words: str) -> None:
    store, _ = gnocchi((status, body))
    with pytest.raises(SeriesUnavailable, match=words):
        read(store, PRESET, [Instance(SERVER, 2)], since_s=3600.0, now=NOON)


def test_a_range_is_a_subquery_and_what_aetos_refuses_is_reported_in_its_words() -> None:
    said = {"error_message": {"faultcode": "Client", "faultstring": "[400] parse error", "debuginfo": None}}
    empty = {"status": "success", "data": {"resultType": "matrix", "result": []}}
    adapter = Replayed([(200, empty), (400, said)])
    store = MetricStorage(CloudEndpoint(adapter, "Aetos"))
    assert list(store.range("rate(up[5m])", NOON - timedelta(days=1), NOON, 300)) == []
    assert adapter.asked[0]["params"]["query"] == "(rate(up[5m]))[86550s:300s]"
    with pytest.raises(SeriesUnavailable, match=r"Aetos refused the query with 400: \[400\] parse error"):
        store.range("rate(up[5m])", NOON, NOON, 300)
