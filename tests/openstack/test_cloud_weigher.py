"""Servers booted through Nova's API go where Cotenant says, and go somewhere when it says nothing."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from advisor.domain import Instance, Inventory, PlacementRequest
from advisor.service import Advisor
from advisor.settings import Settings
from tests.openstack.cloud_scene import HOSTS, TIMEOUT_S, scheduler
from tests.openstack.relay import HARMS, Harm, Relay, relaying

if TYPE_CHECKING:
    from pathlib import Path

    from tests.openstack.openstack_lab.lab import OpenStackLab
    from tests.openstack.served import Service

BUSY = {"metrics": {"cpu": 95.0, "driver_domain.cpu": 20.0}}
BOOTS = 30
Reconfigure = Callable[[Mapping[str, Mapping[str, object]]], None]


@pytest.fixture(scope="module", autouse=True)
def flavors(lab: OpenStackLab) -> None:
    """One that says nothing, and one that says what it runs and accepts."""
    compute = lab.connect().compute
    compute.create_flavor(name="plain", vcpus=2, ram=2048, disk=1)
    busy = compute.create_flavor(name="busy", vcpus=4, ram=4096, disk=1)
    compute.create_flavor_extra_specs(busy, {"cotenant:workload": "busy", "cotenant:service": "latency"})


def crowd(service: Service, free: dict[str, int]) -> None:
    """Six busy residents on every host but on those that are `free`, which have as many as that says."""
    service.put("/v1/workloads/busy", BUSY)
    residents = [
        {"id": f"{host}-r{number}", "vcpus": 2, "memory_mb": 1024.0, "host": host, "workload": "busy"}
        for host in HOSTS
        for number in range(free.get(host, 6))
    ]
    service.put("/v1/inventory", {"mode": "merge", "instances": residents})


def test_each_server_lands_on_the_host_that_is_ranked_first(lab: OpenStackLab, relay: Relay, service: Service) -> None:
    crowd(service, {"h017": 0, "h042": 1, "h088": 2})
    landed = [lab.placed([server])[server] for server in (lab.boot(f"first-{number}", "busy") for number in range(3))]
    assert landed[0] == "h017"
    firsts = [answer["candidates"][0]["host"] for _, answer in relay.asked]
    assert landed == firsts, "one question per server, for filter and weigher together"


def test_a_question_says_what_the_flavor_says_of_the_server(lab: OpenStackLab, relay: Relay, service: Service) -> None:
    service.put("/v1/workloads/busy", BUSY)
    server = lab.boot("known", "busy")
    lab.placed([server])
    ((question, answer),) = relay.about(server)
    assert question["instance"] == {
        "id": server, "vcpus": 4, "memory_mb": 4096, "workload": "busy", "service": "latency",
    }  # fmt: skip
    assert sorted(question["hosts"]) == list(HOSTS)
    assert not any("workload" in note for note in answer["notes"])


def test_several_servers_of_one_request_are_asked_about_one_by_one(
    lab: OpenStackLab, relay: Relay, service: Service
) -> None:
    crowd(service, {"h017": 0, "h042": 0, "h088": 0})
    compute = lab.connect().compute
    lab.boot("several", "busy", min_count=3, max_count=3)
    servers = [one.id for one in compute.servers(details=False, all_projects=True)]
    assert set(lab.placed(servers).values()) == {"h017", "h042", "h088"}
    assert {question["instance"]["id"] for question, _ in relay.asked} == set(servers)


def test_a_host_where_a_limit_would_break_is_filtered_out(lab: OpenStackLab, relay: Relay, service: Service) -> None:
    """Every host has a resident that accepts no loss, and no CPU to spare for one more that computes all the time."""
    service.put("/v1/workloads/busy", BUSY)
    service.put("/v1/workloads/full", {"metrics": {"cpu": 1600.0}})  # all 16 CPUs of a host
    strict = {"vcpus": 16, "memory_mb": 1024.0, "workload": "full", "min_throughput_ratio": 0.999}
    residents = [{"id": f"{host}-strict", "host": host, **strict} for host in HOSTS]
    service.put("/v1/inventory", {"mode": "merge", "instances": residents})
    lost = lab.boot("too-noisy", "busy")
    with pytest.raises(RuntimeError, match="No valid host"):
        lab.placed([lost])
    service.http.delete("/v1/instances/h050-strict").raise_for_status()
    server = lab.boot("noisy", "busy")
    assert lab.placed([server]) == {server: "h050"}
    assert len(relay.about(server)[0][1]["rejected"]) + len(relay.about(server)[0][1]["candidates"]) == len(HOSTS)


@pytest.mark.parametrize("harm", HARMS, ids=lambda harm: harm.__name__)
def test_servers_are_placed_without_an_answer(lab: OpenStackLab, relay: Relay, service: Service, harm: Harm) -> None:
    relay.harm = harm
    before = log_size(lab)
    server = lab.boot(f"without-{harm.__name__}", "plain")
    assert lab.placed([server])[server] in HOSTS
    said = [line for line in new_lines(lab, before) if server in line and "Cotenant" in line]
    if harm.__name__ in {"about_others", "knows_none"}:  # an answer, and no help
        assert said == []
        return
    (line,) = said  # the filter asked, the weigher did not wait once more
    waited_ms = float(re.search(r"without Cotenant after ([\d.]+) ms", line)[1])  # type: ignore[index]
    assert waited_ms < 2 * 1000 * TIMEOUT_S, "and not for as long as the harm goes on, which is three times that"


def test_servers_are_placed_while_the_service_is_away_and_by_its_answer_afterwards(
    lab: OpenStackLab, service: Service, reconfigure: Reconfigure
) -> None:
    crowd(service, {"h017": 0})
    with relaying() as gone:
        reconfigure(scheduler(gone.url))
        port = gone.port
    server = lab.boot("ghost", "plain")
    assert lab.placed([server])[server] in HOSTS
    with relaying(port) as back:
        back.target = service.port
        server = lab.boot("back", "busy")
        assert lab.placed([server]) == {server: "h017"}


def test_thirty_boots_in_quick_succession_spread_as_one_by_one(
    lab: OpenStackLab, service: Service, reconfigure: Reconfigure, tmp_path: Path
) -> None:
    """Nova's own view lags: without answers that are remembered all would go to one host. The weigher alone, too."""
    uneven = {host: number % 4 for number, host in enumerate(HOSTS)}
    crowd(service, uneven)
    expected = one_by_one(service, tmp_path)
    with relaying() as relay:
        relay.target = service.port
        reconfigure(scheduler(relay.url, filters="ComputeFilter"))
        servers = [lab.boot(f"quick-{number}", "busy") for number in range(BOOTS)]
        landed = Counter(lab.placed(servers, seconds=600).values())
        assert landed == expected
        answered = [relay.about(server)[0][1]["candidates"][0]["host"] for server in servers]
        assert Counter(answered) == expected


def one_by_one(service: Service, folder: Path) -> Counter[str]:
    """Where the same servers go when the inventory shows each before the next is asked about."""
    cloud = everything(service)
    found: Counter[str] = Counter()
    with Advisor(Settings(database=f"sqlite:///{folder}/one-by-one.sqlite3", state_dir=folder)) as advisor:
        advisor.inventory.put(cloud, mode="replace", generation=None)
        for number in range(BOOTS):
            asked = Instance(f"n{number}", 4, 4096.0, workload="busy", service="latency")
            request = PlacementRequest(asked, hosts=tuple(HOSTS), dry_run=True, explain=False)
            host = advisor.placements.place(request).recommendation.candidates[0].host
            advisor.inventory.put_instance(replace(asked, host=host))
            found[host] += 1
    return found


def everything(service: Service) -> Inventory:
    settings = Settings(database=f"sqlite:///{service.folder}/var/cotenant.sqlite3", state_dir=service.folder)
    with Advisor(settings) as there:
        return there.cloud.inventory()


@pytest.mark.measured
def test_what_a_question_adds_to_a_boot_is_reported(
    lab: OpenStackLab, relay: Relay, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    before = log_size(lab)
    for number in range(10):
        lab.placed([lab.boot(f"timed-{number}", "plain")])
    times = [
        float(found[1]) for line in new_lines(lab, before) if (found := re.search(r"100 hosts, ([\d.]+) ms", line))
    ]
    assert len(times) == 10
    median = statistics.median(times)
    with capsys.disabled():
        print(f"\na question about 100 hosts adds {median:.0f} ms to a boot (median of 10, most {max(times):.0f})")
    assert median < 1000


def log_size(lab: OpenStackLab) -> int:
    return lab.processes.log("scheduler").stat().st_size


def new_lines(lab: OpenStackLab, since: int) -> list[str]:
    return lab.processes.log("scheduler").read_bytes()[since:].decode(errors="replace").splitlines()
