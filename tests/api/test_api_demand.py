"""Demand in bodies: one number or a distribution, answered in full, refused where it cannot be; and measured."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from advisor.errors import InvalidInput
from api.schemas.inventory import InstanceItem
from api.web.instance import demand_rows
from profiler.demand import Demand
from profiler.observed import Instance
from tests.api.api_client import Client
from tests.api.page_reader import Page


def test_one_number_and_a_distribution_are_both_taken() -> None:
    body = {"id": "a", "vcpus": 2, "demand": {"cpu": {"mean": 0.4, "p95": 0.9}, "net_mbit": 20}}
    found = InstanceItem.model_validate(body).as_domain()
    assert dict(found.demand) == {"cpu": Demand(0.4, p95=0.9), "net_mbit": Demand(20.0, "net_mbit")}


@pytest.mark.parametrize(
    ("demand", "reason"),
    [
        ({"cpu": 2.5}, "above its 2 vCPUs"),
        ({"cpu": {"mean": 1, "p95": 2, "p99": 1}}, "do not grow"),
        ({"cpu": {"mean": 1, "hours": [1.0]}}, "24 or 168"),
    ],
)
def test_a_demand_that_cannot_be_is_refused(demand: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        InstanceItem.model_validate({"id": "a", "vcpus": 2, "demand": demand}).as_domain()


def test_what_was_measured_and_is_sent_back_for_a_smaller_instance_is_held_to_its_vcpus() -> None:
    demand = {"cpu": {"mean": 1.5, "p95": 1.9, "origin": "measured"}}
    found = InstanceItem.model_validate({"id": "a", "vcpus": 1, "demand": demand}).as_domain()
    assert dict(found.demand) == {"cpu": Demand(1.0, p95=1.0, origin="measured")}


def _send(client: Client, instance: str, host: str, cpu: float, *, hours: float = 2.0) -> None:
    """One sample of five minutes' CPU and waiting after the other, until now."""
    now, number = datetime.now(UTC), round(hours * 12)
    for at in range(number):
        time = (now - timedelta(minutes=5 * (number - 1 - at))).isoformat()
        same = {"host": host, "instance": instance, "time": time}
        samples = [{**same, "metric": name, "value": value} for name, value in (("cpu", cpu), ("waiting", 20.0))]
        assert client.ask("POST", "/v1/samples", json={"samples": samples}).json()["accepted"] == 2


def test_windows_that_are_sent_are_shown_as_demand_with_their_origin(client: Client) -> None:
    assert client.get("/v1/instances/mystery").json()["demand"] == {}
    _send(client, "mystery", "h4", 300.0)
    found = client.get("/v1/instances/mystery").json()["demand"]["cpu"]
    assert (found["mean"], found["origin"]) == (pytest.approx(3 / (1 - 0.025 * 0.4)), "measured")
    assert found["windows"] >= 12 and found["doubt"] > 0 and found["spread"] > 0
    shown = Page(client.page("/instances/mystery").text).text
    assert "Demand" in shown and "3.03 CPUs" in shown and "windows of 5 min, measured" in shown
    counted = re.search(
        r"Answers count with ([\d.]+) ± [\d.]+ CPUs: only (\d) of the 24 hours of a day were seen", shown
    )
    assert counted is not None and float(counted[1]) < 3.03 and counted[2] in "23"
    listed = client.get("/v1/instances?host=h4").json()["items"]
    assert listed[0]["demand"]["cpu"]["origin"] == "measured"
    gauge = [line for line in client.get("/metrics").text.splitlines() if line.startswith("cotenant_instances{")]
    assert 'cotenant_instances{demand="measured"} 1.0' in gauge
    assert 'cotenant_instances{demand="size"} 0.0' in gauge


def test_a_day_of_which_every_hour_was_seen_a_little_is_not_called_short_of_hours() -> None:
    seen = Demand(2.0, spread=0.1, windows=24.0, seen_hours=(1.0,) * 24, origin="measured")
    stored, expected = (Instance("a", vcpus=4, demand={"cpu": one}) for one in (seen, replace(seen, mean=1.5)))
    (row,) = demand_rows(stored, expected)
    assert row.counted.startswith("Answers count with 1.5 CPUs: no whole day was seen")


def test_what_was_measured_counts_in_the_next_answer(client: Client) -> None:
    question = {
        "instance": {"id": "new", "vcpus": 8, "memory_mb": 1024, "demand": {"cpu": 6.0}},
        "hosts": ["h4"],
        "dry_run": True,
    }

    def kept() -> float:
        answer = client.ask("POST", "/v1/placements", json=question).json()
        return float(answer["candidates"][0]["new_vm"]["throughput_ratio"]["expected"])

    before = kept()
    _send(client, "mystery", "h4", 780.0)
    assert kept() < before - 0.1


def test_the_entity_tag_of_a_put_holds_for_what_is_measured_too(client: Client) -> None:
    _send(client, "mystery", "h4", 300.0)
    body = {"vcpus": 8, "memory_mb": 8192, "host": "h4"}
    put = client.ask("PUT", "/v1/instances/mystery", json=body)
    assert put.json()["demand"]["cpu"]["origin"] == "measured"
    again = client.ask("PUT", "/v1/instances/mystery", json=body, headers={"If-Match": put.headers["ETag"]})
    assert again.status_code == 200
    assert client.get("/v1/instances/mystery").headers["ETag"] == again.headers["ETag"]


def test_what_is_given_by_hand_is_shown_as_given(client: Client) -> None:
    body = {"vcpus": 8, "memory_mb": 8192, "host": "h4", "demand": {"cpu": 0.5}}
    client.ask("PUT", "/v1/instances/mystery", json=body)
    _send(client, "mystery", "h4", 300.0)
    found = client.get("/v1/instances/mystery").json()["demand"]["cpu"]
    assert (found["mean"], found["origin"]) == (0.5, "given")
    shown = Page(client.page("/instances/mystery").text).text
    assert "0.5 CPUs" in shown and "given" in shown
