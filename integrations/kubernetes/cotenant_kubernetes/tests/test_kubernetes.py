"""A Kubernetes cluster in the inventory: who counts where, what a watch changes, and when a hold ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cotenant_kubernetes import pods, source
from cotenant_kubernetes.calls import ClusterAccount, account
from cotenant_kubernetes.cluster import node_seen
from cotenant_kubernetes.source import Kubernetes
from cotenant_kubernetes.tests.kubernetes_server import TOKEN, ApiServer, guest, launcher, node, pod, serving

from advisor.domain import Announcement, Instance, IsolationSettings, Pinning, PlacementRequest
from advisor.errors import NotFound
from advisor.inventories.reading import STOPPED_LOAD, Reading
from advisor.service import Advisor


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with serving() as made:
        for name in ("n1", "n2"):
            made.put("nodes", node(name))
        yield made


def source_of(api: ApiServer) -> Kubernetes:
    return Kubernetes(asking=lambda: ClusterAccount(api.url, TOKEN))


def reading(api: ApiServer) -> Reading:
    return source_of(api).read()


class Watching:
    """A watch in a thread, which writes what it reads as the command does."""

    def __init__(self, api: ApiServer, advisor: Advisor) -> None:
        self.readings: list[Reading] = []
        self._stop = threading.Event()
        self._source = source_of(api)
        self._advisor = advisor
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        for one in self._source.watch(self._stop):
            self._advisor.inventory.follow(one)
            self.readings.append(one)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not true():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.02)


def where(advisor: Advisor) -> dict[str, str | None]:
    return {one.id: one.host for one in advisor.inventory.instances(limit=1000).items}


def held(advisor: Advisor) -> set[str]:
    return {who.instance.id for host in advisor.cloud.now().hosts for who in host.residents if who.pending}


def test_nodes_and_bound_pods_are_hosts_and_instances(api: ApiServer, advisor: Advisor) -> None:
    api.put(
        "nodes",
        node("n3", ready="False", resources={"nvidia.com/gpu": "2"}, taints=[{"key": "gpu", "effect": "NoSchedule"}]),
    )
    more = {
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-7d4f", "controller": True}],
        "labels": {"pod-template-hash": "7d4f"},
        "annotations": {"cotenant.io/min-throughput-ratio": "0.9"},
    }
    api.put("pods", pod("web-7d4f-x", "n1", **more))
    api.put("pods", pod("waiting"))
    api.put("pods", pod("done", "n1", phase="Succeeded"))
    advisor.inventory.follow(reading(api))
    found = advisor.inventory.instance("uid-web-7d4f-x")
    assert where(advisor) == {"uid-web-7d4f-x": "n1"}
    assert (found.vcpus, found.memory_mb, found.min_throughput_ratio) == (1, 1024.0, 0.9)
    reported = {"name": "prod/web-7d4f-x", "class": "prod/Deployment/web", "project": "prod", "image": "web:1"}
    assert reported.items() <= found.labels.items()
    host = advisor.inventory.host("n3")
    assert (host.kind, host.pcpus, host.enabled) == ("lxc", 64, False)
    assert {"taint.gpu": ":NoSchedule", "resource.nvidia.com/gpu": "2", "zone": "a"}.items() <= host.labels.items()
    assert advisor.inventory.host("n1").enabled


def test_a_list_of_many_pages_is_read_whole(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_kubernetes.calls.PAGE", 3)
    for number in range(10):
        api.put("pods", pod(f"p{number}", "n1"))
    assert len(reading(api).instances) == 10


def test_a_guest_that_moves_is_on_two_nodes_and_then_on_the_other(api: ApiServer, advisor: Advisor) -> None:
    api.absent.clear()
    api.put("guests", guest("vm1", "n1"))
    api.put("pods", launcher("old", "vm1", "n1"))
    advisor.inventory.follow(reading(api))
    assert (where(advisor), advisor.inventory.instance("vm1").vcpus) == ({"vm1": "n1"}, 4)
    api.put("pods", launcher("new", "vm1", "n2", target=True))
    advisor.inventory.follow(reading(api))
    assert where(advisor) == {"vm1": "n1", "uid-new": "n2"}
    assert advisor.inventory.instance("uid-new").load == STOPPED_LOAD
    api.put("guests", guest("vm1", "n2"))
    api.put("pods", launcher("old", "vm1", "n1", phase="Succeeded"))
    advisor.inventory.follow(reading(api))
    assert (where(advisor), advisor.inventory.instance("vm1").load) == ({"vm1": "n2"}, 1.0)


def test_without_kubevirt_s_objects_its_pods_tell_who_moves(api: ApiServer, advisor: Advisor) -> None:
    api.put("pods", launcher("new", "vm1", "n2", target=True))
    api.put("pods", launcher("old", "vm1", "n1"))
    advisor.inventory.follow(reading(api))
    assert where(advisor) == {"vm1": "n1", "uid-new": "n2"}


def test_what_may_not_be_listed_stays_as_it_is(api: ApiServer, advisor: Advisor) -> None:
    api.put("pods", pod("p", "n1"))
    advisor.inventory.follow(reading(api))
    api.refused.add("pods")
    reported = reading(api)
    advisor.inventory.follow(reported)
    assert where(advisor) == {"uid-p": "n1"}
    part = next(part for part in reported.parts if part.name == "pods")
    assert (part.state, "needs list and watch of pods" in part.reason) == ("refused", True)


def test_a_watch_brings_what_changes(api: ApiServer, advisor: Advisor) -> None:
    api.put("pods", pod("first", "n1"))
    with Watching(api, advisor) as watching:
        until(lambda: where(advisor) == {"uid-first": "n1"})
        api.put("pods", pod("second", "n2"))
        api.delete("pods", "prod/first")
        until(lambda: where(advisor) == {"uid-second": "n2"})
        api.put("nodes", node("n3"))
        api.put("pods", pod("third", "n3"))
        until(lambda: where(advisor).get("uid-third") == "n3")
        api.put("pods", pod("second", "n2", phase="Failed"))
        api.delete("pods", "prod/third")
        api.delete("nodes", "/n3")
        until(lambda: not where(advisor))
        until(lambda: {one.id for one in advisor.inventory.hosts().items} == {"n1", "n2"})
    assert [one.partial for one in watching.readings].count(False) == 1


def test_a_watch_that_breaks_or_is_too_old_misses_nothing(
    api: ApiServer, advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "REST_S", (0.01, 0.01))
    api.put("pods", pod("first", "n1"))
    with Watching(api, advisor):
        until(lambda: where(advisor) == {"uid-first": "n1"})
        api.break_watches()
        api.put("pods", pod("second", "n2"))
        until(lambda: where(advisor) == {"uid-first": "n1", "uid-second": "n2"})
        with api.changed:  # no event reports this
            api.objects["pods"].pop("prod/first")
            api.put("pods", pod("third", "n1"))
            api.forget()
        until(lambda: where(advisor) == {"uid-second": "n2", "uid-third": "n1"})


def test_a_hold_ends_when_the_pod_is_bound_or_deleted(api: ApiServer, advisor: Advisor) -> None:
    with Watching(api, advisor):
        until(lambda: len(advisor.inventory.hosts().items) == 2)
        for name in ("bound", "deleted", "waiting"):
            api.put("pods", pod(name))
            advisor.placements.place(PlacementRequest(Instance(f"uid-{name}")))
        assert held(advisor) == {"uid-bound", "uid-deleted", "uid-waiting"}
        api.put("pods", pod("bound", "n2"))
        api.delete("pods", "prod/deleted")
        until(lambda: held(advisor) == {"uid-waiting"})
        assert where(advisor) == {"uid-bound": "n2"}


def test_what_could_not_be_written_comes_again(api: ApiServer, advisor: Advisor) -> None:
    stop = threading.Event()
    watched = source_of(api)
    readings = watched.watch(stop)
    assert not next(readings).partial
    api.put("pods", pod("p", "n1"))
    assert next(readings).partial  # and it is lost
    watched.again()
    api.put("pods", pod("q", "n1"))
    reported = next(readings)
    assert (reported.partial, len(reported.instances)) == (False, 2)
    stop.set()


def test_nodes_are_heard_of_while_nothing_happens(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HEARTBEAT_S", 0.05)
    stop = threading.Event()
    readings = source_of(api).watch(stop)
    assert not next(readings).partial
    assert any(next(readings).heard == {"n1", "n2"} for _ in range(100))
    stop.set()


def container(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        ({"containers": [container("1"), container("500m"), {}]}, 1.5),
        ({"containers": [container("1")], "initContainers": [container("3"), container("2")]}, 3.0),
        ({"containers": [container("1")], "initContainers": [container("2", restartPolicy="Always")]}, 3.0),
        # The sidecar runs beside the init container that comes after it, and not beside the one before it.
        ({"containers": [container("1")],
          "initContainers": [container("4"), container("2", restartPolicy="Always"), container("3")]}, 5.0),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "6"}}, "overhead": {"cpu": "250m"}}, 6.25),
        ({"containers": [container("1")], "resources": {"requests": {"memory": "1Gi"}}}, 1.0),
        ({}, 0.0),
    ],
)  # fmt: skip
def test_a_pod_is_counted_as_the_scheduler_counts_it(spec: dict[str, Any], cpus: float) -> None:
    assert pods.requested({"spec": spec}, "cpu") == pytest.approx(cpus)


HASH = "5ca1ab1e" * 4  # of the file of a static pod


def resized(asked: str, had: str, *, refused: bool = False, allocated: str | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"name": "c", "resources": {"requests": {"cpu": had}}}
    if allocated:
        status["allocatedResources"] = {"cpu": allocated}
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible" if refused else "Deferred"}
    return {
        "spec": {"containers": [container(asked, name="c"), container("1", name="other")]},
        "status": {"containerStatuses": [status], "conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("pod_now", "cpus"),
    [
        (resized("4", "2"), 5.0),  # asked for, and not given yet
        (resized("1", "3"), 4.0),  # to shrink, and still had
        (resized("1", "2", allocated="3"), 4.0),
        (resized("64", "2", refused=True), 3.0),  # which its node never has
        ({**resized("64", "2"), "status": {"resize": "Infeasible", "containerStatuses": [
            {"name": "c", "allocatedResources": {"cpu": "1500m"}}]}}, 2.5),
        ({"spec": {"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}},
          "status": {"resources": {"requests": {"cpu": "3"}}}}, 3.0),
        ({"spec": {"containers": [container("1")],
                   "initContainers": [container("1", name="s", restartPolicy="Always")]},
          "status": {"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "2"}}]}}, 3.0),
    ],
)  # fmt: skip
def test_a_pod_that_is_resized_in_place_counts_with_the_most_of_what_it_asks_for_and_has(
    pod_now: dict[str, Any], cpus: float
) -> None:
    assert pods.requested(pod_now, "cpu") == cpus


def test_a_static_pod_has_the_id_that_an_agent_on_its_node_gives_it(api: ApiServer, advisor: Advisor) -> None:
    advisor.inventory.follow(reading(api))
    notes = {"kubernetes.io/config.mirror": HASH, "kubernetes.io/config.hash": HASH}
    row = api.put("pods", pod("etcd-n1", on="n1", annotations=notes))
    advisor.inventory.announce(
        Announcement({"id": "n1"}, [{"id": HASH, "vcpus": 2, "labels": {}}], "m", 60.0, datetime.now(UTC))
    )
    advisor.inventory.follow(reading(api))
    (etcd,) = advisor.inventory.instances().items
    assert (etcd.id, etcd.host, etcd.labels["pod"]) == (HASH, "n1", row["metadata"]["uid"])
    with Watching(api, advisor) as watching:
        until(lambda: bool(watching.readings))
        api.delete("pods", "prod/etcd-n1")
        until(lambda: advisor.inventory.instances().items == ())


def test_a_node_that_tells_its_capacity_alone_keeps_its_huge_pages() -> None:
    reported = {"cpu": "8", "memory": "64Gi", "hugepages-2Mi": "8Gi", "hugepages-1Gi": "4Gi"}
    seen = node_seen({"metadata": {"name": "n"}, "status": {"capacity": reported}})
    assert seen["memory_mb"] == 52 * 1024
    assert (
        node_seen({"metadata": {"name": "n"}, "status": {"capacity": reported, "allocatable": reported}})["memory_mb"]
        == 65536
    )


@pytest.mark.parametrize(
    ("parts", "vcpus"),
    [
        (["1100m"], 2),
        (["250m"], 1),
        (["100m", "700m", "200m"], 1),
        (["1.1", "2.2", "700m"], 4),
        (["4100m", "1900m"], 6),
    ],
)
def test_requests_in_thousandths_are_whole_vcpus(parts: list[str], vcpus: int) -> None:
    assert pods.size({"spec": {"containers": [container(part) for part in parts]}}) == {"vcpus": vcpus}


@pytest.mark.parametrize(("cpu", "pcpus"), [("500m", 1), ("3920m", 4), ("8", 8), ("4e0", 4)])
def test_a_node_may_tell_thousandths_of_cpus(cpu: str, pcpus: int) -> None:
    """Virtual nodes do, and what is allocatable."""
    seen = node_seen({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": cpu, "memory": "1Gi"}}})
    assert (seen["pcpus"], seen["memory_mb"]) == (pcpus, 1024)


@pytest.mark.parametrize(
    ("kind", "name", "labels", "known"),
    [
        ("ReplicaSet", "web-7d4f", {"pod-template-hash": "7d4f"}, "prod/Deployment/web"),
        ("ReplicaSet", "web", {}, "prod/ReplicaSet/web"),
        ("StatefulSet", "db", {}, "prod/StatefulSet/db"),
        ("Job", "nightly-29401380", {}, "prod/CronJob/nightly"),
        ("Job", "once", {}, "prod/Job/once"),
    ],
)
def test_the_class_of_a_pod_is_what_made_it(kind: str, name: str, labels: dict[str, str], known: str) -> None:
    owners = [{"kind": "Other", "name": "x"}, {"kind": kind, "name": name, "controller": True}]
    assert pods.owner(pod("p", labels=labels, ownerReferences=owners)) == known


def test_a_wrong_annotation_is_reported_and_the_pod_counts(api: ApiServer) -> None:
    api.put("pods", pod("p", "n1", annotations={"cotenant.io/load": "much", "cotenant.io/worklod": "web"}))
    reported = reading(api)
    assert len(reported.instances) == 1
    assert "is cotenant.io/workload meant?" in reported.left_out[0]
    assert "pod prod/p: cotenant.io/load 'much'" in reported.left_out[1]


def test_a_kubeconfig_names_server_authority_and_token(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'https://10.0.0.1:6443', certificate-authority: ca.pem}}]\n"
        "users: [{name: u, user: {token: SECRET}}, {name: e, user: {exec: {command: aws}}}]\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}, {name: y, context: {cluster: c, user: e}}]\n"
        "current-context: x\n"
    )
    config.chmod(0o600)
    found = account(None, {"KUBECONFIG": str(config)})
    assert (found.server, found.bearer(), found.ca) == ("https://10.0.0.1:6443", "SECRET", tmp_path / "ca.pem")
    assert "SECRET" not in repr(found)
    with pytest.raises(ValueError, match="runs a program for its token"):
        account("y", {"KUBECONFIG": str(config)})
    config.write_text(config.read_text().replace("certificate-authority: ca.pem", "certificate-authority-data: Q0E="))
    authority = account(None, {"KUBECONFIG": str(config)}).ca
    assert authority is not None
    assert (authority.read_text(), authority.stat().st_mode & 0o777) == ("CA", 0o600)
    insecure = config.read_text().replace("certificate-authority-data: Q0E=", "insecure-skip-tls-verify: true")
    config.write_text(insecure)
    with pytest.raises(ValueError, match="insecure-skip-tls-verify is not taken"):
        account(None, {"KUBECONFIG": str(config)})


def test_in_a_pod_the_service_account_is_taken_and_its_token_read_anew(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    found = account(None, {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (found.server, found.ca, found.bearer()) == ("https://[fd00::1]:6443", tmp_path / "ca.crt", "first")
    (tmp_path / "token").write_text("second\n")
    assert found.bearer() == "second"


def test_a_node_that_lost_cpus_is_followed_whatever_is_pinned_to_them(api: ApiServer, advisor: Advisor) -> None:
    advisor.inventory.follow(reading(api))
    there = advisor.inventory.host("n2")
    pins = IsolationSettings(pinning=Pinning(((there.pcpus - 1,),)))
    advisor.inventory.put_instance(Instance("mine", host="n2", settings=pins))
    less: dict[str, Any] = {"id": "n2", "kind": there.kind, "pcpus": there.pcpus - 1, "memory_mb": 1024.0, "labels": {}}
    news = advisor.inventory.follow(replace(Reading("kubernetes", ()), partial=True, hosts=(less,)))
    assert [sentence.split()[:2] for sentence in news.left_out] == [["instance", "mine"]]
    assert advisor.inventory.host("n2").pcpus == there.pcpus - 1
    assert advisor.inventory.instance("mine").settings.pinning is None


def test_a_host_that_is_gone_stays_while_an_instance_is_on_it(api: ApiServer, advisor: Advisor) -> None:
    advisor.inventory.follow(reading(api))
    advisor.inventory.put_instance(Instance("mine", host="n2"))
    reported = replace(Reading("kubernetes", ()), partial=True, gone_hosts=frozenset({"n1", "n2"}))
    assert advisor.inventory.follow(reported).gone_hosts == ("n1",)
    with pytest.raises(NotFound):
        advisor.inventory.host("n1")
