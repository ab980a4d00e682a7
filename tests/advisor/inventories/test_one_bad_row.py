"""Each followed system: one row with a wrong field costs that row alone, whatever stands in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cotenant_proxmox import Proxmox
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain import Inventory
from advisor.inventories.cloudstack import CloudStack
from advisor.inventories.cloudstack.calls import Account, Api
from advisor.inventories.kubernetes.account import ClusterAccount
from advisor.inventories.kubernetes.source import Kubernetes
from advisor.inventories.openstack import OpenStack
from advisor.inventories.openstack.facts import group_labels, zones_of
from advisor.inventories.reading import Reading
from advisor.inventories.xapi import Xapi
from advisor.inventories.xapi.calls import XapiAccount, XapiSession
from advisor.service import Advisor
from tests.advisor.inventories import (
    cloudstack_server,
    kubernetes_server,
    openstack_replay,
    xapi_server,
)
from tests.examples import examples
from tests.integrations.proxmox import proxmox_server

pytestmark = [
    pytest.mark.skipif(not openstack_replay.RECORDING.exists(), reason="nothing is recorded"),
    pytest.mark.filterwarnings("ignore:::openstack"),
]
ODD: list[Any] = [
    None, -1, 0, 2.5, 1e300, 2**70, "", "many", "-3", "база/1 ☃", "x" * 5_000, "0-9999999", [], [[]], ["x", 1], {},
    {"a": []}, True, "0,,1", "\x1b[2J", "NaN", "1e999",
]  # fmt: skip
SYSTEMS = ["cloudstack", "kubernetes", "openstack", "proxmox", "xapi"]
Rows = list[dict[str, Any]]


class System:
    """A stand-in of a system: `rows` may be spoiled in place, `read` reads all of it anew."""

    def __init__(self, rows: Callable[[], Rows], read: Callable[[], Reading]) -> None:
        self.rows, self.read = rows, read
        self.clean = copy.deepcopy(rows())

    def restore(self) -> None:
        for row, clean in zip(self.rows(), self.clean, strict=True):
            row.clear()
            row.update(copy.deepcopy(clean))


def _cloudstack(stack: ExitStack) -> System:
    cloud = cloudstack_server.Cloud()
    url = stack.enter_context(cloudstack_server.serving(cloud))
    asking = Account(url, cloudstack_server.KEY, cloudstack_server.SECRET)
    return System(
        lambda: [*cloud.host, *cloud.virtualmachine, *cloud.serviceoffering],
        lambda: CloudStack(open_api=lambda: Api(asking)).read(),
    )


def _kubernetes(stack: ExitStack) -> System:
    api = stack.enter_context(kubernetes_server.serving())
    rows = [kubernetes_server.node("n1"), kubernetes_server.node("n2")]
    pods = [kubernetes_server.pod(f"p{number}", "n1") for number in range(3)]
    kept = [*(api.put("nodes", row) for row in rows), *(api.put("pods", row) for row in pods)]
    return System(
        lambda: kept, lambda: Kubernetes(asking=lambda: ClusterAccount(api.url, kubernetes_server.TOKEN)).read()
    )


def _openstack(stack: ExitStack) -> System:
    cloud = stack.enter_context(openstack_replay.replaying())
    lists: dict[str, Rows] = {}
    cloud.changed = lambda path, answer: _kept(lists, path, answer)
    OpenStack(connection=cloud.connect).read()
    return System(
        lambda: [row for rows in lists.values() for row in rows],
        OpenStack(connection=cloud.connect, whole_every=1).read,
    )


def _kept(lists: dict[str, Rows], path: str, answer: openstack_replay.Answer) -> openstack_replay.Answer:
    status, body = answer
    for name in ("servers", "hypervisors", "flavors", "aggregates", "resource_providers"):
        if status == 200 and isinstance(body, dict) and isinstance(body.get(name), list):
            lists.setdefault(path, body[name])
            return status, {**body, name: lists[path]}
    return answer


def _proxmox(stack: ExitStack) -> System:
    cluster = proxmox_server.Cluster()
    url = stack.enter_context(proxmox_server.serving(cluster))
    return System(
        lambda: [*cluster.nodes, *cluster.guests, *cluster.configs.values()],
        lambda: Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(url, proxmox_server.TOKEN))).read(),
    )


def _xapi(stack: ExitStack) -> System:
    pool = xapi_server.Pool()
    url = stack.enter_context(xapi_server.serving(pool))
    asking = XapiAccount(url, xapi_server.USER, xapi_server.PASSWORD)
    return System(
        lambda: [record for records in pool.classes.values() for record in records.values()],
        lambda: Xapi(open_session=lambda: XapiSession(asking)).read(),
    )


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with ExitStack() as stack:
        yield globals()[f"_{request.param}"](stack)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the whole apart."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, inner in steps for place in [(*at, step), *_places(inner, (*at, step))]]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_one_bad_row_costs_that_row_alone(system: System, advisor: Advisor, data: st.DataObject) -> None:
    system.restore()
    clean = system.read()
    assert (clean.complete, len(clean.hosts) > 1, len(clean.instances) > 1) == (True, True, True)
    advisor.inventory.follow(clean)
    hosts_were = {host.id: host for host in advisor.cloud.inventory().hosts}
    were = {one.id: one for one in advisor.cloud.inventory().instances}
    rows = system.rows()
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    *steps, last = data.draw(st.sampled_from(_places(row)))
    target: Any = row
    for step in steps:
        target = target[step]
    if data.draw(st.booleans()) and isinstance(target, dict):
        del target[last]
    else:
        target[last] = data.draw(st.sampled_from(ODD))
    reading = system.read()
    advisor.inventory.follow(reading)
    assert {one.state for one in reading.parts} <= {"read", "failed"}
    now = {one.id: one for one in advisor.cloud.inventory().instances}
    hosts_now = {host.id: host for host in advisor.cloud.inventory().hosts}
    lost = [name for name in were if name not in now]
    assert len(lost) <= 1, (reading.left_out, lost)
    assert len([name for name in hosts_were if name not in hosts_now]) <= 1, reading.left_out
    advisor.inventory.put(Inventory(), mode="replace", generation=None)


def test_no_field_of_a_wrong_type_keeps_a_read_from_coming(system: System) -> None:
    complete, tried = system.read(), set[tuple[str, ...]]()
    for at, row in enumerate(system.rows()):
        shape = tuple(sorted(row))
        for name in (
            () if shape in tried else sorted({*shape} - {"metadata"})[:: 1 + len(shape) // 15]
        ):  # which the stand-in itself needs
            system.rows()[at][name] = []
            reading = system.read()
            assert len(reading.parts) >= len(complete.parts)
            assert len(reading.hosts) >= len(complete.hosts) - 1
            system.restore()
        tried.add(shape)


@pytest.mark.parametrize("odd", [[], 5, "x", {"a": []}])
def test_groups_and_zones_of_a_wrong_type_are_none(odd: Any) -> None:
    group = {"id": "g", "policy": "anti-affinity", "rules": odd, "members": odd}
    good = {"id": "h", "policy": "anti-affinity", "members": ["m"]}
    assert group_labels([group, good])["m"] == {"anti_affinity": "h"}
    assert zones_of([{"zoneName": odd, "hosts": odd}, {"zoneName": "z", "hosts": {"k": {}}}], [])["k"] == "z"
