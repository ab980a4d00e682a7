"""The simulator of contention against exact results: M/M/1-PS, M/M/c, machine repair, weights, caps, CPU sets."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from research.contention import fluid_loop
from research.contention.host_spec import HostSpec, InstanceSpec, Loop
from research.contention.simulator import Bursts, Law, Length, Simulated, constraints, draw_windows, simulate
from tests.research.contention.exact import filled_progressively, machine_repair, many_servers, two_weighted_queues

LONG = Length(windows=4, least=4, most=4, warm_up=2, events=2**40)
SHORT = Length(windows=1, least=2, most=2, warm_up=1)


def test_without_numba_the_simulator_names_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # as in an installation
    monkeypatch.delitem(sys.modules, "research.contention.fluid_loop")
    with pytest.raises(ModuleNotFoundError, match=r"needs numba.*cotenant\[dev\]"):
        importlib.import_module("research.contention.fluid_loop")


def instance(name: str, demand: float, loop: Loop = "open", **more: Any) -> InstanceSpec:
    return replace(InstanceSpec(name, 1, demand, loop, burst_ms=10.0), **more)


def host(cpus: int, *instances: InstanceSpec, window_s: float = 200.0) -> HostSpec:
    return HostSpec("host", cpus, instances, window_s)


def shares(result: Simulated) -> list[float]:
    return [one.share for one in result.outcome.instances.values()]


@pytest.mark.parametrize("law", ["exponential", "constant", "hyperexponential", "lognormal"])
def test_one_cpu_shared_by_bursts_gives_one_minus_load_whatever_their_law(law: Law) -> None:
    spec = host(1, instance("all", 0.6, vcpus=200))
    result = simulate(spec, 1, {"all": Bursts(law, cv2=4.0)}, LONG)
    assert shares(result) == pytest.approx([0.4], abs=0.01)


@pytest.mark.parametrize(("cpus", "load"), [(2, 0.6), (8, 0.8), (8, 0.9), (64, 0.95)])
def test_many_bursts_on_many_cpus_are_erlangs_queue(cpus: int, load: float) -> None:
    share, short = many_servers(load, cpus)
    spec = host(cpus, instance("all", load * cpus, vcpus=cpus + 400), window_s=1600.0 / cpus)
    result = simulate(spec, 2, length=LONG)
    assert shares(result) == pytest.approx([share], abs=0.01)
    assert result.outcome.short == pytest.approx(short, abs=0.02)


@pytest.mark.parametrize("cpus", [1, 2, 4])
def test_unlike_closed_loops_have_the_shares_of_the_product_form(cpus: int) -> None:
    alone = [0.1, 0.3, 0.5, 0.7, 0.9, 0.2, 0.4, 0.6]
    spec = host(cpus, *(instance(f"i{k}", part, "closed", burst_ms=5.0 + 3.0 * k) for k, part in enumerate(alone)))
    expected, short = machine_repair(alone, cpus)
    result = simulate(spec, 3, length=LONG)
    assert shares(result) == pytest.approx(expected, abs=0.01)
    assert result.outcome.short == pytest.approx(short, abs=0.01)


def test_two_open_queues_divide_a_cpu_by_weight() -> None:
    spec = host(1, instance("a", 0.4, vcpus=3, weight=300.0), instance("b", 0.4, vcpus=3, weight=100.0))
    expected = two_weighted_queues((0.4, 0.4), (3.0, 1.0), vcpus=3)
    assert shares(simulate(spec, 4, length=LONG)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("cpus", "hogs", "expected"),
    [
        (1, [{"weight": 200.0}, {"weight": 100.0}], [2 / 3, 1 / 3]),
        (2, [{"vcpus": 2, "weight": 300.0}, {"vcpus": 2, "weight": 100.0}], [0.75, 0.25]),
        (2, [{"weight": 900.0}, {"vcpus": 2, "weight": 100.0}], [1.0, 0.5]),  # a vCPU has one CPU at most
        (2, [{"vcpus": 2, "cap_cpus": 0.5}, {"vcpus": 2}], [0.25, 0.75]),
        (2, [{"pin": (0,)}, {"pin": (0,)}, {"pin": (1,)}], [0.5, 0.5, 1.0]),
        (2, [{"pin": (0,)}, {"pin": (0,)}, {"vcpus": 2}], [0.5, 0.5, 0.5]),  # the free one goes where there is more
        (3, [{"pin": (0, 1)}, {"pin": (0, 1)}, {"pin": (0, 1)}, {"pin": (1, 2)}], [2 / 3, 2 / 3, 2 / 3, 1.0]),
        (4, [{"pin": (0, 1), "vcpus": 4}], [0.5]),
    ],
)
def test_hogs_get_what_weights_caps_and_sets_of_cpus_allow(
    cpus: int, hogs: list[dict[str, Any]], expected: list[float]
) -> None:
    spec = host(cpus, *(instance(f"i{k}", 1.0, "hog", **more) for k, more in enumerate(hogs)), window_s=1.0)
    result = simulate(spec, 5, length=SHORT)
    assert shares(result) == pytest.approx(expected)
    for share, one in zip(expected, result.outcome.instances.values(), strict=True):
        assert (one.short, one.short_95) == pytest.approx((float(share < 0.999), float(share < 0.95)))


def test_sharing_by_sets_is_max_min_by_its_definition() -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        cpus, n = int(rng.integers(2, 6)), int(rng.integers(2, 8))
        pins = [frozenset(rng.choice(cpus, size=rng.integers(1, cpus + 1), replace=False).tolist()) for _ in range(n)]
        wanted = np.minimum(rng.uniform(0.1, 2.5, n), [len(pin) for pin in pins])
        weight = rng.choice([64.0, 128.0, 256.0], n)
        groups = sorted(set(pins), key=sorted)
        member, member_cpus = constraints(groups)
        group = np.array([groups.index(pin) for pin in pins])
        rate = np.zeros(n)
        fluid_loop.share_by_sets(wanted, weight, group, member, member_cpus, rate)
        expected = filled_progressively(wanted.tolist(), weight.tolist(), pins, cpus)
        assert rate.tolist() == pytest.approx(expected, abs=1e-4)


def test_the_level_shares_exactly_what_there_is() -> None:
    rng, all_instances = np.random.default_rng(7), np.arange(30)
    for _ in range(50):
        wanted, weight = rng.uniform(0, 4, 30), rng.choice([64.0, 256.0, 1024.0], 30)
        cpus = float(rng.uniform(0.1, 0.95) * wanted.sum())
        for guess in (0.0, 1e-3, 10.0):
            height = fluid_loop.level(wanted, weight, all_instances, 30, cpus, guess)
            assert np.minimum(wanted, weight * height).sum() == pytest.approx(cpus)


def test_a_periodic_lump_alone_is_never_short_and_two_at_once_may_be() -> None:
    lump = Bursts("constant", periodic=True)
    alone = simulate(host(2, instance("a", 1.0, vcpus=2), window_s=2.0), 8, {"a": lump}, SHORT)
    assert shares(alone) == [1.0]
    assert alone.outcome.short == 0.0
    assert sum(one.run_s for one in alone.outcome.instances.values()) == pytest.approx(4.0, rel=0.02)
    half = simulate(host(1, instance("a", 0.5, vcpus=2), window_s=2.0), 8, {"a": lump}, SHORT)
    assert shares(half) == pytest.approx([0.5])


def test_windows_have_the_means_spreads_and_correlation_asked_for() -> None:
    wanted = [instance(f"i{k}", 0.5 * (k + 1), vcpus=4, spread_cpus=0.2 * (k + 1), common=0.4) for k in range(3)]
    demand = draw_windows(wanted, 20_000, np.random.default_rng(9))
    assert demand.mean(axis=0) == pytest.approx([0.5, 1.0, 1.5], rel=0.01)
    assert demand.std(axis=0) == pytest.approx([0.2, 0.4, 0.6], rel=0.02)
    assert demand.min() >= 0
    assert demand.max() <= 4
    assert np.asarray(np.corrcoef(demand.T))[0, 1] == pytest.approx(0.4, abs=0.03)


def test_a_trace_of_demands_is_what_runs() -> None:
    spec = host(4, instance("a", 0.0), instance("b", 0.0), window_s=20.0)
    trace = np.array([[0.9, 0.9], [0.2, 0.0], [0.6, 0.0]])
    result = simulate(spec, 10, length=Length(warm_up=1), demand=trace)
    run = [one.run_s for one in result.outcome.instances.values()]
    assert run[0] == pytest.approx(16.0, rel=0.15)
    assert run[1] == pytest.approx(0.0, abs=0.5)


def test_the_same_seed_gives_the_same_outcome_and_another_one_another() -> None:
    spec = host(1, instance("a", 0.5), instance("b", 0.3, "closed"), window_s=2.0)
    first, again, other = (simulate(spec, seed, length=SHORT) for seed in (1, 1, 2))
    assert first == again
    assert first.outcome != other.outcome


@pytest.mark.parametrize("fault", [{"vcpus": 0}, {"burst_ms": 0.0}, {"weight": 0.0}, {"cap_cpus": 0.0}, {"pin": (7,)}])
def test_a_host_that_cannot_be_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a "):
        simulate(host(2, replace(instance("a", 0.5), **fault)), 1, length=SHORT)
