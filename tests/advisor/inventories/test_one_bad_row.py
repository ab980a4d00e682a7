"""Each followed system: one row with a wrong field costs that row alone, whatever stands in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cotenant_kubernetes.calls import ClusterAccount
from cotenant_kubernetes.source import Kubernetes
from cotenant_kubernetes.tests import kubernetes_server
from cotenant_openstack.facts import group_labels, zones_of
from cotenant_openstack.system import OpenStack
from cotenant_openstack.tests import openstack_replay

from tests.advisor.inventories.bad_rows import BadRowRules, Rows, System

pytestmark = [
    pytest.mark.skipif(not openstack_replay.RECORDING.exists(), reason="nothing is recorded"),
    pytest.mark.filterwarnings("ignore:::openstack"),
]
SYSTEMS = ["kubernetes", "openstack"]


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


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    with ExitStack() as stack:
        yield globals()[f"_{request.param}"](stack)


class TestBadRows(BadRowRules):
    pass


@pytest.mark.parametrize("odd", [[], 5, "x", {"a": []}])
def test_groups_and_zones_of_a_wrong_type_are_none(odd: Any) -> None:
    group = {"id": "g", "policy": "anti-affinity", "rules": odd, "members": odd}
    good = {"id": "h", "policy": "anti-affinity", "members": ["m"]}
    assert group_labels([group, good])["m"] == {"anti_affinity": "h"}
    assert zones_of([{"zoneName": odd, "hosts": odd}, {"zoneName": "z", "hosts": {"k": {}}}], [])["k"] == "z"
