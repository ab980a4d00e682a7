"""A real OpenStack for the tests of this folder, only where COTENANT_TEST_OPENSTACK=1 asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.openstack.cloud_scene import HOSTS, scheduler

if TYPE_CHECKING:
    from tests.openstack.openstack_lab.lab import OpenStackLab
    from tests.openstack.relay import Relay
    from tests.openstack.served import Service


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """openstacksdk warns of fields that newer versions of Nova lack."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:::openstack"))
            item.add_marker(pytest.mark.timeout(1800))  # the first one waits for the whole cloud


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenStackLab]:
    """Keystone, Placement, Nova and 100 simulated computes that are all alike."""
    if os.environ.get("COTENANT_TEST_OPENSTACK") != "1":
        pytest.skip("starts a real OpenStack for minutes; make test-openstack asks for it")
    from tests.openstack.openstack_lab import install
    from tests.openstack.openstack_lab.lab import openstack_lab

    if reason := install.missing():
        pytest.skip(reason)
    with openstack_lab(tmp_path_factory.mktemp("openstack-logs")) as made:
        made.restart_scheduler({})
        made.add_computes(HOSTS)
        yield made


@pytest.fixture(scope="session")
def environment(lab: OpenStackLab) -> Mapping[str, str]:
    """The administrator's OS_* variables."""
    return lab.environment()


@pytest.fixture(scope="session")
def relay(lab: OpenStackLab) -> Iterator[Relay]:
    """What the scheduler asks, configured with filter and weigher."""
    from tests.openstack.relay import relaying

    with relaying() as made:
        lab.restart_scheduler(scheduler(made.url))
        yield made


@pytest.fixture(scope="session")
def served(environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for the session, that has read the cloud once."""
    from tests.openstack.served import serving

    # On a busy machine 30 boots take longer than the minute that answers are held by default.
    with serving(tmp_path_factory.mktemp("service"), env={"COTENANT_RESERVE_S": "900"}) as made:
        made.sync(environment)
        made.http.post(
            "/v1/placements", json={"instance": {"id": "first", "vcpus": 1}, "dry_run": True}
        ).raise_for_status()
        yield made


@pytest.fixture(scope="session")
def hosts(served: Service) -> object:
    """The cloud's hosts as they were read."""
    return served.get("/v1/hosts?limit=1000")["items"]


@pytest.fixture
def service(lab: OpenStackLab, relay: Relay, served: Service, hosts: object) -> Iterator[Service]:
    """The service with empty hosts and nothing pending, asked through the relay; its servers go with the test."""
    relay.target, relay.harm = served.port, None
    relay.asked.clear()
    served.put("/v1/inventory", {"mode": "replace", "hosts": [], "instances": []})  # what is held goes with its host
    served.put("/v1/inventory", {"mode": "replace", "hosts": hosts, "instances": []})
    yield served
    lab.delete_servers()


@pytest.fixture
def reconfigure(lab: OpenStackLab, relay: Relay) -> Iterator[Callable[[Mapping[str, Mapping[str, object]]], None]]:
    """Starts the scheduler with other options, and as it was after the test."""
    yield lab.restart_scheduler
    lab.restart_scheduler(scheduler(relay.url))
