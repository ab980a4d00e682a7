"""The pinnings that are asked about: few, each a choice of its own, and none that takes what is not to be had."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, IsolationSettings, Pinning
from advisor.scheduling import pinning
from advisor.snapshot import ClusterSnapshot
from models.data.scene import build_batch
from models.physics.prior import PriorPredictor, pins_matter
from profiler.demand import Demand
from tests.advisor.core.core_clouds import ask, cloud, host, request, vm
from tests.examples import examples


def options(snapshot: ClusterSnapshot, new_vm: Instance) -> dict[str, pinning.PinningOption]:
    return {one.name: one for one in pinning.options(snapshot.scenes, new_vm, snapshot.hosts)}


def cpus(snapshot: ClusterSnapshot, new_vm: Instance, at: int = 0) -> dict[str, list[int]]:
    """The pCPUs of every option that is a choice on one host."""
    return {
        name: np.flatnonzero(one.affinity[at]).tolist()
        for name, one in options(snapshot, new_vm).items()
        if one.usable[at]
    }


CHOICES: dict[str, tuple[dict[str, Any], list[Instance], int, dict[str, list[int]]]] = {
    "free or on the quietest": (
        {"pcpus": 4}, [vm("r", on="h1", pins="0:0"), vm("s", "calm", on="h1", pins="0:1")], 2, {"quiet CPUs": [2, 3]},
    ),
    "the driver domain's own are left alone": (
        {"pcpus": 4, "driver_cpus": (0,)}, [vm("r", on="h1", pins="0:1")], 1,
        {"quiet CPUs": [2], "guest CPUs": [1, 2, 3]},
    ),
    "a driver domain that may run anywhere has none": (
        {"pcpus": 2, "driver_cpus": (0, 1)}, [], 1, {"quiet CPUs": [0]},
    ),
    "all CPUs are no choice": ({"pcpus": 2}, [], 2, {}),
    "fewer than vCPUs are left to guests": ({"pcpus": 2, "driver_cpus": (0,)}, [], 2, {}),
    "all that guests have are named once": ({"pcpus": 3, "driver_cpus": (0,)}, [], 2, {"quiet CPUs": [1, 2]}),
    "equally quiet ones from the lowest on": ({"pcpus": 4}, [vm("r", on="h1")], 1, {"quiet CPUs": [0]}),
    "one node of one is no choice": ({"pcpus": 8, "numa": (tuple(range(8)),)}, [], 2, {"quiet CPUs": [0, 1]}),
}  # fmt: skip


@pytest.mark.parametrize("case", CHOICES)
def test_a_pinning_is_asked_about_where_it_is_a_choice_of_its_own(case: str) -> None:
    of_host, residents, vcpus, pins = CHOICES[case]
    snapshot, new_vm = cloud([host(**of_host)], residents), vm(vcpus=vcpus)
    assert cpus(snapshot, new_vm) == {"unpinned": list(range(of_host["pcpus"]))} | pins
    assert all(one.pins == (name != "unpinned") for name, one in options(snapshot, new_vm).items())


def test_cpus_that_a_resident_has_to_itself_are_left_to_it() -> None:
    there = [vm("r", "calm", on="h1", pins="0:0"), vm("s", on="h1", pins="0:1-2"), vm("t", on="h1", pins="0:1-2")]
    snapshot = cloud([host(pcpus=3)], there)
    assert cpus(snapshot, vm())["quiet CPUs"] == [1]  # pCPU 0 is the quietest, 1 and 2 are shared already
    assert cpus(snapshot, vm(vcpus=3)) == {"unpinned": [0, 1, 2]}


def test_an_existing_pin_is_the_only_option_and_stays_as_it_was() -> None:
    snapshot = cloud([host(pcpus=4, driver_cpus=(0,), threads_per_core=2, numa=((0, 1), (2, 3)))])
    anywhere = {0, 1, 2, 3}
    for pins in (((3,), (1,)), ((2, 3), (2, 3)), ((1,), (1,)), ((0, 1, 2, 3), (2,)), ((1,), ())):
        pinned = replace(vm(vcpus=2), settings=IsolationSettings(pinning=Pinning(pins)))
        (found,) = pinning.options(snapshot.scenes, pinned, snapshot.hosts)
        assert pinning.as_pinning(found, 0, 2, snapshot.hosts[0]) == Pinning(pins)
        assert set(np.flatnonzero(found.affinity[0])) == {cpu for cpus in pins for cpu in cpus or anywhere}
        assert found.usable.all() and found.pins


def test_cpus_are_named_by_the_numbers_of_the_host() -> None:
    there = [vm("r", on="h1", pins="0:8"), vm("s", on="h1", pins="0:57")]
    snapshot = cloud([host(pcpus=6, cpu_ids=(0, 1, 8, 9, 56, 57), driver_cpus=(1,))], there)
    offered = options(snapshot, vm(vcpus=2))
    assert str(pinning.as_pinning(offered["quiet CPUs"], 0, 2, snapshot.hosts[0])) == "0:0|1:9"
    asked = replace(vm(vcpus=2), settings=IsolationSettings(pinning=Pinning(((57,), (8, 56)))))
    (found,) = pinning.options(snapshot.scenes, asked, snapshot.hosts)
    assert np.flatnonzero(found.affinity[0]).tolist() == [2, 4, 5]
    assert pinning.as_pinning(found, 0, 2, snapshot.hosts[0]) == asked.settings.pinning


def test_quiet_cpus_are_on_cores_of_their_own_as_the_host_says_which_share_one() -> None:
    snapshot = cloud([host(pcpus=6, siblings=((0, 1), (2, 3)))], [vm("r", on="h1", pins="0:0")])
    assert set(cpus(snapshot, vm(vcpus=4))["quiet CPUs"]) == {1, 2, 4, 5} - {1} | {3}
    assert cpus(snapshot, vm(vcpus=3))["quiet CPUs"] == [2, 4, 5]


def test_a_pin_counts_where_each_host_has_that_cpu() -> None:
    hosts = [host("a", pcpus=3, cpu_ids=(0, 2, 4)), host("b", pcpus=3, cpu_ids=(2, 3, 4))]
    snapshot = cloud(hosts)
    asked = replace(vm(), settings=IsolationSettings(pinning=Pinning(((2,),))))
    (found,) = pinning.options(snapshot.scenes, asked, snapshot.hosts)
    assert [np.flatnonzero(row).tolist() for row in found.affinity] == [[1], [0]]


def test_isolated_cpus_are_not_offered_and_hold_no_unpinned_instance() -> None:
    snapshot = cloud([host(pcpus=6, isolated_cpus=(2, 3, 4, 5))], [vm("r", on="h1"), vm("s", on="h1", pins="0:4")])
    assert [one.id for one in snapshot.residents[0]] == ["s", "r"]
    assert snapshot.scenes.affinity[0].sum(axis=1).tolist() == [1, 2]
    assert snapshot.scenes.driver_cpus[0].tolist() == [True, True, False, False, False, False]
    assert snapshot.scenes.pinned[0].tolist() == [True, False]
    assert cpus(snapshot, vm(vcpus=1)) == {"unpinned": [0, 1], "quiet CPUs": [0]}


def test_an_option_is_written_one_cpu_for_each_vcpu_where_the_counts_match() -> None:
    snapshot = cloud([host(pcpus=4, driver_cpus=(0,))])
    offered = options(snapshot, vm(vcpus=2))
    assert str(pinning.as_pinning(offered["quiet CPUs"], 0, 2, snapshot.hosts[0])) == "0:1|1:2"
    assert str(pinning.as_pinning(offered["guest CPUs"], 0, 2, snapshot.hosts[0])) == "0:1-3|1:1-3"
    assert pinning.as_pinning(offered["unpinned"], 0, 2, snapshot.hosts[0]) is None


# nodes and threads


def test_the_quietest_node_that_fits_is_one_choice_and_own_cpus_keep_to_it() -> None:
    two = host(pcpus=8, numa=((0, 2, 4, 6), (1, 3, 5, 7)), driver_cpus=(1,))
    busy = [vm(f"r{at}", on="h1", pins=f"0:{at}") for at in (0, 2)]
    assert cpus(cloud([two], busy), vm(vcpus=2)) == {
        "unpinned": [0, 1, 2, 3, 4, 5, 6, 7],
        "quiet CPUs": [3, 5],
        "one node": [3, 5, 7],
        "guest CPUs": [0, 2, 3, 4, 5, 6, 7],
    }
    assert "one node" not in cpus(cloud([two], busy), vm(vcpus=4))  # three and two are left to guests


def test_who_minds_latency_may_have_whole_cores_where_cores_have_threads() -> None:
    threads = host(pcpus=8, threads_per_core=2)
    snapshot = cloud([threads], [vm("r", on="h1", pins="0:4")])
    for minding in ({"service": "latency"}, {"max_latency_ratio": 2.0}):
        assert cpus(snapshot, vm(vcpus=2, **minding))["whole cores"] == [1, 5]  # the sibling of pCPU 4 is 0
        assert cpus(snapshot, vm(vcpus=3, **minding))["whole cores"] == [1, 2, 5, 6]
    assert "whole cores" not in cpus(snapshot, vm(vcpus=2))
    plain = cloud([host(pcpus=8)], [vm("r", on="h1", pins="0:4")])
    assert "whole cores" not in cpus(plain, vm(vcpus=2, service="latency"))


def test_own_cpus_are_away_from_busy_siblings() -> None:
    snapshot = cloud([host(pcpus=6, threads_per_core=2)], [vm("r", on="h1", pins="0:0")])
    assert cpus(snapshot, vm(vcpus=2))["quiet CPUs"] == [1, 2]  # 3 is as quiet as they are, beside 0


def test_siblings_are_neighbours_where_nodes_say_so() -> None:
    by_core = host(pcpus=8, threads_per_core=2, numa=((0, 1, 2, 3), (4, 5, 6, 7)))
    offered = cpus(cloud([by_core], [vm("r", on="h1", pins="0:5")]), vm(vcpus=2, service="latency"))
    assert offered["whole cores"] == [0, 1]
    assert offered["quiet CPUs"] == [0, 2]  # a core for each, on one node


def test_no_more_than_four_are_asked_on_a_host() -> None:
    everything = host(pcpus=8, threads_per_core=2, numa=((0, 1, 4, 5), (2, 3, 6, 7)), driver_cpus=(0,))
    offered = cpus(cloud([everything]), vm(vcpus=1, service="latency"))
    assert list(offered) == ["unpinned", "quiet CPUs", "whole cores", "one node"]


# on any host


@dataclass(frozen=True)
class Case:
    there: Host
    residents: tuple[Instance, ...]
    new_vm: Instance

    def snapshot(self) -> ClusterSnapshot:
        return cloud([self.there, host("wide", pcpus=9)], self.residents)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pcpus = draw(st.sampled_from([1, 2, 4, 8]))
    any_cpu = st.integers(0, pcpus - 1)
    nodes: dict[str, Any] = {}
    if pcpus > 2 and draw(st.booleans()):
        nodes["numa"] = (tuple(range(pcpus // 2)), tuple(range(pcpus // 2, pcpus)))
    there = host(
        pcpus=pcpus,
        threads_per_core=draw(st.sampled_from([1, 2])),
        driver_cpus=tuple(sorted(draw(st.sets(any_cpu, max_size=2)))),
        kind=draw(st.sampled_from(["xen", "kvm"])),
        **nodes,
    )
    residents = []
    for at in range(draw(st.integers(0, 4))):
        pins = draw(st.none() | st.lists(any_cpu, min_size=1, max_size=2, unique=True))
        text = "" if pins is None else f"0:{','.join(map(str, pins))}"
        residents.append(vm(f"r{at}", draw(st.sampled_from(["spin", "web", "calm"])), on="h1", pins=text))
    service = draw(st.sampled_from(["latency", "throughput"]))
    return Case(there, tuple(residents), vm(vcpus=draw(st.integers(1, pcpus)), service=service))


@settings(max_examples=examples(200), deadline=None)
@given(case=cases())
def test_options_keep_to_the_host_and_leave_alone_what_is_not_theirs(case: Case) -> None:
    snapshot, there = case.snapshot(), case.there
    offered = cpus(snapshot, case.new_vm)
    assert len(offered) <= pinning.MAX_PER_HOST
    assert offered["unpinned"] == list(range(there.pcpus))
    own = set(there.driver_cpus) if len(there.driver_cpus) < there.pcpus else set()
    held = {
        cpu
        for one in case.residents
        if one.settings.pinning and len(one.settings.pinning.union) < min(2, there.pcpus)
        for cpu in one.settings.pinning.union
    }
    for name, taken in offered.items():
        assert len(taken) >= case.new_vm.vcpus or name == "unpinned"
        assert set(taken) <= set(range(there.pcpus))
        assert name == "unpinned" or not own & set(taken)
        assert name in {"unpinned", "guest CPUs"} or not held & set(taken)
    assert len(offered.get("quiet CPUs", [0] * case.new_vm.vcpus)) == case.new_vm.vcpus
    if "one node" in offered:
        assert any(set(offered["one node"]) <= set(node) for node in there.numa)
    assert len({tuple(taken) for taken in offered.values()}) == len(offered)


@settings(max_examples=examples(150), deadline=None)
@given(case=cases(), data=st.data())
def test_renaming_cpus_renames_them_in_the_options_and_changes_nothing_else(case: Case, data: st.DataObject) -> None:
    """Options of a host whose pCPUs bear other numbers hold as many pCPUs with the same users as before."""
    there = replace(case.there, threads_per_core=1)
    new = data.draw(st.permutations(range(there.pcpus)))
    renamed = Case(
        replace(
            there,
            driver_cpus=tuple(sorted(new[cpu] for cpu in there.driver_cpus)),
            numa=tuple(tuple(sorted(new[cpu] for cpu in node)) for node in there.numa),
        ),
        tuple(
            replace(one, settings=replace(one.settings, pinning=_renamed(one.settings.pinning, new)))
            for one in case.residents
        ),
        case.new_vm,
    )
    assert sorts(Case(there, case.residents, case.new_vm)) == sorts(renamed)


def _renamed(pinning: Pinning | None, new: list[int]) -> Pinning | None:
    return pinning and Pinning(tuple(tuple(sorted(new[cpu] for cpu in cpus)) for cpus in pinning.cpus))


def sorts(case: Case) -> dict[str, list[tuple[Any, ...]]]:
    """What each pCPU of every option is, by who may use it."""

    def of(cpu: int) -> tuple[Any, ...]:
        users = [one.id for one in case.residents if not one.settings.pinning or cpu in one.settings.pinning.union]
        return (users, cpu in case.there.driver_cpus)

    return {name: sorted(of(cpu) for cpu in taken) for name, taken in cpus(case.snapshot(), case.new_vm).items()}


@pytest.mark.parametrize("vcpus", [1, 2])
def test_options_of_a_host_do_not_depend_on_which_hosts_are_asked_about(vcpus: int) -> None:
    hosts = [host("a", pcpus=8, threads_per_core=2), host("b", pcpus=4, driver_cpus=(0,)), host("c", pcpus=2)]
    snapshot = cloud(hosts, [vm("r", on="a"), vm("s", "web", on="b", pins="0:1")])
    new_vm = vm(vcpus=vcpus, service="latency")
    together = [cpus(snapshot, new_vm, at) for at in range(3)]
    for at in range(3):
        one = pinning.options(snapshot.scenes.take(np.array([at])), new_vm, [snapshot.hosts[at]])
        alone = {option.name: np.flatnonzero(option.affinity[0]).tolist() for option in one if option.usable[0]}
        assert alone == together[at]


@st.composite
def busy_hosts(draw: st.DrawFn) -> tuple[Host, list[Instance], Instance]:
    """A host of 8 CPUs that is half to twice full by instances of which only demand is known, and one more."""

    def instance(name: str, vcpus: int, **more: Any) -> Instance:
        mean, varies = vcpus * draw(st.floats(0.05, 1.0)), draw(st.floats(0.0, 1.5))
        open_loop = float(draw(st.booleans()))
        wanted = Demand(mean, spread=mean * varies, common=0.2, windows=100.0, doubt=0.1 * mean, open_loop=open_loop)
        return vm(name, None, vcpus=vcpus, demand={"cpu": wanted}, **more)

    there = [
        instance(
            f"r{at}",
            draw(st.sampled_from((1, 2, 4))),
            on="h1",
            weight=draw(st.sampled_from((512, 1024, 2048))),
            cap_percent=draw(st.sampled_from((None, 50.0, 150.0))),
        )
        for at in range(draw(st.integers(2, 8)))
    ]
    nodes, own_cpus = ((0, 1, 2, 3), (4, 5, 6, 7)), draw(st.sampled_from((0.0, 0.5)))
    of_host = host(pcpus=8, memory_mb=1e6, cpu_overcommit=16.0, numa=nodes, own_cpus=own_cpus)
    return of_host, there, instance("n", draw(st.integers(1, 4)))


@given(busy_hosts())
@settings(max_examples=examples(100), deadline=None)
def test_pins_that_are_left_out_change_neither_speed_nor_its_range_nor_time_short(
    case: tuple[Host, list[Instance], Instance],
) -> None:
    there, residents, new_vm = case
    base = build_batch([(there, residents)], cloud([there]).scenes.table)
    assert not pins_matter(base).any()
    offered = pinning.options(base, new_vm, [there])
    assert [one.name for one in offered][:2] == ["unpinned", "quiet CPUs"]
    assert [one.name for one in pinning.options(base, new_vm, [there], np.array([False]))] == ["unpinned"]
    pins = [pinning.as_pinning(one, 0, new_vm.vcpus, there) for one in offered if one.usable[0]]
    ways = [replace(new_vm, settings=IsolationSettings(pinning=pin)) for pin in pins]
    found = PriorPredictor().predict(build_batch([(there, [*residents, way]) for way in ways], base.table))
    assert found.pressure is not None
    for figures in (found.throughput.expected, found.throughput.lower, found.pressure.short):
        assert (figures == figures[0]).all()


@pytest.mark.parametrize(
    ("of_host", "of_resident", "of_new_vm"),
    [
        ({}, {}, {}),
        ({"threads_per_core": 2}, {}, {}),
        ({}, {"pins": "0:3|1:3"}, {}),
        ({}, {"dedicated_vcpus": 2, "vcpus": 2}, {}),
        ({"driver_cpus": (0,)}, {}, {}),
        ({"kind": "xen"}, {}, {}),
        ({}, {"workload": "web"}, {}),
        ({}, {"max_latency_ratio": 2.0}, {}),
        ({}, {}, {"workload": "web"}),
        ({}, {}, {"max_latency_ratio": 2.0}),
    ],
)
def test_pins_are_asked_about_where_they_may_change_something(
    of_host: dict[str, Any], of_resident: dict[str, Any], of_new_vm: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, bool] = {}
    real = pinning.options

    def listening(*given: Any) -> tuple[pinning.PinningOption, ...]:
        asked.update(zip([there.id for there in given[2]], given[3].tolist(), strict=True))
        return real(*given)

    monkeypatch.setattr(pinning, "options", listening)
    plain = vm("s", None, on="b", vcpus=2, demand={"cpu": Demand(1.0, windows=10.0)})
    there = {"workload": None, "vcpus": 2, "demand": plain.demand, **of_resident}
    new_vm = vm(**{"workload": None, "vcpus": 2, "demand": plain.demand, **of_new_vm})
    ask(cloud([host("a", **of_host), host("b")], [vm("r", on="a", **there), plain]), request(new_vm, mitigate=False))
    assert asked["a"] == bool(of_host or of_resident or of_new_vm)
