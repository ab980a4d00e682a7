"""Real Watcher asks a real Cotenant about servers of the real Nova, and its applier moves them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab
    from tests.openstack.served import Service

CROWDED, CROWD = "h007", 6
BUSY = {"metrics": {"cpu": 380.0}}  # of the four vCPUs; a host has 16 CPUs
FLAVOR = "watched"


@pytest.fixture(scope="module", autouse=True)
def _watcher(lab: OpenStackLab, served: Service, tmp_path_factory: pytest.TempPathFactory) -> None:
    from tests.openstack.openstack_lab.optimizing import install_strategies, start_watcher

    compute = lab.connect().compute
    made = compute.create_flavor(name=FLAVOR, vcpus=4, ram=4096, disk=1)
    compute.create_flavor_extra_specs(made, {"cotenant:workload": "hungry"})
    folder = tmp_path_factory.mktemp("strategies")
    install_strategies(folder)
    start_watcher(lab, folder, {"url": f"http://127.0.0.1:{served.port}"})


@pytest.fixture
def crowd(lab: OpenStackLab, service: Service, environment: Mapping[str, str]) -> Iterator[list[str]]:
    """Servers on one host that want more than its CPUs, as Nova and the service know them."""
    service.put("/v1/workloads/hungry", BUSY)
    made = [lab.boot(f"crowd-{number}", FLAVOR, host=CROWDED) for number in range(CROWD)]
    assert set(lab.placed(made).values()) == {CROWDED}
    reported = service.sync(environment)
    assert reported["complete"], reported["parts"]
    yield made


def read_anew(lab: OpenStackLab, servers: int) -> None:
    """Until Watcher's model, which it reads every few seconds, has these servers."""
    from tests.openstack.openstack_lab.optimizing import ask

    def there() -> bool:
        context = ask(lab, "GET", "/v1/data_model?data_model_type=compute")["context"]
        return sum("server_uuid" in one for one in context) == servers

    lab.processes.wait_for("Watcher's model", there)


def test_a_rebalance_becomes_an_action_plan_that_the_applier_carries_out(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str], crowd: list[str]
) -> None:
    from tests.openstack.openstack_lab.optimizing import action_plan, audit, carry_out

    ended = audit(lab, "noisy_neighbor", "cotenant_rebalance", max_moves=4)
    assert ended["state"] == "SUCCEEDED"
    plan, actions = action_plan(lab, ended["uuid"])
    assert 1 <= len(actions) <= 4
    wanted = {}
    for one in actions:
        reported: dict[str, Any] = one["input_parameters"]
        assert (one["action_type"], reported["migration_type"], reported["source_node"]) == ("migrate", "live", CROWDED)
        wanted[reported["resource_id"]] = reported["destination_node"]
    assert wanted.keys() <= set(crowd)
    stages = Counter(tuple(sorted(one["parents"])) for one in actions)
    assert len(stages) == len(actions), "one move to or from a host at a time, and each waits for the one before"
    assert carry_out(lab, plan["uuid"])["state"] == "SUCCEEDED"
    assert lab.placed(crowd) == {**dict.fromkeys(crowd, CROWDED), **wanted}
    reported = service.sync(environment)
    assert reported["complete"], reported["parts"]
    again = service.http.post("/v1/plans", json={"kind": "rebalance"}).json()
    assert again["search"]["ended"] == "already fine"


def test_a_consolidation_counts_the_hosts_that_get_free(
    lab: OpenStackLab, service: Service, environment: Mapping[str, str]
) -> None:
    from tests.openstack.openstack_lab.optimizing import action_plan, audit

    service.put("/v1/workloads/hungry", {"metrics": {"cpu": 5.0}})
    made = [lab.boot(f"alone-{host}", FLAVOR, host=host) for host in ("h011", "h012", "h013")]
    lab.placed(made)
    reported = service.sync(environment)
    assert reported["complete"], reported["parts"]
    read_anew(lab, len(made))
    ended = audit(lab, "server_consolidation", "cotenant_consolidation")
    assert ended["state"] == "SUCCEEDED"
    plan, actions = action_plan(lab, ended["uuid"])
    assert len(actions) == 2
    reported = {one["name"]: one["value"] for one in plan["efficacy_indicators"]}
    assert reported["released_compute_nodes_count"] == 2
    assert reported["instance_migrations_count"] == 2


def test_an_audit_fails_and_says_why_where_cotenant_has_not_read_the_cloud(
    lab: OpenStackLab, service: Service, crowd: list[str]
) -> None:
    from tests.openstack.openstack_lab.optimizing import audit

    read_anew(lab, len(crowd))
    log = lab.processes.log("watcher-decision-engine")
    before = log.stat().st_size
    service.put("/v1/inventory", {"mode": "replace", "hosts": [], "instances": []})
    assert audit(lab, "noisy_neighbor", "cotenant_rebalance")["state"] == "FAILED"
    said = log.read_bytes()[before:].decode()
    assert "knows none of the 100 compute nodes; let `cotenant sync openstack` run" in said
