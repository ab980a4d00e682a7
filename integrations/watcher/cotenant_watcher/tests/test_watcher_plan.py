"""What Watcher's strategies ask of a real service, what they make of its plan, and what they say without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from cotenant_watcher.planned import NoPlan, plan

from cotenant_client import Client
from cotenant_client.schemas import HostItem, InstanceItem
from tests.servers.running import free_port
from tests.servers.service import Service

HOSTS: list[HostItem] = [{"id": f"h{at}", "kind": "kvm", "pcpus": 8, "memory_mb": 65_536} for at in range(3)]
CROWD = {f"vm-{at}": "h0" for at in range(6)}  # six that want three CPUs each, on eight


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    started = Service(f"sqlite:///{folder / 'c.sqlite3'}", folder, forked=True).start()
    with Client(started.url) as client:
        instances: list[InstanceItem] = [
            {"id": name, "vcpus": 4, "memory_mb": 4096, "host": host, "demand": {"cpu": {"mean": 3.0}}}
            for name, host in CROWD.items()
        ]
        client.put_inventory(hosts=HOSTS, instances=instances)
    yield started
    started.running.stop()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    with Client(service.url) as made:
        yield made


def hosts() -> list[str]:
    return [str(one["id"]) for one in HOSTS]


def test_moves_come_with_source_target_and_stage(client: Client) -> None:
    found = plan(client, "rebalance", hosts(), CROWD, {"at_once": 1})
    assert found.moves
    assert {one.source for one in found.moves} == {"h0"}
    assert {one.target for one in found.moves} <= {"h1", "h2"}
    assert [one.stage for one in found.moves] == sorted({one.stage for one in found.moves})


def test_the_audited_part_of_the_cloud_alone_is_planned(client: Client) -> None:
    found = plan(client, "rebalance", ["h0", "h2"], {"vm-1": "h0"}, {})
    assert [(one.instance, one.target) for one in found.moves] == [("vm-1", "h2")]


def test_no_more_moves_than_asked_for(client: Client) -> None:
    assert len(plan(client, "rebalance", hosts(), CROWD, {"max_moves": 1}).moves) == 1


def test_what_the_service_does_not_know_stays_and_a_note_says_so(client: Client) -> None:
    there: Mapping[str, str] = {**CROWD, "new": "h1", "vm-5": "h2"}
    found = plan(client, "rebalance", [*hosts(), "h9"], there, {})
    assert found.notes[:2] == [
        "1 compute nodes accept no servers: Cotenant does not know them",
        "2 servers stay: Cotenant does not know them, or on another host",
    ]
    assert {"new", "vm-5"}.isdisjoint(one.instance for one in found.moves)


@pytest.mark.parametrize(
    ("nodes", "places", "message"),
    [
        (["other"], {"vm-1": "other"}, "knows none of the 1 compute nodes; let `cotenant sync"),
        (["h0"], {"other": "h0", "vm-1": "h1"}, "knows none of the 2 servers where they are; let `cotenant sync"),
    ],
)
def test_a_cloud_that_is_not_known_is_reported_with_what_to_do(
    client: Client, nodes: list[str], places: dict[str, str], message: str
) -> None:
    with pytest.raises(NoPlan, match=message):
        plan(client, "rebalance", nodes, places, {})


def test_an_empty_host_gives_a_plan_without_moves(client: Client) -> None:
    assert plan(client, "rebalance", hosts(), {}, {}).moves == ()


def test_a_service_that_is_away_is_reported_in_a_sentence() -> None:
    with Client(f"http://127.0.0.1:{free_port()}", tries=1) as client, pytest.raises(NoPlan) as reported:
        plan(client, "rebalance", hosts(), CROWD, {})
    assert str(reported.value).startswith("Cotenant gives no plan: http://127.0.0.1:")
    assert str(reported.value).endswith("cannot be asked: nothing listens there")


def test_a_refusal_says_what_is_wrong(client: Client) -> None:
    with pytest.raises(NoPlan, match=r"Cotenant gives no plan: .*keep_ratio"):
        plan(client, "rebalance", hosts(), CROWD, {"keep_ratio": 7.0})
