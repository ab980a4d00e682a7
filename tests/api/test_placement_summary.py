"""A placement answer in short says the same as the whole one, in a tenth of the bytes."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from advisor.domain import (
    Band,
    Headroom,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    Recommendation,
    RecommendationSummary,
    Rejection,
    WorkloadProfile,
    codec,
)
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api import sample_answer
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables

QUESTION = {"instance": {"id": "new", "vcpus": 2, "memory_mb": 4096, "workload": "web"}, "limit": 12}
ASKED = PlacementRequest(Instance("n"))


@pytest.fixture
def crowded(settings: Settings, tmp_path: Any) -> Any:
    """12 hosts with 150 instances of three workloads on them."""
    own = settings.model_copy(update={"database": sqlite_with_tables(tmp_path / "crowded.sqlite3")})
    workloads = tuple(
        WorkloadProfile(name, {"cpu": cpu, "pages_exchanged": pages})
        for name, cpu, pages in (("web", 40.0, 5200.0), ("files", 15.0, 29000.0), ("batch", 100.0, 2.0))
    )
    hosts = tuple(Host(f"kvm{number:02}", "kvm", 32, 262_144, nic_mbit=10_000) for number in range(12))
    instances = tuple(
        Instance(f"vm-{at:03}", 2, 4096, host=hosts[at % 12].id, workload=workloads[at % 3].name) for at in range(150)
    )
    with Advisor(own) as advisor:
        advisor.inventory.put(Inventory(hosts, instances, workloads), mode="replace", generation=None)
        yield Client(create_app(advisor, own))


@pytest.mark.parametrize("limit", [1, 5, 12])
def test_on_12_hosts_with_150_instances_it_is_at_most_a_tenth(crowded: Client, limit: int) -> None:
    body = {**QUESTION, "limit": limit, "dry_run": True}
    short = crowded.ask("POST", "/v1/placements?summary=true", json=body)
    assert short.status_code == 200, short.text
    whole = crowded.get(f"/v1/placements/{short.json()['id']}")
    assert len(whole.json()["candidates"]) == len(short.json()["candidates"]) == limit
    assert len(short.content) <= len(whole.content) / 10


def test_what_is_stored_stays_whole_and_can_be_read_either_way(crowded: Client) -> None:
    asked = crowded.ask("POST", "/v1/placements?summary=true", json=QUESTION)
    path = asked.headers["location"]
    assert crowded.get(f"{path}?summary=true").json() == asked.json()
    whole = crowded.get(path).json()
    assert "evidence" in whole
    first, short = whole["candidates"][0], asked.json()["candidates"][0]
    assert [one["host"] for one in whole["candidates"]] == [one["host"] for one in asked.json()["candidates"]]
    worst = min(first["neighbours"], key=lambda one: one["throughput_ratio"]["expected"])
    assert short["worst_neighbour"]["instance"] == worst["instance"]
    for reported, said in (
        (first["new_vm"]["throughput_ratio"], short["throughput_ratio"]),
        (worst["throughput_ratio"], short["worst_neighbour"]["throughput_ratio"]),
    ):
        assert said == reported
    assert short["score"] == round(first["score"], 4)


def test_a_batch_is_answered_in_short_too(crowded: Client) -> None:
    body = {"instances": [{"id": name, "vcpus": 1, "workload": "web"} for name in "ab"], "dry_run": True}
    (first, second) = crowded.ask("POST", "/v1/placements:batch?summary=true", json=body).json()["answers"]
    assert set(first) == set(second) == {each.name for each in fields(RecommendationSummary)}
    assert [len(one["candidates"]) for one in (first, second)] == [1, 1]


def short_of(answer: Recommendation) -> Any:
    return codec.answer_values(RecommendationSummary.of(answer))


def test_it_says_whether_neighbours_change_and_that_a_host_is_empty() -> None:
    best, second = short_of(sample_answer.answer(ASKED))["candidates"]
    assert (best["changes_neighbours"], best["worst_neighbour"]["instance"]) == (True, "shop-3")
    assert best["pinning"] == {"0": [2], "1": [3]}
    assert (second["changes_neighbours"], second["worst_neighbour"], second["pinning"]) == (False, None, None)


def test_hosts_that_are_rejected_for_one_reason_are_reported_together_and_keep_their_order() -> None:
    many = tuple(
        Rejection(host, code, reason)
        for host, code, reason in (
            ("h3", "host.disabled", "is disabled"),
            ("h1", "capacity.memory", "needs 2 MB, 1 MB free"),
            ("h2", "host.disabled", "is disabled"),
            ("h4", "capacity.memory", "needs 2 MB, 0 MB free"),
        )
    )
    assert short_of(sample_answer.answer(ASKED, rejected=many))["rejected"] == [
        {"code": "host.disabled", "reason": "is disabled", "hosts": ["h3", "h2"]},
        {"code": "capacity.memory", "reason": "needs 2 MB, 1 MB free", "hosts": ["h1"]},
        {"code": "capacity.memory", "reason": "needs 2 MB, 0 MB free", "hosts": ["h4"]},
    ]


def test_of_hosts_that_are_tied_ten_are_named_and_what_is_not_finite_is_null() -> None:
    whole = sample_answer.answer(ASKED)
    best = whole.candidates[0]
    new_vm = replace(best.new_vm, throughput_ratio=Band(0.123456, float("-inf"), float("inf")))
    tied, left = tuple(f"t{number}" for number in range(30)), Headroom(0.51249, -0.25, 1.0)
    odd = replace(best, tied_with=tied, new_vm=new_vm, headroom=left)
    (short,) = short_of(replace(whole, candidates=(odd,)))["candidates"]
    assert short["tied_with"] == list(tied[:10])
    assert short["throughput_ratio"] == {"expected": 0.1235, "lower": None, "upper": None}
    assert (short["headroom"]["cpu"], short["headroom"]["memory"]) == (0.5125, -0.25)
    assert len(codec.answer_values(replace(whole, candidates=(odd,)))["candidates"][0]["tied_with"]) == 30
