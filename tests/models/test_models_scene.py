"""Profile tables and scene batches: which profile counts for which instance, and arrays that say what was put in."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.profile import WorkloadProfile
from models.data.scene import (
    ARRAYS,
    HOST_NUMBERS,
    PCPU_FIELDS,
    ProfileTable,
    SceneBatch,
    affinity_on,
    slot_values,
    stack,
)
from profiler.observed import NET_MODES, Host, IsolationSettings, NetworkSettings, Pinning
from tests.examples import examples
from tests.models.synthetic import TABLE, Scene, batch, dedicated, host, instance, scenes


def profile(name: str, platform: str = "", **metrics: float) -> WorkloadProfile:
    return WorkloadProfile(name, metrics, platform)


def test_a_workload_is_looked_up_on_its_platform_then_everywhere_then_anywhere() -> None:
    table = ProfileTable.build([profile("a", "p1", cpu=1.0), profile("a", cpu=2.0), profile("b", "p2", cpu=3.0)])
    cpu = table.column("cpu")
    assert cpu[table.row("a", "p1")] == 1.0
    assert cpu[table.row("a", "elsewhere")] == 2.0
    assert cpu[table.row("a")] == 2.0
    assert cpu[table.row("b", "p1")] == 3.0


def test_row_zero_is_the_unknown_workload_of_which_nothing_is_known() -> None:
    assert TABLE.row(None) == TABLE.row("") == TABLE.row("never-heard-of") == 0
    assert np.isnan(TABLE.values[0]).all()
    assert TABLE.names[0] == ""


def test_an_unknown_metric_is_unknown_for_every_instance() -> None:
    assert np.isnan(TABLE.column("no_such_metric")).all()
    assert TABLE.column("no_such_metric").shape == (len(TABLE.values),)


def test_a_thin_profile_is_filled_up_from_the_one_that_holds_everywhere_and_then_from_other_platforms() -> None:
    table = ProfileTable.build(
        [profile("a", "p1", cpu=1.0), profile("a", cpu=2.0, net_mbit=5.0), profile("a", "p2", disk_mb_s=7.0)]
    )
    row = table.row("a", "p1")
    assert [table.column(key)[row] for key in ("cpu", "net_mbit", "disk_mb_s")] == [1.0, 5.0, 7.0]


def test_profiles_of_other_workloads_fill_nothing_up() -> None:
    table = ProfileTable.build([profile("a", "p1", cpu=1.0), profile("b", "p1", net_mbit=5.0)])
    assert math.isnan(table.column("net_mbit")[table.row("a", "p1")])


def test_of_two_profiles_of_one_name_and_platform_the_later_wins() -> None:
    table = ProfileTable.build([profile("a", cpu=1.0), profile("a", cpu=2.0)])
    assert table.column("cpu")[table.row("a")] == 2.0


def test_a_metric_is_the_same_under_every_spelling_of_its_key() -> None:
    odd = WorkloadProfile("a", {"instance.cpu": 40.0, "host.event": 9.0, "driver_domain.cpu": 3.0})
    table = ProfileTable.build([odd])
    assert table.columns == ("cpu", "driver_domain.cpu", "event")
    assert table.column("cpu")[table.row("a")] == 40.0
    assert table.with_profile(odd).column("event")[-1] == 9.0


def test_a_profile_of_its_own_is_a_last_row_that_leaves_all_others_as_they_were() -> None:
    table = ProfileTable.build([profile("a", "p1", cpu=1.0), profile("b", cpu=2.0)])
    more = table.with_profile(profile("a", net_mbit=5.0, llc_misses=1.0))
    assert more.row("a") == table.row("a")
    np.testing.assert_array_equal(more.column("cpu")[:-1], table.column("cpu"))
    assert math.isnan(more.column("net_mbit")[more.row("a")])
    assert more.column("net_mbit")[-1] == 5.0
    assert math.isnan(more.column("cpu")[-1])
    assert more.names == ("", "a", "b", "a")


def test_no_profiles_make_a_table_of_one_unknown_row() -> None:
    empty = ProfileTable.build([])
    assert empty.values.shape == (1, 0)
    assert empty.row("a") == 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-9])
def test_a_profile_refuses_what_is_no_rate(value: float) -> None:
    with pytest.raises(ValueError, match="workload a: metric cpu"):
        profile("a", cpu=value)


def test_a_profile_answers_to_every_spelling() -> None:
    one = WorkloadProfile("a", {"cpu": 1.0, "driver_domain.cpu": 2.0})
    assert (one.get("instance.cpu"), one.get("driver_domain.cpu"), one.get("host.cpu")) == (1.0, 2.0, None)
    assert one.known
    assert not WorkloadProfile("b", {}).known


def test_settings_become_numbers_and_unset_ones_limit_nothing() -> None:
    bare = batch((host("kvm", 3), [instance("a", "spin")]))
    assert bare.cap[0, 0] == bare.net_rate[0, 0] == bare.net_ceil[0, 0] == bare.disk_limit[0, 0] == math.inf
    assert bare.weight[0, 0] == 256
    assert bare.affinity[0, 0].tolist() == [True, True, True]
    full = instance("a", pins="0:1", cap=50.0, weight=512, network=dedicated(100.0), disk_limit_mb_s=10.0, vcpus=1)
    held = batch((host("kvm", 3), [full]))
    assert (held.cap[0, 0], held.weight[0, 0], held.disk_limit[0, 0]) == (0.5, 512.0, 10.0)
    assert (held.net_rate[0, 0], held.net_ceil[0, 0]) == (100.0, 100.0)
    assert NET_MODES[held.net_mode[0, 0]] == "dedicated"
    assert held.affinity[0, 0].tolist() == [False, True, False]


def test_a_shared_class_without_a_ceiling_may_use_the_whole_link() -> None:
    one = batch((host(), [instance("a", "bulk", network=NetworkSettings("shared", 100.0))]))
    assert (one.net_rate[0, 0], one.net_ceil[0, 0]) == (100.0, math.inf)


def test_an_instance_with_a_vcpu_that_is_free_may_run_anywhere() -> None:
    half = instance("a", vcpus=2)
    half = type(half)("a", vcpus=2, settings=IsolationSettings(pinning=Pinning(((1,), ()))))
    assert batch((host("kvm", 3), [half])).affinity[0, 0].tolist() == [True, True, True]


def test_a_pin_beyond_the_host_is_refused_with_the_hosts_cpus() -> None:
    with pytest.raises(ValueError, match="instance a is pinned to pCPU 3, host has 0-1"):
        batch((host("kvm", 2), [instance("a", pins="0:3")]))
    with pytest.raises(ValueError, match="pCPU 3"):
        affinity_on(host("kvm", 3), instance("a", pins="0:3"), width=8)


@pytest.mark.parametrize(
    ("numbers", "threads", "first"),
    [
        ((0, 1, 8, 9), 2, [0, 0, 2, 2]),  # ppc64 with two of eight threads
        ((0, 1, 2, 3), 2, [0, 1, 0, 1]),  # as Linux numbers most machines
        ((0, 1, 16, 17), 1, [0, 1, 2, 3]),
        ((0, 2, 4, 6), 1, [0, 1, 2, 3]),  # siblings are switched off
        ((0, 1, 2, 3, 16, 17, 18, 19), 2, [0, 1, 2, 3, 0, 1, 2, 3]),  # some cores are offline
        ((0, 1, 8, 9, 10), 2, [0, 1, 2, 3, 4]),
    ],
)
def test_cores_are_found_by_the_numbers_of_cpus(numbers: tuple[int, ...], threads: int, first: list[int]) -> None:
    there = Host("h", "kvm", len(numbers), 1024.0, threads_per_core=threads, cpu_ids=numbers)
    assert batch((there, [])).core.tolist() == [first]


HYBRID = ((0, 1), (2, 3))  # two cores with two threads each, and four with one


@pytest.mark.parametrize(
    ("numbers", "siblings", "first"),
    [
        ((), HYBRID, [0, 0, 2, 2, 4, 5, 6, 7]),
        ((0, 1, 8, 9, 16, 17, 24, 25), ((0, 1), (24, 25)), [0, 0, 2, 3, 4, 5, 6, 6]),
        ((), ((0, 4), (1, 5), (2, 6), (3, 7)), [0, 1, 2, 3, 0, 1, 2, 3]),
    ],
)
def test_a_host_says_which_cpus_share_a_core(
    numbers: tuple[int, ...], siblings: tuple[tuple[int, ...], ...], first: list[int]
) -> None:
    there = Host("h", "kvm", 8, 1024.0, cpu_ids=numbers, siblings=siblings)
    assert there.threads_per_core == 2
    assert batch((there, []), (host("kvm", 2), [])).core.tolist() == [first, list(range(8))]


@pytest.mark.parametrize("name", PCPU_FIELDS)
def test_an_array_of_fewer_pcpus_than_the_others_have_is_refused(name: str) -> None:
    whole = batch((host("kvm", 4), [instance("a")]))
    with pytest.raises(ValueError, match=name if name != "affinity" else "shared"):
        replace(whole, **{name: getattr(whole, name)[..., :3]})


@pytest.mark.parametrize("siblings", [((0, 1), (1, 2)), ((0, 8),)])
def test_a_cpu_on_two_cores_and_one_that_is_not_there_are_refused(siblings: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="siblings"):
        Host("h", "kvm", 8, 1024.0, siblings=siblings)


def test_hosts_of_which_the_same_is_said_in_two_ways_are_equal() -> None:
    said = Host("h", "kvm", 4, 1024.0, siblings=((3, 1), (0, 2)))
    assert said == Host("h", "kvm", 4, 1024.0, threads_per_core=2)
    assert said != Host("h", "kvm", 4, 1024.0, siblings=((0, 1), (2, 3)))


def test_unknown_host_numbers_are_nan() -> None:
    numbers = dict(zip(HOST_NUMBERS, batch((host(l3_mb=8.0), [])).host_numbers[0], strict=True))
    assert numbers["pcpus"] == 1
    assert numbers["l3_mb"] == 8.0
    assert math.isnan(numbers["cpu_mhz"])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(scenes(), min_size=1, max_size=4))
def test_allowed_counts_the_cpus_of_each_slot_and_pinned_compares_them(many: list[Scene]) -> None:
    whole = batch(*many)
    np.testing.assert_array_equal(whole.allowed, whole.affinity.sum(axis=2))
    unlike = [
        [(row != shared).any() for row in of_scene]
        for of_scene, shared in zip(whole.affinity, whole.shared, strict=True)
    ]
    assert whole.pinned.tolist() == unlike
    assert whole.allowed is whole.allowed


def test_a_driver_domain_without_cpus_of_its_own_may_run_anywhere() -> None:
    two = batch((host("xen", 2), []), (host("xen", 3, driver_cpus=(1,)), []))
    assert two.driver_cpus.tolist() == [[True, True, False], [False, True, False]]


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(scenes(), min_size=1, max_size=4), st.data())
def test_scenes_can_be_taken_in_any_order_and_stacked_again(many: list[Scene], data: st.DataObject) -> None:
    whole = batch(*many)
    order = np.array(data.draw(st.lists(st.integers(0, len(many) - 1), max_size=5)), dtype=np.int64)
    part = whole.take(order)
    assert len(part) == len(order)
    np.testing.assert_array_equal(part.profile, whole.profile[order])
    again = stack([whole.take(np.array([row])) for row in range(len(many))])
    assert _same(again, whole)


def test_a_slot_can_be_added_to_every_scene_and_changed_there() -> None:
    before = batch((host("kvm", 2), [instance("a")]), (host("kvm", 2), []))
    values = slot_values(instance("n", "web"), TABLE.row("web"), np.ones(2, dtype=bool))
    grown = before.with_slot(**{name: np.stack([value, value]) for name, value in values.items()})
    assert grown.slots == before.slots + 1
    assert grown.present.tolist() == [[True, True], [False, True]]
    capped = grown.with_last(cap=0.25)
    assert capped.cap[:, -1].tolist() == [0.25, 0.25]
    assert grown.cap[:, -1].tolist() == [math.inf, math.inf]
    assert _same(before, batch((host("kvm", 2), [instance("a")]), (host("kvm", 2), [])))


def test_further_numbers_of_a_platform_are_nan_where_they_are_unknown() -> None:
    table = ProfileTable.build([profile("a", cpu=1.0)], {"p1": {"tlb_mb": 8.0}, "p2": {"tlb_mb": 4.0, "numa": 2.0}})
    hosts = batch(*[(host(platform=name), []) for name in ("p2", "p1", "", "p2", "p3")], table=table)
    np.testing.assert_array_equal(hosts.platform_number("tlb_mb"), [4.0, 8.0, math.nan, 4.0, math.nan])
    np.testing.assert_array_equal(hosts.platform_number("numa"), [2.0, math.nan, math.nan, 2.0, math.nan])
    assert np.isnan(hosts.platform_number("never heard of")).all()
    assert batch(table=table).platform_number("tlb_mb").shape == (0,)
    assert hosts.take(np.array([1])).platform.tolist() == ["p1"]
    assert table.with_profile(profile("b", cpu=2.0)).platforms == table.platforms


def _same(one: SceneBatch, other: SceneBatch) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in ARRAYS]
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
