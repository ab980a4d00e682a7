"""A known id at every door brings its stored size, settings, labels, demand and place; what is given replaces that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Instance, asked_about, found_in
from advisor.errors import InvalidInput
from api.schemas.placements import BatchBody, NewInstance, PlacementBody
from profiler.demand import Demand
from profiler.observed import IsolationSettings, Pinning
from tests.api.api_client import Client
from tests.api.cli_runs import run

DB = Instance(
    "db-7",
    vcpus=6,
    memory_mb=12_000.0,
    host="k1",
    workload="web-1k",
    settings=IsolationSettings(pinning=Pinning(((0,),) * 6), weight=700),
    labels={"project": "shop", "tier": "data"},
    demand={"cpu": Demand(3.5, "cpu", origin="measured"), "net_mbit": Demand(40.0, "net_mbit")},
    min_throughput_ratio=0.8,
)
FIND = found_in([DB])


def asked(**body: Any) -> Instance:
    return PlacementBody.model_validate({"instance": {"id": "db-7", **body}}).to_domain(FIND).instance


def test_a_known_id_alone_brings_everything_but_the_pinning_of_its_own_host() -> None:
    found = asked()
    assert (found.vcpus, found.memory_mb, found.host, found.labels) == (6, 12_000.0, "k1", DB.labels)
    assert found.demand == DB.demand
    assert (found.settings.weight, found.settings.pinning) == (700, None)
    assert found.min_throughput_ratio == 0.8


def test_what_is_given_replaces_what_is_stored_field_by_field() -> None:
    found = asked(memory_mb=500, labels={"tier": "cache"}, isolation={"cap_percent": 150}, demand={"cpu": 1.0})
    assert (found.vcpus, found.memory_mb) == (6, 500.0)
    assert found.labels == {"project": "shop", "tier": "cache"}
    assert (found.settings.weight, found.settings.cap_percent) == (700, 150.0)
    assert (found.demand["cpu"].mean, found.demand["net_mbit"].mean) == (1.0, 40.0)
    assert asked(workload=None).workload is None
    assert asked(pinning={str(vcpu): [2] for vcpu in range(6)}).settings.pinning == Pinning(((2,),) * 6)


def test_of_a_known_instance_that_is_made_smaller_measured_demand_is_cut() -> None:
    assert asked(vcpus=2).demand["cpu"].mean == 2.0


def test_a_known_instance_keeps_its_size_when_it_is_to_be_like_another() -> None:
    other = Instance("small", vcpus=2, memory_mb=100.0, demand={"cpu": Demand(1.0, "cpu")})
    body = PlacementBody.model_validate({"instance": {"id": "db-7", "like": "small"}})
    found = body.to_domain(found_in([DB, other])).instance
    assert (found.vcpus, found.memory_mb, found.demand["cpu"].mean) == (6, 12_000.0, 3.0)


@pytest.mark.parametrize("given", [{}, {"memory_mb": 100}, {"vcpus": None}, {"workload": "web-1k"}])
def test_an_unknown_id_without_a_size_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        PlacementBody.model_validate({"instance": {"id": "new", **given}}).to_domain(FIND)
    assert refused.value.field == "instance.vcpus"
    with pytest.raises(InvalidInput):
        BatchBody.model_validate({"instances": [{"id": "new", **given}]}).requests(FIND)
    assert asked_about("new", {}, FIND, vcpus=1) == Instance("new", vcpus=1)


def test_every_field_of_an_instance_to_place_may_be_taken_from_the_inventory() -> None:
    fields = NewInstance.model_fields.keys() - {"id", "like", "profile", "pinning", "isolation"}
    assert {name: getattr(asked(), name) for name in fields} == {name: getattr(DB, name) for name in fields}


CLOUD = """
hosts:
  - {id: k1, kind: kvm, pcpus: 16, memory_mb: 65536}
  - {id: k2, kind: kvm, pcpus: 16, memory_mb: 65536}
instances:
  - {id: db-7, host: k1, vcpus: 6, memory_mb: 12000, demand: {cpu: 3.5}, labels: {uuid: 4f1c, project: shop}}
"""


@pytest.fixture
def known(client: Client) -> Client:
    hosts = [{"id": name, "kind": "kvm", "pcpus": 16, "memory_mb": 65536} for name in ("k1", "k2")]
    there = {"id": "db-7", "host": "k1", "vcpus": 6, "memory_mb": 12000, "demand": {"cpu": 3.5}}
    guest = {"id": "one-5", "host": "k1", "vcpus": 6, "memory_mb": 12000, "demand": {"cpu": 3.5}}
    body = {"mode": "replace", "hosts": hosts, "instances": [there, guest]}
    assert client.ask("PUT", "/v1/inventory", json=body).status_code == 200
    return client


def test_rest_answers_for_the_stored_size(known: Client) -> None:
    bare = {"instance": {"id": "db-7"}, "dry_run": True, "explain": False}
    named = known.ask("POST", "/v1/placements", json=bare).json()
    whole = {"id": "twin", "vcpus": 6, "memory_mb": 12000, "demand": {"cpu": 3.5}}
    other = known.ask("POST", "/v1/placements", json={**bare, "instance": whole}).json()
    room = {one["host"]: one["headroom"]["cpu"] for one in named["candidates"]}
    assert room["k2"] == {one["host"]: one["headroom"]["cpu"] for one in other["candidates"]}["k2"]
    assert named["present"]["host"] == "k1"
    (first,) = known.ask("POST", "/v1/placements:batch", json={"instances": [{"id": "db-7"}], "dry_run": True}).json()[
        "answers"
    ]
    assert {one["headroom"]["cpu"] for one in first["candidates"]} <= set(room.values())


@pytest.mark.parametrize("path", ["/v1/placements", "/v1/placements:batch"])
def test_rest_refuses_an_unknown_id_without_a_size(path: str, known: Client) -> None:
    one = {"id": "nothing-known"}
    body = {"instances": [one]} if path.endswith("batch") else {"instance": one}
    refused = known.ask("POST", path, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "input.invalid")
    assert refused.json()["field"] == "instance.vcpus"


def test_a_file_replaces_only_what_it_says(tmp_path: Path) -> None:
    cloud, one = tmp_path / "cloud.yaml", tmp_path / "db.yaml"
    cloud.write_text(CLOUD)
    one.write_text("{id: db-7, demand: {cpu: 0.5}}")
    listed = run("where", cloud, "--instance", one, "--json")
    assert listed.exit_code == 0, listed.output
    one.write_text("{id: db-8, demand: {cpu: 0.5}}")
    refused = run("where", cloud, "--instance", one)
    assert refused.exit_code == 2
    assert "db-8" in refused.output


def planned(client: Client, one: dict[str, Any], **more: Any) -> Any:
    answer = client.ask("POST", "/v1/plans", json={"instances": [one], "time_limit_s": 5, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


WHOLE = {"vcpus": 6, "memory_mb": 12000, "demand": {"cpu": 3.5}}


def test_a_plan_places_a_known_instance_as_it_is_stored(known: Client) -> None:
    (asked,) = planned(known, {"id": "db-7"})["question"]["instances"]
    assert (asked["vcpus"], asked["memory_mb"], asked["host"]) == (6, 12000, "k1")
    assert asked["demand"]["cpu"]["mean"] == 3.5
    (asked,) = planned(known, {"id": "db-7", "vcpus": 8, "demand": {"cpu": 7.0}})["question"]["instances"]
    assert (asked["vcpus"], asked["memory_mb"], asked["demand"]["cpu"]["mean"]) == (8, 12000, 7.0)


@pytest.mark.parametrize("more", [{}, {"kind": "what_if", "then": "capacity", "what_if": {"remove": ["k2"]}}])
def test_in_a_mix_a_known_id_means_more_of_its_form(more: dict[str, Any], known: Client) -> None:
    def fit(one: dict[str, Any]) -> Any:
        plan = planned(known, one, **{"kind": "capacity", **more})
        return [each["fit"] for each in plan["variants"]] if more else plan["capacity"]["fit"]

    assert fit({"id": "db-7"}) == fit({"id": "twin", **WHOLE}) != fit({"id": "small", "vcpus": 1})


def test_a_plan_takes_an_instance_that_is_like_a_known_one(known: Client) -> None:
    (asked,) = planned(known, {"id": "twin", "like": "db-7"})["question"]["instances"]
    assert (asked["vcpus"], asked["memory_mb"], asked["demand"]["cpu"]["mean"]) == (6, 12000, 3.5)


def predicted(client: Client, host: str, *instances: dict[str, Any]) -> Any:
    scene = {"host": {"id": host, "kind": "kvm", "pcpus": 4, "memory_mb": 65536}, "instances": instances}
    answer = client.ask("POST", "/v1/predictions", json=scene)
    assert answer.status_code == 200, answer.text
    return [effect["throughput_ratio"] for effect in answer.json()["effects"]]


def test_a_scene_takes_known_instances_as_they_are_stored(known: Client) -> None:
    named = predicted(known, "x", {"id": "db-7"}, {"id": "one-5"})
    assert named == predicted(known, "x", {"id": "a", **WHOLE}, {"id": "b", **WHOLE})
    assert named[0]["expected"] < 0.9


def test_a_stored_pinning_counts_in_a_scene_of_its_own_host_only(known: Client) -> None:
    pins = {"pinning": {str(vcpu): [0] for vcpu in range(6)}}
    known.ask("PUT", "/v1/instances/db-7", json={**WHOLE, **pins, "host": "k1"})
    other = {"id": "b", "vcpus": 1, "demand": {"cpu": 0.5}, "pinning": {"0": [0]}}
    pinned, free = (predicted(known, "x", {"id": "a", **WHOLE, **more}, other) for more in (pins, {}))
    assert pinned != free
    assert predicted(known, "k1", {"id": "db-7"}, other) == pinned
    assert predicted(known, "k2", {"id": "db-7"}, other) == free


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/plans", {}),
        ("/v1/plans", {"kind": "capacity"}),
        ("/v1/plans", {"kind": "what_if", "then": "admit", "what_if": {"remove": ["k2"]}}),
        ("/v1/predictions", {"host": {"id": "x", "kind": "kvm", "pcpus": 4, "memory_mb": 4096}}),
    ],
)
@pytest.mark.parametrize(
    ("one", "field"),
    [
        ({"id": "nothing-known", "memory_mb": 512}, "instances.1.vcpus"),
        ({"id": "new", "like": "nothing-known"}, "instances.1.like"),
        ({"id": "new", "like": "db-7", "workload": "web-1k"}, "instances.1.workload"),
    ],
)
def test_plans_and_scenes_refuse_an_unknown_instance_without_a_size(
    path: str, body: dict[str, Any], one: dict[str, Any], field: str, known: Client
) -> None:
    refused = known.ask("POST", path, json={**body, "instances": [{"id": "db-7"}, one]})
    assert (refused.status_code, refused.json()["code"]) == (422, "input.invalid")
    assert refused.json()["field"] == field


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "cloud.yaml").write_text(CLOUD)
    return tmp_path / "cloud.yaml", tmp_path / "asked.yaml"


@pytest.mark.parametrize("demand", ["demand: {cpu: 2.5}", "cpu_percent: 250", "demand: {cpu: {mean: 2.5, p95: 4.0}}"])
def test_a_file_may_give_a_known_id_a_demand_above_one_cpu_and_no_vcpus(demand: str, files: tuple[Path, Path]) -> None:
    cloud, asked = files
    asked.write_text(f"{{id: db-7, {demand}}}")
    for command in (("where", cloud, "--instance", asked), ("plan", cloud, "--add", asked)):
        answered = run(*command, "--json")
        assert answered.exit_code == 0, answered.output
    (found,) = json.loads(answered.stdout)["question"]["instances"]
    assert (found["vcpus"], found["demand"]["cpu"]["mean"]) == (6, 2.5)


def test_a_demand_above_the_stored_vcpus_is_refused_with_its_line(files: tuple[Path, Path]) -> None:
    cloud, asked = files
    asked.write_text("id: db-7\ndemand: {cpu: 6.5}\n")
    refused = run("plan", cloud, "--add", asked)
    assert refused.exit_code == 2
    assert f"{asked}, line 2, field demand: " in " ".join(refused.output.split())


@pytest.mark.parametrize(
    ("content", "where"),
    [
        ("[{id: db-7},\n {id: new, memory_mb: 512}]", "line 2, field [1].vcpus"),
        ("id: new", "line 1, field vcpus"),
        ("instances:\n- {id: new}", "line 2, field instances[0].vcpus"),
    ],
)
def test_files_for_plans_refuse_an_unknown_instance_without_a_size(
    content: str, where: str, files: tuple[Path, Path]
) -> None:
    cloud, asked = files
    asked.write_text(content)
    for command in (("plan", cloud, "--add", asked), ("plan", cloud, "--kind", "capacity", "--add", asked)):
        refused = run(*command)
        assert refused.exit_code == 2
        assert where in " ".join(refused.output.split())


def test_a_file_of_a_plan_takes_a_known_instance_as_it_is_stored(files: tuple[Path, Path]) -> None:
    cloud, asked = files
    counts = []
    for content in ("id: db-7", "{id: twin, vcpus: 6, memory_mb: 12000, demand: {cpu: 3.5}}"):
        asked.write_text(content)
        answer = run("plan", cloud, "--kind", "capacity", "--add", asked, "--json")
        counts.append(json.loads(answer.stdout)["capacity"]["fit"])
    assert counts[0] == counts[1] > 0


def test_a_scene_file_needs_the_size_of_each_instance(tmp_path: Path) -> None:
    scene = tmp_path / "scene.yaml"
    scene.write_text("host: {kind: kvm, pcpus: 4, memory_mb: 4096}\ninstances:\n- {id: a, demand: {cpu: 2}}\n")
    refused = run("predict", scene)
    assert refused.exit_code == 2
    assert "line 3, field instances[0].vcpus" in " ".join(refused.output.split())
