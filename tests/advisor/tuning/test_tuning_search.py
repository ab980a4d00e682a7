"""The search: what is pinned badly is found, as good as every layout tried, with few changes, the same each time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, IsolationSettings, Pinning
from advisor.tuning import search
from advisor.tuning.layouts import Layout
from profiler.host_kinds import HOST_KINDS
from research.benchmarks.tuning import exhaustive, small
from tests.advisor.tuning.tuning_hosts import carried_out, expected, moves, server, snapshot, tuned, vm
from tests.examples import examples

XEN = Host("h", "xen", 4, 8192)
KVM = Host("h", "kvm", 4, 8192)
BAD_STARTS = [
    (driver, guests)
    for driver in ((), (0,), (0, 1), (0, 1, 2), (3,))
    for guests in (((), ()), ((0,), (0,)), ((0,), (1,)), ((1,), (1,)), ((0, 1), (0, 1)), ((3,), ()))
    if (driver, guests) != ((0,), ((1,), (1,)))
]


@pytest.mark.parametrize(("driver", "guests"), BAD_STARTS)
def test_one_cpu_for_the_driver_domain_and_others_for_guests_is_found_from_each_bad_layout(
    driver: tuple[int, ...], guests: tuple[tuple[int, ...], ...]
) -> None:
    """Finding N11 of "Who is your neighbor": one CPU for Dom0 and one for each guest suits servers of small files."""
    host = replace(XEN, driver_cpus=driver)
    advised = expected(replace(XEN, driver_cpus=(0,)), server("a", (1,)), server("b", (2,)))
    residents = (server("a", guests[0]), server("b", guests[1]))
    found = tuned(host, *residents)
    host, there = carried_out(found, residents)[-1]
    assert min(expected(host, *there).values()) >= min(advised.values()) * 0.98
    assert len(host.driver_cpus) == 1


def test_an_instance_between_two_on_one_cpu_gives_up_its_pins_and_nothing_else_changes() -> None:
    residents = (vm("a", 0.6, (0,)), vm("b", 0.6, (0,)), vm("c", 0.6, (1,)))
    found = tuned(KVM, *residents)
    assert expected(KVM, *residents)["a"] < 0.7
    ((change),) = found.changes
    assert change.then is not None
    assert (change.then.id, change.then.settings) == ("a", IsolationSettings())
    host, there = carried_out(found, residents)[-1]
    assert min(expected(host, *there).values()) > 0.99


def test_ten_of_thirteen_on_one_node_of_two_are_spread() -> None:
    node = (tuple(range(16)) + tuple(range(32, 48)), tuple(range(16, 32)) + tuple(range(48, 64)))
    host = Host("h", "kvm", 64, 65536, threads_per_core=2, cpu_mhz=2000.0, turbo_mhz=2000.0, numa=node)
    residents = tuple(vm(f"v{at:02}", 2.2, node[0] if at < 10 else (), vcpus=8) for at in range(13))
    found = tuned(host, *residents)
    last = carried_out(found, residents)[-1]
    assert min(expected(host, *residents).values()) < 0.75
    assert min(expected(last[0], *last[1]).values()) > 0.98
    assert len(found.changes) < 10, "not all ten need to change"


def test_pins_to_fewer_cpus_than_an_instance_wants_are_seen_though_it_is_alone() -> None:
    found = tuned(KVM, vm("db", 2.5, (3,), vcpus=4))
    (change,) = found.changes
    (effect,) = change.effects
    assert effect.before is not None
    assert effect.before.expected == pytest.approx(0.4, abs=0.02)
    assert effect.throughput_ratio.expected == pytest.approx(1.0, abs=0.01)


def test_two_busy_vcpus_are_not_pinned_to_two_threads_of_one_core() -> None:
    host = Host("h", "kvm", 8, 8192, threads_per_core=2)
    found = tuned(host, *(vm(f"v{at}", 1.9, (0, 1, 4, 5), vcpus=2) for at in range(2)))
    for change in found.changes:
        assert change.then is not None
        pins = change.then.settings.pinning
        assert pins is None or len({cpu % 4 for cpu in pins.union}) > 1


def test_a_host_without_contention_needs_no_change() -> None:
    assert tuned(KVM, vm("a", 0.5), vm("b", 0.5)).changes == ()
    assert tuned(KVM).changes == ()


def test_an_equal_host_and_seed_have_the_same_answer() -> None:
    residents = [vm(f"v{at}", 0.9, (at % 2,), vcpus=2) for at in range(6)]
    first = tuned(Host("h", "kvm", 6, 8192), *residents, seed=3)
    again = tuned(Host("h", "kvm", 6, 8192), *reversed(residents), seed=3)
    assert [change.then for change in first.changes] == [change.then for change in again.changes]
    assert first.changes


def test_what_a_limit_needs_comes_before_what_all_gain() -> None:
    residents = (
        vm("a", 0.9, (0,), min_throughput_ratio=0.95), *(vm(f"b{at}", 0.9, vcpus=1) for at in range(6)),
    )  # fmt: skip
    found = tuned(KVM, *residents)
    host, there = carried_out(found, residents)[-1]
    assert expected(KVM, *residents)["a"] < 0.95 <= expected(host, *there)["a"] + 1e-9


@pytest.mark.parametrize("kind", HOST_KINDS)
def test_no_layout_of_all_is_better_by_more_than_two_percent(kind: str) -> None:
    random = np.random.default_rng([7, HOST_KINDS.index(kind)])
    for _ in range(4):
        case = small(kind, random)  # type: ignore[arg-type]
        host = replace(case.host, id="h")
        there = [replace(one, host="h", workload=_known(one)) for one in case.residents]
        of_all = moves(host, *there)
        assert tuned(host, *there).found.value >= exhaustive(of_all.oracle, of_all.levers) * 0.98 - 1e-9


def _known(instance: Instance) -> str | None:
    return "sender" if instance.workload else None


def _limits(one: Instance) -> tuple[object, ...]:
    """What holds it back whatever others do: each such setting must gain 0.02."""
    network = one.settings.network
    return (one.settings.cap_percent, one.settings.disk_limit_mb_s, network and network.ceil_mbit)


@given(st.integers(0, 2**31), st.sampled_from(HOST_KINDS))
@settings(max_examples=examples(60), deadline=None)
def test_a_change_never_makes_the_value_worse_and_keeps_to_what_a_host_has(seed: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    case = small(kind, random)  # type: ignore[arg-type]
    residents = tuple(replace(one, host="h", workload=_known(one)) for one in case.residents)
    host = replace(case.host, id="h")
    found = tuned(host, *residents)
    assert found.found.value >= found.found.before
    if found.changes:
        host, there = carried_out(found, residents)[-1]
        for one in there:
            assert not host.lacks(one.settings.pinning.named if one.settings.pinning else ())
        after = expected(host, *there)
        lost = sorted(1 - kept for kept in after.values())
        others = sum(lost[:-1]) / max(len(lost) - 1, 1)
        held = sum(_limits(then) != _limits(now) for then, now in zip(there, residents, strict=True))
        assert 1 - lost[-1] - 0.3 * others - 0.02 * held == pytest.approx(found.found.value, abs=1e-6)
        assert found.found.value - found.found.before >= 0.02


@pytest.mark.parametrize(
    ("host", "residents"),
    [
        (Host("h", "xen", 3, 8192), (server("a"), server("b", (0,)))),
        (Host("h", "kvm", 4, 8192, threads_per_core=2), (vm("a", 0.9), vm("b", 0.9, vcpus=2))),
        (Host("h", "lxc", 4, 8192, isolated_cpus=(3,)), (vm("a", 0.9), vm("b", 0.9, (3,)))),
    ],
)
def test_every_layout_up_to_equal_cores_has_the_best_value_of_all(host: Host, residents: tuple[Instance, ...]) -> None:
    of_all = moves(host, *residents)
    now = Layout.of(of_all.oracle.scene)
    layouts = list(search.every_layout(of_all, now))
    every = float(of_all.oracle.value(layouts).value.max())
    movers = int(of_all.levers.pins.sum()) + of_all.levers.driver
    shared = int(of_all.shared.sum())
    assert len(layouts) <= min(search.count_layouts(of_all, now), (2**shared - 1) ** movers)
    assert every == pytest.approx(_best_on_shared(host, residents), abs=1e-9)


def _best_on_shared(host: Host, residents: tuple[Instance, ...]) -> float:
    """The best value of all layouts on shared pCPUs, each set of them for each mover."""
    of_all = moves(host, *residents)
    now, shared = Layout.of(of_all.oracle.scene), np.flatnonzero(of_all.shared)
    slots = np.flatnonzero(of_all.levers.pins).tolist()
    some = [
        np.isin(np.arange(host.pcpus), chosen)
        for size in range(1, len(shared) + 1)
        for chosen in itertools.combinations(shared.tolist(), size)
    ]
    layouts = []
    for chosen in itertools.product(some, repeat=len(slots) + of_all.levers.driver):
        affinity = now.affinity.copy()
        affinity[slots] = chosen[: len(slots)]
        layouts.append(replace(now, affinity=affinity, driver=chosen[-1] if of_all.levers.driver else now.driver))
    return float(of_all.oracle.value(layouts).value.max())


def test_equal_cores_are_named_so_that_pins_stay() -> None:
    of_all = moves(KVM, vm("a", 0.9, (2,)), vm("b", 0.9, (3,)))
    now = Layout.of(of_all.oracle.scene)
    other = replace(now, affinity=now.affinity[:, [2, 3, 0, 1]])
    assert (search.like_now(of_all, now, other).affinity == now.affinity).all()


def test_the_clock_ends_the_search_and_that_is_reported() -> None:
    residents = [vm(f"v{at}", 0.9, (0,)) for at in range(6)]
    assert tuned(Host("h", "kvm", 16, 8192), *residents, until=0.0).found.timed_out
    assert not tuned(Host("h", "kvm", 16, 8192), *residents).found.timed_out


def test_pins_of_a_pending_instance_and_of_isolated_cpus_stay() -> None:
    host = Host("h", "kvm", 4, 8192, isolated_cpus=(3,))
    pending = replace(vm("coming", 0.9, (0,)))
    there = snapshot(host, vm("a", 0.9, (3,)), vm("b", 0.9, (0,)), pending=(pending,))
    from advisor.tuning.host import levers_of, oracle_of

    levers = levers_of(there, 0, oracle_of(there, 0, "worst"))
    free = {one.id: bool(may) for one, may in zip(there.residents[0], levers.pins, strict=True)}
    assert free == {"a": False, "b": True, "coming": False}


def test_a_host_whose_tools_say_no_pins_has_none() -> None:
    host = Host("h", "kvm", 4, 8192, labels={"render": "openstack"})
    found = tuned(host, vm("a", 0.6, (0,)), vm("b", 0.6, (0,)))
    assert all(change.then is None or change.then.settings.pinning == Pinning(((0,),)) for change in found.changes)


def test_a_writer_that_syncs_on_the_cpu_of_a_busy_instance_is_freed() -> None:
    """Measured: it keeps 8 % of its rate there, and loses nothing apart or unpinned (docs/limits.md)."""
    residents = (server("writer", (0,), "sync-writer"), vm("busy", 0.97, (0,)))
    found = tuned(Host("h", "lxc", 4, 8192), *residents)
    before = expected(Host("h", "lxc", 4, 8192), *residents)
    host, there = carried_out(found, residents)[-1]
    assert before["writer"] < 0.3
    assert expected(host, *there)["writer"] > 0.95
    assert len(found.changes) == 1
