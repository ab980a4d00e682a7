"""`cotenant sync openstack` against the real services: what is read, what changed since, and what may not be seen."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab
    from tests.openstack.relay import Relay
    from tests.openstack.served import Service

ALL = {"hypervisors", "services", "aggregates", "zones", "flavors", "placement", "server groups", "servers"}


@pytest.fixture(scope="module", autouse=True)
def flavor(lab: OpenStackLab) -> None:
    """With a cap, and Cotenant's words."""
    compute = lab.connect().compute
    made = compute.create_flavor(name="capped", vcpus=2, ram=2048, disk=1)
    specs = {"quota:cpu_quota": "25000", "quota:cpu_period": "100000", "cotenant:service": "latency"}
    compute.create_flavor_extra_specs(made, specs)


def pending(service: Service) -> int:
    with closing(sqlite3.connect(service.folder / "var" / "cotenant.sqlite3")) as database:
        return int(database.execute("SELECT count(*) FROM pending").fetchone()[0])


def states(reported: Mapping[str, Any]) -> dict[str, str]:
    return {part["name"]: part["state"] for part in reported["parts"]}


def test_servers_come_and_go_with_their_hosts_limits_and_labels(
    lab: OpenStackLab, relay: Relay, service: Service, environment: Mapping[str, str]
) -> None:
    kept, deleted = (lab.boot(name, "capped") for name in ("kept", "deleted"))
    hosts = lab.placed([kept, deleted])
    assert [len(relay.about(one)) for one in (kept, deleted)] == [1, 1], "it was asked once about each"
    assert pending(service) == 2
    reported = service.sync(environment)
    assert states(reported) == dict.fromkeys(ALL, "read")
    assert set(reported["instances"]) == {kept, deleted}
    assert pending(service) == 0, "who is shown is not counted twice"
    found = service.get(f"/v1/instances/{kept}")
    assert (found["host"], found["vcpus"], found["isolation"]["cap_percent"]) == (hosts[kept], 2, 50.0)
    assert found["service"] == "latency"
    assert found["labels"]["name"] == "kept"
    lab.delete_servers(deleted)
    assert service.sync(environment)["gone_instances"] == [deleted]


def test_a_host_that_is_disabled_or_down_takes_nothing(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str]
) -> None:
    compute = lab.connect().compute
    by_host = {one.host: one for one in compute.services(binary="nova-compute")}
    compute.disable_service(by_host["h005"], "h005", "nova-compute", disabled_reason="new disk")
    compute.update_service_forced_down(by_host["h006"], forced=True)
    try:
        assert set(service.sync(environment)["hosts"]) == {"h005", "h006"}
        refused = service.http.post(
            "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}, "hosts": ["h005", "h006"], "dry_run": True}
        ).json()["rejected"]
        assert [one["code"] for one in refused] == ["host.disabled", "host.disabled"]
        labels = [service.get(f"/v1/hosts/{name}")["labels"]["disabled_reason"] for name in ("h005", "h006")]
        assert labels == ["disabled: new disk", "its compute service is down"]
    finally:
        compute.enable_service(by_host["h005"], "h005", "nova-compute")
        compute.update_service_forced_down(by_host["h006"], forced=False)
    assert set(service.sync(environment)["hosts"]) == {"h005", "h006"}
    assert service.get("/v1/hosts/h006")["enabled"]


def test_zones_and_aggregates_are_labels_as_long_as_they_last(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str]
) -> None:
    compute = lab.connect().compute
    rack = compute.create_aggregate(name="rack-1", availability_zone="az-1")
    compute.add_host_to_aggregate(rack, "h007")
    service.sync(environment)
    labels = service.get("/v1/hosts/h007")["labels"]
    assert (labels["zone"], labels["aggregate.rack-1"]) == ("az-1", "true")
    compute.remove_host_from_aggregate(rack, "h007")
    compute.delete_aggregate(rack)
    service.sync(environment)
    labels = service.get("/v1/hosts/h007")["labels"]
    assert labels["zone"] == "nova"
    assert "aggregate.rack-1" not in labels


def test_members_of_a_server_group_are_labelled_and_placements_keep_others_away(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str]
) -> None:
    compute = lab.connect().compute
    group = compute.create_server_group(name="apart", policy="anti-affinity", microversion="2.64")
    together = compute.create_server_group(name="together", policy="affinity", microversion="2.64")
    members = [lab.boot(f"apart-{at}", "capped", scheduler_hints={"group": group.id}) for at in range(2)]
    beside = lab.boot("together-1", "capped", scheduler_hints={"group": together.id})
    lab.placed([*members, beside])
    service.sync(environment)
    read = {name: service.get(f"/v1/instances/{name}") for name in (*members, beside)}
    assert [read[name]["labels"].get("anti_affinity") for name in members] == [group.id] * 2
    assert "anti_affinity" not in read[beside]["labels"]
    new_vm = {"id": "apart-2", "vcpus": 1, "labels": {"anti_affinity": group.id}}
    hosts = [read[name]["host"] for name in members]
    asked = {"instance": new_vm, "hosts": hosts, "dry_run": True}
    answer = service.http.post("/v1/placements", json=asked)
    assert {one["code"] for one in answer.json()["rejected"]} == {"constraint.anti_affinity"}


def test_who_may_not_see_the_cloud_removes_nothing(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str]
) -> None:
    server = lab.boot("seen", "capped")
    lab.placed([server])
    service.sync(environment)
    lab.add_user("onlooker", "reader")
    reported = service.sync(lab.environment("onlooker"))
    refused = {name for name, state in states(reported).items() if state == "refused"}
    assert {"hypervisors", "services", "placement", "servers"} <= refused
    assert (reported["gone_hosts"], reported["gone_instances"]) == ([], [])
    assert service.get(f"/v1/instances/{server}")["host"]
    assert len(service.get("/v1/hosts?limit=1000")["items"]) == 100


def test_a_wrong_password_is_reported_in_one_sentence_without_it(
    service: Service, environment: Mapping[str, str]
) -> None:
    reported = service.sync({**environment, "OS_PASSWORD": "not-the-password"})
    assert not reported["complete"]
    assert all(part["state"] != "read" for part in reported["parts"])
    assert "not-the-password" not in str(reported)


def test_a_migration_shows(lab: OpenStackLab, relay: Relay, service: Service, environment: Mapping[str, str]) -> None:
    server = lab.boot("mover", "capped")
    before = lab.placed([server])[server]
    service.sync(environment)
    after = lab.migrate(server)
    assert after != before
    service.sync(environment)
    assert service.get(f"/v1/instances/{server}")["host"] == after
    asked = [question for question, _ in relay.about(server)]
    assert before in asked[0]["hosts"]
    assert before not in asked[-1]["hosts"], "Nova leaves the source out"
