"""Both clients beside a real service: every call has the answer that the service gives."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from cotenant_client import Conflict, InvalidInput, NotFound, calls
from tests.client.stand_in import by
from tests.servers.service import Service

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
SHOP: dict[str, Any] = {"id": "shop-7", "vcpus": 2, "memory_mb": 4096, "workload": "web-1k"}
SCENE: dict[str, Any] = {
    "host": {"id": "h3", "kind": "kvm", "pcpus": 2, "memory_mb": 65536},
    "instances": [{"id": name, "vcpus": 1, "workload": "hog"} for name in ("a", "b")],
    "workloads": [{"name": "hog", "metrics": {"cpu": 100.0}}],
}


def reported(service: Service, path: str) -> Any:
    return service.ask("GET", path).body


def test_it_says_that_the_service_is_ready(service: Service, kind: str) -> None:
    answer = by(kind, service.url, lambda client: client.ready())
    assert (answer["status"], answer["model"]) == ("ready", "analytic")


def test_listings_go_through_all_pages(service: Service, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_PAGE", 2)
    hosts = reported(service, "/v1/hosts?limit=1000")["items"]
    assert len(hosts) > 2
    assert by(kind, service.url, lambda client: client.hosts()) == hosts
    instances = reported(service, "/v1/instances?limit=1000")["items"]
    assert by(kind, service.url, lambda client: client.instances()) == instances
    assert by(kind, service.url, lambda client: client.every_item("/v1/workloads")) == by(
        kind, service.url, lambda client: client.workloads()
    )


def test_listings_are_filtered_by_the_service(service: Service, kind: str) -> None:
    found = by(kind, service.url, lambda client: client.instances(q="myst"))
    assert [one["id"] for one in found] == ["mystery"]
    assert by(kind, service.url, lambda client: client.hosts(enabled=False, label=["zone=nowhere", "a=b"])) == []


def test_a_placement_that_holds_a_host_is_found_again_and_takes_its_outcome(service: Service, kind: str) -> None:
    new_vm = {**SHOP, "id": f"shop-{kind}"}
    answer = by(kind, service.url, lambda client: client.place(instance=new_vm, limit=2))
    best = answer["candidates"][0]["host"]
    assert by(kind, service.url, lambda client: client.placement(answer["id"])) == answer
    measured = {new_vm["id"]: 0.9}
    report = by(kind, service.url, lambda client: client.outcome(answer["id"], host=best, throughput_ratios=measured))
    assert report is None


def test_dry_runs_batches_and_predictions_are_answered(service: Service, kind: str) -> None:
    alone = by(kind, service.url, lambda client: client.place(instance=SHOP, dry_run=True))
    assert (alone["dry_run"], alone["candidates"][0]["rank"]) == (True, 1)
    batch = by(kind, service.url, lambda client: client.place_batch(instances=[SHOP, SHOP | {"id": "b"}], dry_run=True))
    assert len(batch["answers"]) == 2
    effects = by(kind, service.url, lambda client: client.predict(**SCENE))["effects"]
    assert [one["instance"] for one in effects] == ["a", "b"]


def test_a_plan_is_made_listed_and_found(service: Service, kind: str) -> None:
    plan = by(kind, service.url, lambda client: client.plan(kind="evacuate", empty=["h3"], time_limit_s=5.0))
    assert by(kind, service.url, lambda client: client.plans(kind="evacuate"))[0]["id"] == plan["id"]
    assert by(kind, service.url, lambda client: client.plan_by_id(plan["id"])) == plan


def test_scores_of_the_cloud_a_host_and_a_vm_are_asked(service: Service, kind: str) -> None:
    cloud = by(kind, service.url, lambda client: client.scores(since="1h"))
    assert cloud["cloud"]["instances"] > 0
    host = by(kind, service.url, lambda client: client.host_scores("h3"))
    vm = by(kind, service.url, lambda client: client.instance_scores(host["vms"][0]["instance"]))
    assert (vm["now"], vm["history"]) == (host["vms"][0], [])


def test_the_inventory_is_written_once_for_each_generation(service: Service, kind: str) -> None:
    generation = by(kind, service.url, lambda client: client.generation())["generation"]
    host = {"id": f"new-{kind}", "kind": "kvm", "pcpus": 2, "memory_mb": 1024.0}

    def put(client: Any) -> Any:
        return client.put_inventory(hosts=[host], mode="merge", generation=generation)

    assert by(kind, service.url, put)["generation"] > generation
    with pytest.raises(Conflict) as refused:
        by(kind, service.url, put)
    assert (refused.value.code, refused.value.status) == ("conflict.generation", 409)


def test_models_and_any_other_path_are_asked(service: Service, kind: str) -> None:
    assert by(kind, service.url, lambda client: client.models())[-1]["version"] == "analytic"
    assert by(kind, service.url, lambda client: client.get("/v1/alarms")) == {"alarms": [], "low_scores": []}
    scene = by(kind, service.url, lambda client: client.post("/v1/predictions", SCENE))
    assert scene == by(kind, service.url, lambda client: client.predict(**SCENE))


def test_what_is_refused_names_the_field_the_code_and_the_request(service: Service, kind: str) -> None:
    with pytest.raises(InvalidInput, match="vcpu") as refused:
        by(kind, service.url, lambda client: client.place(instance={"id": "n", "vcpu": 2}))
    assert (refused.value.field, refused.value.code) == ("instance.vcpu", "input.invalid")
    assert refused.value.request_id
    with pytest.raises(NotFound, match="nowhere"):
        by(kind, service.url, lambda client: client.placement("nowhere"))


def test_the_example_of_the_documentation_runs(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = re.search(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    assert len(found[1].strip().splitlines()) <= 6
    program = tmp_path / "example.py"
    program.write_text(found[1].replace("https://cotenant.example", service.url), encoding="utf-8")
    runpy.run_path(str(program))
    assert re.match(r"h\d [01]\.\d+\n", capsys.readouterr().out)
