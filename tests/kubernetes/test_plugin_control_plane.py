"""kube-scheduler with the plug-in as a second scheduler on a real control plane: one question a pod, no pod blocked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.lab import Lab, mix, oversubscribed, pod, standing_still, wait
from tests.kubernetes.tap import answering

OURS: dict[str, Any] = {"schedulerName": "cotenant"}


@pytest.fixture(autouse=True)
def _with_plugin(lab: Lab) -> Iterator[None]:
    if lab.plugin is None:
        pytest.skip("there is no scheduler with the plug-in: make scheduler-plugin builds it")
    lab.schedule_with_plugin()
    yield
    assert lab.cluster.plugin is not None
    lab.cluster.plugin.stop()
    lab.cluster.plugin = None
    lab.schedule()


def test_a_burst_oversubscribes_no_node_and_pods_alike_share_answers(lab: Lab) -> None:
    lab.fresh(40)
    kinds = mix(200, "a", 1)
    placed = lab.burst(kinds, **OURS)
    assert oversubscribed(placed, kinds) == []
    assert lab.pods("advised") == 200
    assert lab.cluster.metric(r'cotenant_scheduler_questions_total\{result="answered"\}', plugin=True) < 200
    wait(lambda: lab.on() == placed)


def test_a_pod_that_is_deleted_at_once_holds_no_node(lab: Lab) -> None:
    """Its placement is reported when the sync has reported already that it is gone."""
    names = lab.fresh(1)
    for number in range(5):
        lab.cluster.seconds_to_bind(pod(f"short-{number}", "stream", **OURS))
        lab.cluster.delete(f"short-{number}")
    wait(lambda: not lab.instances())
    time.sleep(1)  # for placements that are reported late
    limit = {"cotenant.io/min-throughput-ratio": "0.95"}
    asked = {"Pod": pod("next", "stream", annotations=limit, **OURS), "NodeNames": names}
    assert lab.ask("POST", "/kubernetes/advice", json=asked)["FailedNodes"] == {}


def test_two_bursts_65_s_apart_oversubscribe_no_node(lab: Lab) -> None:
    lab.fresh(40)
    first, second = mix(100, "a", 1), mix(100, "b", 2)
    placed = lab.burst(first, **OURS)
    time.sleep(65)
    placed |= lab.burst(second, **OURS)
    assert oversubscribed(placed, first | second) == []


def test_what_two_schedulers_place_at_once_oversubscribes_no_node(lab: Lab) -> None:
    """One asks by the extender, the other by the plug-in; the service knows of both."""
    lab.fresh(40)
    lab.schedule()
    kinds = mix(200, "p", 5)
    lab.cluster.create(
        pod(name, kind, **(OURS if number % 2 else {})) for number, (name, kind) in enumerate(kinds.items())
    )
    assert oversubscribed(lab.cluster.wait_bound(kinds), kinds) == []


def test_pods_that_say_nothing_are_not_asked_about(lab: Lab) -> None:
    lab.fresh(4)
    lab.cluster.create(pod(f"plain-{at}", **OURS) for at in range(10))
    lab.cluster.wait_bound([f"plain-{at}" for at in range(10)])
    assert lab.cluster.metric("cotenant_scheduler_pods_total", plugin=True) == 0


@pytest.mark.parametrize("fault", ["500", "garbage", "hang"])
def test_wrong_answers_and_none_block_no_pod(lab: Lab, fault: str) -> None:
    lab.fresh(4)
    with answering(fault) as url:  # type: ignore[arg-type]
        lab.schedule_with_plugin(url, timeout="300ms")
        bodies = [pod(f"asks-{at}", "quiet", **OURS) for at in range(10)]
        lab.cluster.create([*bodies, *(pod(f"plain-{at}", **OURS) for at in range(10))])
        lab.cluster.wait_bound([*(f"asks-{at}" for at in range(10)), *(f"plain-{at}" for at in range(10))], 60)
        assert lab.pods("unadvised") == 10


def test_a_service_that_stands_still_delays_few_and_is_asked_again(lab: Lab) -> None:
    lab.fresh(4)
    lab.schedule_with_plugin(timeout="300ms", rest="1s")
    lab.burst({"first": "quiet"}, **OURS)
    with standing_still(lab.service.running):
        lab.burst({f"still-{at}": "quiet" for at in range(10)}, 60, **OURS)
    advised = lab.pods("advised")

    def again() -> bool:
        name = f"later-{time.monotonic_ns()}"
        lab.burst({name: "quiet"}, 60, **OURS)
        return lab.pods("advised") > advised

    wait(again)


def test_a_wrong_annotation_is_an_event(lab: Lab) -> None:
    lab.fresh(2)
    lab.cluster.create([pod("wrong", "advised", annotations={"cotenant.io/worklod": "stream"}, **OURS)])
    meant = "is cotenant.io/workload meant?"
    wait(lambda: any(meant in one["message"] for one in lab.cluster.events("FailedScheduling")))
    assert "wrong" not in lab.cluster.bound()


def test_no_pod_is_evicted_where_that_would_not_help_and_no_more_than_needed_where_it_does(lab: Lab) -> None:
    """Each node is full with two streamers; a third that must keep its speed needs a node without any."""
    names = lab.fresh(3)
    for name, value in (("plugin-low", 10), ("plugin-high", 1000)):
        lab.cluster.priority(name, value)
    more: dict[str, Any] = {"cpu": "32", "priorityClassName": "plugin-low"}
    lab.cluster.create([pod(f"low-{at}", "stream", nodeName=names[at // 2], **more) for at in range(6)])
    wait(lambda: len(lab.instances()) == 6)
    limit = {"cotenant.io/min-throughput-ratio": "0.95"}
    more = {"cpu": "32", "priorityClassName": "plugin-high", **OURS}
    lab.cluster.create([pod("high", "stream", annotations=limit, **more)])
    lab.cluster.wait_bound(["high"])
    assert sum(name.startswith("low") for name in lab.cluster.bound()) == 4
