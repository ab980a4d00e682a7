"""A snapshot that follows another is the one that would be built whole, and hosts alike have one fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.snapshot import ClusterSnapshot, layout
from advisor.snapshot.layout import HostArrays
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import NOW, WORKLOADS, cloud, host, same, vm
from tests.examples import examples

HOSTS = ("a", "b", "c", "d")
VMS = tuple(f"v{at}" for at in range(8))


@dataclass(frozen=True)
class State:
    """A cloud by names."""

    hosts: dict[str, Host]
    instances: dict[str, Instance]
    pending: dict[str, Instance]
    workloads: tuple[WorkloadProfile, ...]
    seen: dict[str, datetime]

    def built(self, at: datetime) -> ClusterSnapshot:
        inventory = Inventory(tuple(self.hosts.values()), tuple(self.instances.values()), self.workloads)
        return ClusterSnapshot.build(inventory, seen=self.seen, pending=list(self.pending.values()), taken_at=at)


@st.composite
def a_host(draw: st.DrawFn, name: str) -> Host:
    return host(
        name,
        pcpus=draw(st.sampled_from([2, 4, 4, 4])),
        kind=draw(st.sampled_from(["xen", "lxc"])),
        platform=draw(st.sampled_from(["", "p", "a longer name"])),
        driver_cpus=draw(st.sampled_from([(), (0,)])),
        dedicated_cpus=draw(st.sampled_from([(), (), (1,), (0, 1)])),
        numa=draw(st.sampled_from([(), ((0,), (1,))])),
        enabled=draw(st.booleans()),
        disk_gb=draw(st.sampled_from([None, 10])),
    )


@st.composite
def an_instance(draw: st.DrawFn, name: str) -> Instance:
    return vm(
        name,
        draw(st.sampled_from(["spin", "web", "disk", "none such", None])),
        on=draw(st.sampled_from([*HOSTS, "nowhere", None])),
        vcpus=draw(st.integers(1, 2)),
        dedicated_vcpus=draw(st.sampled_from([0, 0, 1])),
        load=draw(st.sampled_from([1, 0.5])),
        pins=draw(st.sampled_from(["", "", "0:1"])),
        cap_percent=draw(st.sampled_from([None, 50.0])),
        memory_mb=draw(st.sampled_from([0.1, 0.2, 100])),
        min_throughput_ratio=draw(st.sampled_from([None, 0.9])),
        max_latency_ratio=draw(st.sampled_from([None, 2.0])),
        max_time_short=draw(st.sampled_from([None, 0.01])),
        exclusive=draw(st.booleans()),
    )


@st.composite
def profiles(draw: st.DrawFn) -> tuple[WorkloadProfile, ...]:
    # who has the record of a link or a disk depends on every host: mostly it stays the same one
    fastest = draw(st.sampled_from([5000.0, 5000.0, 5000.0, 6000.0]))
    known = [WORKLOADS[0], WORKLOADS[4], WorkloadProfile("fast", {"net_mbit": fastest})]
    for name in ("web", "none such"):
        cpu = draw(st.sampled_from([None, 10.0, 20.0]))
        if cpu is not None:
            metrics = {"cpu": cpu, "driver_domain.cpu": cpu}
            known.append(WorkloadProfile(name, metrics, platform=draw(st.sampled_from(["", "p"]))))
    return tuple(draw(st.permutations(known)))


@st.composite
def states(draw: st.DrawFn) -> State:
    def some(names: Sequence[str], least: Sequence[int], most: int) -> set[str]:
        return draw(st.sets(st.sampled_from(names), min_size=draw(st.sampled_from(least)), max_size=most))

    hosts = {name: draw(a_host(name)) for name in some(HOSTS, [0, 3], 4)}
    placed = {name: draw(an_instance(name)) for name in some(VMS, [0, 4], 6)}
    pending = {name: draw(an_instance(name)) for name in some(VMS, [0], 2)}
    seen = {name: NOW - timedelta(seconds=draw(st.integers(-5, 99))) for name in hosts if draw(st.booleans())}
    return State(hosts, placed, pending, draw(profiles()), seen)


@st.composite
def steps(draw: st.DrawFn, before: State) -> State:
    """Another state that shares most of what is there: a step that touches every host would hide what it forgets."""
    after, other = before, draw(states())
    facets = st.sampled_from(["hosts", "instances", "pending", "workloads"])
    for facet in draw(st.lists(facets, min_size=1, max_size=2)):
        now = getattr(other, facet)
        if facet != "workloads":
            one = draw(st.sampled_from(HOSTS if facet == "hosts" else VMS))
            rest = {name: it for name, it in getattr(before, facet).items() if name != one}
            now = rest | {name: it for name, it in now.items() if name == one}
        after = replace(after, **{facet: now})
    seen = other.seen if draw(st.booleans()) else before.seen
    return replace(after, seen={name: when for name, when in seen.items() if name in after.hosts})


def difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


@settings(max_examples=examples(50), deadline=None)
@given(data=st.data())
def test_a_snapshot_that_follows_changes_is_the_one_built_whole(data: st.DataObject) -> None:
    state = data.draw(states())
    snapshot = state.built(NOW)
    for turn in range(1, 3):
        after = data.draw(steps(state))
        kept = {name: when for name, when in state.seen.items() if name in after.hosts}  # nothing is ever unseen
        after = replace(after, seen=kept | after.seen)
        at = NOW + timedelta(seconds=turn)
        snapshot = snapshot.changed(
            hosts=difference(state.hosts, after.hosts),
            instances=difference(state.instances, after.instances),
            workloads=after.workloads,
            seen=after.seen,
            pending=list(after.pending.values()),
            taken_at=at,
        )
        whole = after.built(at)
        same(snapshot, whole)
        for name in VMS:
            assert snapshot.where(name) == whole.where(name) == slow_where(whole, name)
        state = after


def slow_where(snapshot: ClusterSnapshot, name: str) -> tuple[tuple[int, int], ...]:
    return tuple(
        (at, slot) for at, there in enumerate(snapshot.residents) for slot, one in enumerate(there) if one.id == name
    )


def test_only_hosts_that_something_happened_to_are_laid_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.snapshot import cluster as module

    snapshot = cloud([host(name) for name in HOSTS], [vm("x", on="a"), vm("y", "web", on="b"), vm("z", on="c")])
    asked: list[list[str]] = []

    def lay_out(hosts: Any, *rest: Any) -> HostArrays:
        asked.append([one.id for one in hosts])
        return layout.lay_out(hosts, *rest)

    monkeypatch.setattr(module, "lay_out", lay_out)
    now: dict[str, Any] = {"seen": {}, "pending": (), "taken_at": NOW}
    snapshot.changed(**now)
    snapshot.changed(instances={"x": vm("x", on="d")}, **now)
    snapshot.changed(instances={"y": None}, hosts={"c": host("c", enabled=False)}, **now)
    snapshot.changed(seen={"b": NOW}, pending=[vm("p", on="b"), vm("x", on="d")], taken_at=NOW)
    better = [one if one.name != "web" else WorkloadProfile("web", {"cpu": 61.0}) for one in WORKLOADS]
    snapshot.changed(workloads=better, **now)
    assert asked == [[], ["a", "d"], ["b", "c"], ["b"], ["b"]]


# fingerprints


def test_news_of_demand_copy_what_depends_on_it_and_nothing_else() -> None:
    residents = [vm(f"v{at}", None, "a", vcpus=2, demand={"cpu": Demand(0.5)}) for at in range(3)]
    before = cloud([host("a"), host("b")], residents)
    louder = replace(residents[0], demand={"cpu": Demand(1.5)})
    after = before.changed(seen={}, pending=(), taken_at=NOW, instances={"v0": louder})
    assert after.scenes.cpu_demand is not before.scenes.cpu_demand
    for name in ("affinity", "cap", "weight", "vcpus", "driver_cpus"):
        assert getattr(after.scenes, name) is getattr(before.scenes, name)
    longer = before.changed(seen={}, pending=(), taken_at=NOW, hosts={"b": replace(host("b"), memory_mb=1.0)})
    assert longer.room_memory_mb.tolist()[1] == 1.0
    assert before.room_memory_mb.tolist()[1] != 1.0


def alike(one: list[Instance], other: list[Instance], **hosts: Host) -> bool:
    first, second = hosts.get("first", host("a")), hosts.get("second", host("b"))
    moved = [replace(there, host="a") for there in one] + [replace(there, host="b") for there in other]
    found = cloud([first, second, host("wide", pcpus=8)], moved).fingerprints
    return bool(found[0] == found[1])


def test_hosts_are_alike_whatever_they_and_their_residents_are_called_and_admitted_by() -> None:
    one = [vm("x", "web", load=0.5), vm("y"), vm("z", None)]
    other = [vm("k", "none such"), vm("l", "web", load=0.5, memory_mb=1.0), vm("m", labels={"a": "b"}, exclusive=True)]
    assert alike(one, other)
    assert alike(one, other, second=host("b", enabled=False, labels={"zone": "a"}, cpu_overcommit=1.0, disk_gb=5.0))


OTHER_RESIDENTS: list[dict[str, Any]] = [
    {"workload": "calm"}, {"workload": None}, {"load": 0.5}, {"vcpus": 2}, {"pins": "0:1"}, {"cap_percent": 50.0},
    {"weight": 100}, {"disk_limit_mb_s": 5.0},
]  # fmt: skip
OTHER_HOSTS: list[dict[str, Any]] = [
    {"pcpus": 8}, {"kind": "xen"}, {"nic_mbit": 10.0}, {"disk_kind": "ssd"}, {"platform": "p"}, {"l3_mb": 8.0},
    {"driver_cpus": (0,)}, {"numa": ((0, 1), (2, 3))}, {"threads_per_core": 2}, {"memory_mb": 1.0},
]  # fmt: skip


@pytest.mark.parametrize(
    ("resident", "there"),
    [*((vm("y", **changed), {}) for changed in OTHER_RESIDENTS), *((vm("y"), changed) for changed in OTHER_HOSTS)],
)
def test_hosts_with_other_residents_or_of_another_make_are_not_alike(resident: Instance, there: dict[str, Any]) -> None:
    assert alike([vm("x")], [vm("y")])
    assert not alike([vm("x")], [resident], second=host("b", **there))


def test_a_fingerprint_changes_with_a_profile_and_with_nothing_else_in_the_table() -> None:
    def of(*workloads: WorkloadProfile) -> np.ndarray[Any, Any]:
        there = [vm("x", "web", on="a"), vm("y", on="b")]
        return cloud([host("a"), host("b")], there, workloads=workloads).fingerprints

    before = of(*WORKLOADS)
    assert (of(*reversed(WORKLOADS)) == before).all()
    assert (of(*WORKLOADS, WorkloadProfile("other", {"cpu": 3.0, "new": 1.0})) == before).all()
    other = of(*WORKLOADS[:2], WorkloadProfile("web", {**WORKLOADS[2].metrics, "cpu": 59.0}), *WORKLOADS[3:])
    assert (other == before).tolist() == [False, True]
    # who reached most of a disk alone says how fast disks are, everywhere
    assert (of(*WORKLOADS, WorkloadProfile("fast", {"disk_mb_s": 900.0})) != before).all()


@settings(max_examples=examples(60), deadline=None)
@given(state=states())
def test_hosts_with_one_fingerprint_have_one_scene_and_one_prediction(state: State) -> None:
    snapshot = state.built(NOW)
    prediction = PriorPredictor().predict(snapshot.scenes).throughput.expected
    for at, mark in enumerate(snapshot.fingerprints):
        first = int(np.flatnonzero(snapshot.fingerprints == mark)[0])
        np.testing.assert_array_equal(prediction[at], prediction[first])


def test_slots_are_ordered_by_what_residents_are_and_only_then_by_their_names() -> None:
    there = [vm("a", "web"), vm("b"), vm("c", load=0.5), vm("d", min_throughput_ratio=0.5), vm("e", None), vm("f")]
    (residents,) = cloud([host()], [replace(one, host="h1") for one in there]).residents
    assert [one.id for one in residents] == ["e", "c", "d", "b", "f", "a"]
