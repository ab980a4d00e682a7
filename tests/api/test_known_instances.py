"""A known id at every door brings its stored size, settings, labels, demand and place; what is given replaces that."""

from __future__ import annotations

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
        BatchBody.model_validate({"instances": [{"id": "new", **given}]}).to_domain(FIND)
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


def test_novas_external_call_takes_a_known_server_and_refuses_an_unknown_one(known: Client) -> None:
    def ask(uuid: str) -> Any:
        spec = {"nova_object.data": {"instance_uuid": uuid}}
        hosts = [{"host": "k1", "hypervisor_hostname": "k1"}, {"host": "k2", "hypervisor_hostname": "k2"}]
        body = {"spec": spec, "hosts": hosts, "weights": {}, "options": {"read_only": True}}
        return known.ask("POST", "/scheduler/nova/external", json=body)

    assert ask("db-7").status_code == 200
    assert ask("db-8").status_code == 422


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
