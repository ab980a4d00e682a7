"""What goes in comes out again: schemas and domain types say the same."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from advisor.domain import (
    Host,
    Instance,
    IsolationSettings,
    Pinning,
    PlacementRequest,
    Plan,
    WorkloadProfile,
    codec,
)
from api.app import ROUTES
from api.schemas.base import Amount, Time
from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem
from api.schemas.placements import PlacementBody
from profiler.demand import Demand
from profiler.observed import NetworkSettings
from tests.api import sample_answer
from tests.api.api_client import Client

HOST = Host(
    id="h1",
    kind="xen",
    pcpus=10,
    memory_mb=1024.5,
    threads_per_core=2,
    cpu_mhz=2400.0,
    l2_mb=1.0,
    l3_mb=8.0,
    nic_mbit=1000.0,
    disk_gb=100.0,
    disk_kind="ssd",
    disk_mb_s=450.0,
    mem_bw_mb_s=20_000.0,
    numa=((0, 1, 2, 3), (4, 5, 6, 7)),
    driver_cpus=(0, 1),
    cpu_ids=(0, 1, 2, 3, 4, 5, 6, 7, 16, 17),
    isolated_cpus=(16, 17),
    siblings=((0, 1), (16, 17)),
    labels={"zone": "a"},
    enabled=False,
    cpu_overcommit=2.0,
    memory_overcommit=1.5,
    driver_overcommit=3.0,
    platform="I",
)
SEEN = (7.0,) + (0.0,) * 23
DEMAND = Demand(0.4, spread=0.1, hours=(1.0,) * 24, windows=7.0, doubt=0.05, origin="measured", seen_hours=SEEN)
INSTANCE = Instance(
    id="a",
    vcpus=2,
    memory_mb=512.0,
    disk_gb=3.0,
    host="h1",
    workload="web 1 KB",
    load=0.5,
    demand={"cpu": DEMAND},
    settings=IsolationSettings(Pinning(((2, 3), ())), 150.0, 512, NetworkSettings("shared", 10.0, 100.0), 5.0),
    service="latency",
    min_throughput_ratio=0.9,
    max_latency_ratio=3.0,
    max_time_short=0.01,
    exclusive=True,
    labels={"team": "x"},
)
WORKLOAD = WorkloadProfile(name="web 1 KB", metrics={"cpu": 1.5}, platform="I", origin="measured")


@pytest.mark.parametrize(("schema", "value"), [(HostItem, HOST), (InstanceItem, INSTANCE), (WorkloadItem, WORKLOAD)])
def test_what_goes_out_comes_in_again_as_it_was(schema: Any, value: object) -> None:
    assert schema.model_validate_json(schema.of(value).model_dump_json()).as_domain() == value


def test_the_ladder_and_what_residents_get_are_in_the_answer() -> None:
    reported = sample_answer.answer(PlacementRequest(Instance(id="n")))
    body = codec.answer_values(reported)
    best = body["candidates"][0]
    assert best["changes"]["batch-1"]["isolation"]["cap_percent"] == 60.0
    assert [(one["action"], one["satisfies"]) for one in best["mitigation"]] == [("weight", False), ("cap", True)]
    assert best["mitigation"][1]["effects"][0]["before"]["expected"] == 0.71
    assert [len(one["mitigation"]) for one in body["rejected"]] == [1, 0]
    assert best["reasons"][0]["kind"] == "loss"


def test_every_field_of_a_request_reaches_the_advisor() -> None:
    body = {
        "instance": {"id": "n", "vcpus": 2, "memory_mb": 1, "disk_gb": 2, "profile": {"cpu": 1}, "load": 0.5,
                     "service": "latency", "min_throughput_ratio": 0.5, "max_latency_ratio": 2.5,
                     "max_time_short": 0.05, "exclusive": True, "pinning": {"0": [1], "1": [2]},
                     "isolation": {"weight": 128}, "labels": {"a": "b"}},
        "hosts": ["h1"],
        "constraints": {"labels": {"z": "a"}, "exclude": ["x"], "affinity": ["y"], "anti_affinity": ["q"],
                        "kind": "kvm", "allow_stale": True},
        "objective": "pack", "limit": 3, "explain": False, "commands": True, "dry_run": True,
    }  # fmt: skip
    request = PlacementBody.model_validate(body).to_domain()
    assert request.profile == WorkloadProfile(name="n", metrics={"cpu": 1})
    assert request.instance == Instance(
        id="n",
        vcpus=2,
        memory_mb=1,
        disk_gb=2,
        load=0.5,
        service="latency",
        min_throughput_ratio=0.5,
        max_latency_ratio=2.5,
        max_time_short=0.05,
        exclusive=True,
        settings=IsolationSettings(Pinning(((1,), (2,))), weight=128),
        labels={"a": "b"},
    )
    kept = request.constraints
    assert (kept.labels, kept.exclude, kept.affinity, kept.anti_affinity, kept.kind, kept.allow_stale) == (
        {"z": "a"}, ("x",), ("y",), ("q",), "kvm", True,
    )  # fmt: skip
    assert (request.hosts, request.objective, request.limit) == (("h1",), "pack", 3)
    assert (request.explain, request.commands, request.dry_run) == (False, True, True)


@given(st.floats() | st.integers() | st.booleans() | st.text(max_size=5) | st.none())
def test_an_amount_is_a_finite_number_of_sane_size_or_nothing(value: object) -> None:
    try:
        taken = TypeAdapter(Amount).validate_python(value)
    except ValidationError:
        return
    assert not isinstance(value, bool | str | None)
    assert math.isfinite(taken)
    assert 0 <= taken <= 1e15


@given(st.text(max_size=40) | st.datetimes().map(lambda time: time.isoformat() + "Z") | st.integers() | st.floats())
def test_a_time_is_in_utc_or_refused(value: object) -> None:
    try:
        taken = TypeAdapter(Time).validate_python(value)
    except ValidationError:
        return
    assert taken.tzinfo is UTC
    assert taken.timestamp() >= datetime(1970, 1, 1, tzinfo=UTC).timestamp()


def test_every_example_in_the_description_is_taken(client: Client) -> None:
    document = client.get("/openapi.json").json()
    tried = 0
    for route in ROUTES:
        operation = document["paths"].get(route.path, {}).get(route.method.lower(), {})
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if not content:
            continue
        schema = content["schema"]  # of a body that may be left out: it or nothing
        name = schema.get("anyOf", [schema])[0]["$ref"].rpartition("/")[2]
        for example in document["components"]["schemas"][name]["examples"]:
            path = route.path.replace("{", "").replace("}", "")
            answer = client.ask(route.method, path, json=example)
            # Beyond the schema, these examples speak of things that this small cloud does not have.
            missing = {
                "/v1/models", "/v1/models/{version}/activate", "/v1/placements/{placement}/outcome", "/v1/changes",
                    "/v1/cells/placements",
            }  # fmt: skip
            taken = {404} if route.path in missing else {403} if route.needs == "act" else {200, 201}  # of an agent
            assert answer.status_code in taken, f"{path}: {answer.text}"
            tried += 1
    assert tried == 30


IMAGINED = {"what_if": {"pinning": "own"}}
NEW = {"instances": [{"id": "new-1", "vcpus": 1}]}
PLAN_KINDS = ("admit", "rebalance", "evacuate", "consolidate", "capacity", "what_if", "right_size", "tune")
PLAN_FIELDS: tuple[dict[str, Any], ...] = (
    {},
    NEW,
    {"empty": ["h9"]},
    {"growth": {}, **NEW},
    {"movable": []},
    {"max_moves": 0},
    {"hosts": [], **NEW},
    {"then": "admit", **NEW},
    IMAGINED,
    {**IMAGINED, "then": "capacity"},
    {**IMAGINED, "then": "capacity", "growth": {}, **NEW},
    {**IMAGINED, "then": "rebalance", "max_moves": 1},
    {**IMAGINED, "then": "admit", "max_moves": 1, **NEW},
)


def test_the_description_of_a_plan_takes_what_the_service_takes(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = _described(client, "PlanBody")

    def made(*_: object, now: datetime, **__: object) -> Plan:
        return Plan(str(uuid4()), now, "analytic", "analytic", (), {}, {})

    monkeypatch.setattr("advisor.planning.planner.build_plan", made)  # what was taken takes a while to plan
    for host in ("h8", "h9"):
        client.ask("PUT", f"/v1/hosts/{host}", json={"kind": "kvm", "pcpus": 8, "memory_mb": 65536})
    for fields in PLAN_FIELDS:
        for body in (fields, *({"kind": kind, **fields} for kind in PLAN_KINDS)):
            answer = client.ask("POST", "/v1/plans", json=body)
            assert answer.status_code == (200 if described.is_valid(body) else 422), f"{body}: {answer.text}"


SAMPLE = {"host": "h", "metric": "cpu", "value": 1}
NEW_VM = {"id": "a", "workload": "w"}


@pytest.mark.parametrize(
    ("schema", "taken", "refused"),
    [
        ("NewInstance", [NEW_VM, {**NEW_VM, "profile": None}], [{**NEW_VM, "profile": {"cpu": 1.0}}]),
        ("Network", [{}, {"mode": "none"}], [{"mode": "shared"}, {"mode": "dedicated", "rate_mbit": None}]),
        (
            "SampleBody",
            [{**SAMPLE, "time": f"{year}-01-01T00:00:00Z"} for year in (1970, 1999, 2026, 9998)],
            [{**SAMPLE, "time": f"{year}-01-01T00:00:00Z"} for year in (1969, 9999)],
        ),
        ("WorkloadBody", [{"metrics": {"a": 1}}], [{"metrics": {"/": 1}}, {"metrics": {}, "platform": "p" * 256}]),
        ("HostBody", [], [{"kind": "kvm", "pcpus": 5000, "memory_mb": 1}, {"kind": "kvm", "pcpus": 0, "memory_mb": 1}]),
    ],
)
def test_what_a_schema_says_in_words_of_its_own_is_in_the_description(
    client: Client, schema: str, taken: list[dict[str, Any]], refused: list[dict[str, Any]]
) -> None:
    described = _described(client, schema)
    assert [body for body in taken if not described.is_valid(body)] == []
    assert [body for body in refused if described.is_valid(body)] == []


def _described(client: Client, name: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", **client.app.openapi()})


@pytest.mark.parametrize(("given", "status"), [(2.0, 201), (2.5, 422), (True, 422), ("2", 422), (1e308, 422)])
def test_a_number_without_a_fraction_is_whole_however_it_is_written(client: Client, given: Any, status: int) -> None:
    answer = client.ask("PUT", "/v1/instances/whole", json={"vcpus": given})
    assert answer.status_code == status
    assert status == 422 or answer.json()["vcpus"] == 2


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/kubernetes/filter", {"Pod": {"metadata": {"name": "p"}, "spec": {"overhead": {"cpu": False}}}}),
    ],
)
def test_what_a_scheduler_sends_of_another_type_is_refused(client: Client, path: str, body: dict[str, Any]) -> None:
    assert client.ask("POST", path, json=body).status_code == 422


def test_a_platform_that_is_too_long_is_reported_as_such(client: Client) -> None:
    answer = client.ask("PUT", "/v1/workloads/w", json={"metrics": {"cpu": 1}, "platform": "p" * 256})
    assert answer.status_code == 422
    assert answer.json()["field"] == "platform"


def test_schemas_refuse_unknown_fields_and_answers_do_not() -> None:
    def tree(cls: type[BaseModel]) -> list[type[BaseModel]]:
        return [found for child in cls.__subclasses__() for found in (child, *tree(child))]

    ours = [cls for cls in tree(BaseModel) if cls.__module__.startswith("api.schemas") and cls.model_fields]
    # Other programs send what they like beside what is read of it.
    ours = [cls for cls in ours if not cls.__module__.startswith(("api.schedulers", "cotenant_kubernetes.schemas"))]
    assert {cls.__name__ for cls in ours if cls.model_config.get("extra") not in {"forbid", "allow"}} == set()


def test_a_schema_does_not_grow_however_often_it_is_used() -> None:
    sizes = {len(str(TypeAdapter(list[HostItem]).core_schema)) for _ in range(20)}
    assert len(sizes) == 1
