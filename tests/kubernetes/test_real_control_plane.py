"""kube-apiserver and kube-scheduler with our sync and extender: where pods go, and what is known of them."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from tests.kubernetes.lab import KINDS, Lab, mix, oversubscribed, pod, standing_still, wait
from tests.kubernetes.tap import Fault, answering


@contextmanager
def asking(lab: Lab, url: str | None, **changed: Any) -> Iterator[None]:
    """kube-scheduler asks there, with what is shipped beside it."""
    lab.cluster.schedule(url, **changed)
    try:
        yield
    finally:
        lab.schedule()


def test_two_bursts_65_s_apart_oversubscribe_no_node(lab: Lab) -> None:
    lab.fresh(40)
    first, second = mix(100, "a", 1), mix(100, "b", 2)
    placed = lab.burst(first)
    time.sleep(65)  # holds end after 60 s: what is known of the first burst then is what the sync reported
    placed |= lab.burst(second)
    wait(lambda: len(lab.instances()) == 200)
    assert oversubscribed(placed, first | second) == []
    assert lab.on() == placed


def test_what_was_deleted_makes_room_at_once(lab: Lab) -> None:
    lab.fresh(40)
    lab.burst(mix(200, "a", 3))
    lab.cluster.wipe()
    again = mix(200, "b", 4)
    assert oversubscribed(lab.burst(again), again) == []


def test_a_watch_that_breaks_misses_nothing(lab: Lab) -> None:
    lab.fresh(10)
    placed = lab.burst(mix(20, "a", 5))
    wait(lambda: len(lab.instances()) == 20)
    lab.cluster.apiserver.stop(signal.SIGKILL)
    lab.cluster.apiserver.start()
    lab.cluster.delete("a-000")
    del placed["a-000"]
    placed |= lab.burst(mix(20, "b", 6))
    wait(lambda: lab.on() == placed)


@pytest.mark.parametrize("fault", ["500", "garbage", "hang"])
def test_wrong_answers_and_none_block_no_pod(lab: Lab, fault: Fault) -> None:
    """Pods that ask wait for 300 ms twice at the most, and others behind them no longer than that."""
    lab.fresh(4)
    with answering(fault) as url, asking(lab, url):
        bodies = [*(pod(f"asks-{at}", "quiet") for at in range(5)), *(pod(f"plain-{at}") for at in range(20))]
        begun = time.monotonic()
        lab.cluster.create(bodies)
        lab.cluster.wait_bound([one["metadata"]["name"] for one in bodies], 60)
        assert time.monotonic() - begun < 5 * 0.6 + 30  # less than two of these answers would take


def test_an_agent_does_not_wait_for_a_service_that_is_away_or_refuses_its_token(lab: Lab) -> None:
    names = lab.fresh(4)
    with asking(lab, lab.service.url.replace("http://", "http://any:cot_unknown@")):
        lab.burst({"no-token": "quiet"}, 60)
    lab.schedule()
    lab.service.kill()
    try:
        lab.burst({"killed": "quiet"}, 60)
    finally:
        lab.service.start()
    with standing_still(lab.service.running), asking(lab, lab.extender):
        lab.burst({"stopped": "quiet"}, 60)
    wait(lambda: set(lab.on()) == {"no-token", "killed", "stopped"})
    assert set(lab.on().values()) <= set(names)


def test_an_empty_answer_of_a_proxy_blocks_pods_that_ask(lab: Lab) -> None:
    """Why the documentation says never: kube-scheduler takes it to mean that no node will do."""
    lab.fresh(2)
    with answering("empty") as url, asking(lab, url):
        lab.cluster.create([pod("asks", "quiet")])
        wait(lambda: lab.cluster.events("FailedScheduling"))
        assert "asks" not in lab.cluster.bound()
    lab.cluster.wait_bound(["asks"])


def test_whole_nodes_are_refused_and_no_other_request_is_blocked(lab: Lab) -> None:
    lab.fresh(2)
    with asking(lab, lab.extender, nodeCacheCapable=False):
        lab.burst({"asks": "quiet"}, 60)
        assert lab.cluster.scheduler is not None
        assert "set nodeCacheCapable: true" in lab.cluster.scheduler.log.read_text(encoding="utf-8")


def test_new_nodes_are_taken_before_the_sync_reports_them(lab: Lab) -> None:
    known = lab.fresh(2)
    first = {f"first-{at}": "stream" for at in range(2)}
    assert set(lab.burst(first).values()) == set(known)
    wait(lambda: len(lab.instances()) == 2)
    with standing_still(lab.sync):
        new = [f"new-{at}" for at in range(4)]
        lab.cluster.nodes(new)
        placed = lab.burst({f"second-{at}": "stream" for at in range(4)})
    assert set(placed.values()) <= set(new)
    wait(lambda: len(lab.instances()) == 6)


def test_pods_without_a_question_count(lab: Lab) -> None:
    """Streamers that were put on half of the nodes by another client: those that ask go to the other half."""
    names = lab.fresh(8)
    silent = [pod(f"silent-{at}", "stream", asks=False, nodeName=names[at]) for at in range(4)]
    lab.cluster.create(silent)
    wait(lambda: len(lab.instances()) == 4)
    assert set(lab.burst({f"asks-{at}": "stream" for at in range(4)}).values()) == set(names[4:])


def test_a_guest_that_moves_is_on_two_nodes(lab: Lab) -> None:
    """Pods as KubeVirt labels them; there is no KubeVirt here, so no controller lists its own objects."""
    names = lab.fresh(3)
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "vm-uid"}
    target = {**labels, "kubevirt.io/migrationJobUID": "job"}
    lab.cluster.create([pod("launcher-1", nodeName=names[0], labels=labels)])
    lab.cluster.create([pod("launcher-2", nodeName=names[1], labels=target)])
    wait(lambda: len(lab.instances()) == 2)
    found = lab.instances()
    assert (found["launcher-1"]["id"], found["launcher-1"]["host"]) == ("vm-uid", names[0])
    assert (found["launcher-2"]["labels"]["moving"], found["launcher-2"]["host"]) == ("vm-uid", names[1])
    lab.cluster.delete("launcher-1")
    wait(lambda: {one["id"]: one["host"] for one in lab.instances().values()} == {"vm-uid": names[1]})


def test_the_token_in_the_address_is_sent_and_stands_in_the_log_when_an_answer_is_an_error(lab: Lab) -> None:
    """The service takes no question without it; why the documentation warns of the log."""
    lab.fresh(2)
    assert requests.post(f"{lab.service.url}/kubernetes/filter", json={}, timeout=60).status_code == 401
    with answering("500") as url, asking(lab, url.replace("http://", f"http://any:{lab.token}@")):
        lab.burst({"asks": "quiet"}, 60)
        assert lab.cluster.scheduler is not None
        lines = lab.cluster.scheduler.log.read_text(encoding="utf-8").splitlines()
        there = url.removeprefix("http://")  # other cases have their lines in this log, too
        said = [one for one in lines if "code 500" in one and there in one]
    assert said
    assert all(lab.token in one for one in said)


def test_an_extender_turns_batching_off(lab: Lab) -> None:
    """Why the documentation says never where a profile needs it; pods that are alike, each of which fills a node."""
    names = lab.fresh(20)
    spread = {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": []}}
    profiles = [{"schedulerName": "default-scheduler", "pluginConfig": [spread]}]
    batched = {}
    for url in (None, lab.extender):
        with asking(lab, url, profiles=profiles, **(lab.changed if url else {})):
            lab.cluster.create(pod(name, cpu="40") for name in names)
            lab.cluster.wait_bound(names)
            batched[url] = lab.cluster.metric(r'scheduler_batch_attempts_total\{[^}]*"hint_used"[^}]*\}')
        lab.cluster.wipe()
    assert batched[None] > 0
    assert batched[lab.extender] == 0


@pytest.mark.parametrize("kind", ["virt-handler", "hotplug-disk"])
def test_kubevirt_s_own_pods_are_no_guests(lab: Lab, kind: str) -> None:
    (name,) = lab.fresh(1)
    labels = {"kubevirt.io": kind, "kubevirt.io/created-by": "vm-uid"}
    lab.cluster.create([pod("own", nodeName=name, labels=labels)])
    wait(lab.instances)
    (own,) = lab.cluster.pods()
    assert lab.instances()["own"]["id"] == own["metadata"]["uid"]


@pytest.mark.parametrize("sized", ["sidecar", "whole pod"])
def test_a_pod_is_as_large_as_kube_scheduler_counts_it(lab: Lab, sized: str) -> None:
    """A node with just as much memory takes it, one with 1 MiB less does not."""
    (name,) = lab.fresh(1)
    asks = {"requests": {"memory": "512Mi"}}
    body = pod("sized")
    body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "1Gi"}}
    if sized == "sidecar":
        once = {"name": "i", "image": "none", "resources": {"requests": {"memory": "1200Mi"}}}
        sidecar = {"name": "s", "image": "none", "resources": asks, "restartPolicy": "Always"}
        body["spec"]["initContainers"] = [sidecar, once]
    else:
        body["spec"]["resources"] = {"requests": {"cpu": "2", "memory": "3Gi"}}
    lab.cluster.create([body])
    lab.cluster.wait_bound(["sized"])
    wait(lab.instances)
    memory = lab.instances()["sized"]["memory_mb"]
    assert memory == (1200 + 512 if sized == "sidecar" else 3 * 1024)
    lab.cluster.wipe(nodes=True)
    lab.cluster.nodes([name], memory=f"{memory - 1:.0f}Mi")
    lab.cluster.create([body])
    wait(lambda: any("Insufficient memory" in one["message"] for one in lab.cluster.events("FailedScheduling")))
    lab.cluster.nodes(["just-enough"], memory=f"{memory:.0f}Mi")
    assert lab.cluster.wait_bound(["sized"]) == {"sized": "just-enough"}


def test_no_pod_is_evicted_where_that_would_not_help(lab: Lab) -> None:
    """Each node is full with two streamers, and a third that must keep its speed needs a node without any."""
    names = lab.fresh(4)
    for name, value in (("low", 10), ("high", 1000)):
        lab.cluster.priority(name, value)
    full = [pod(f"low-{at}", "stream", cpu="32", nodeName=names[at // 2], priorityClassName="low") for at in range(8)]
    lab.cluster.create(full)
    wait(lambda: len(lab.instances()) == 8)
    limit = {"cotenant.io/min-throughput-ratio": "0.95"}
    lab.cluster.create([pod("high", "stream", cpu="32", priorityClassName="high", annotations=limit)])
    wait(lambda: lab.cluster.events("FailedScheduling"))
    time.sleep(10)
    assert len(lab.cluster.pods()) == 9
    assert "high" not in lab.cluster.bound()
    # Where the new VM's needs are met once one is gone, one is evicted, and it is bound.
    lab.cluster.create([pod("modest", "quiet", cpu="32", priorityClassName="high")])
    lab.cluster.wait_bound(["modest"])
    assert sum(name.startswith("low") for name in lab.cluster.bound()) == 7


@pytest.mark.parametrize(
    ("annotation", "said"),
    [({"cotenant.io/worklod": "stream"}, "is cotenant.io/workload meant?"),
     ({"cotenant.io/load": "much"}, "cotenant.io/load 'much': is not a finite number")],
)  # fmt: skip
def test_a_wrong_annotation_is_an_event(lab: Lab, annotation: dict[str, str], said: str) -> None:
    lab.fresh(2)
    lab.cluster.create([pod("wrong", "advised", annotations=annotation)])
    wait(lambda: any(said in one["message"] for one in lab.cluster.events("FailedScheduling")))
    assert "wrong" not in lab.cluster.bound()


def test_kinds_fit_one_of_each_on_a_node() -> None:
    """What the cases above rest on: a mix of as many of each kind as there are nodes oversubscribes none of them."""
    kinds = {kind: kind for kind in KINDS}
    assert oversubscribed(dict.fromkeys(kinds, "node"), kinds) == []
    assert oversubscribed(dict.fromkeys(["a", "b"], "node"), {"a": "stream", "b": "stream"}) == ["node"]
