"""Between hosts that are equal in what was asked for headroom decides, and the answer says so."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Recommendation
from advisor.scheduling.scoring import EQUAL, NOTICED, alike, grouped
from models.data.scene import SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.demand import Demand
from tests.advisor.core.core_clouds import ask, cloud, host, hosts_of, request, vm


def large(name: str, **more: Any) -> Host:
    return host(name, **{"pcpus": 64, "memory_mb": 512 * 1024.0, "nic_mbit": 25_000.0, **more})


def known(name: str, cpus: float = 0.5, *, on: str | None = None, net_mbit: float = 0.0, **more: Any) -> Instance:
    """An instance of four vCPUs whose demand was measured for long."""
    demand = {"cpu": Demand(cpus, spread=0.3 * cpus, common=0.3, windows=1000.0)}
    if net_mbit:
        demand["net_mbit"] = Demand(net_mbit, "net_mbit", spread=0.3 * net_mbit, common=0.3, windows=1000.0)
    return vm(name, None, on=on, vcpus=4, demand=demand, **more)


def many(on: str, count: int, **more: Any) -> list[Instance]:
    return [known(f"{on}-{at}", on=on, **more) for at in range(count)]


def comparison(answer: Recommendation) -> str:
    return next(one.text for one in answer.candidates[0].reasons if one.kind == "comparison")


def test_the_host_with_more_cpus_left_at_busy_times_comes_first_and_the_answer_says_so() -> None:
    residents = [*many("a", 40), *many("b", 10), *many("c", 25)]
    answer = ask(cloud([large(name) for name in "abc"], residents), request(known("n")))
    assert hosts_of(answer) == ["b", "c", "a"]
    assert all(one.score == pytest.approx(answer.candidates[0].score, abs=EQUAL) for one in answer.candidates)
    assert answer.candidates[0].tied_with == ("c", "a")
    left = [one.headroom.cpu for one in answer.candidates if one.headroom]
    # 11, 26 and 41 instances: the mean, and 1.645 deviations of which the common parts add up
    count = np.array([11, 26, 41])
    sums = count * 0.5 + 1.645 * np.hypot(count * 0.15 * np.sqrt(0.3), np.sqrt(count * 0.7) * 0.15)
    assert left == pytest.approx(1 - sums / 64, abs=1e-6)
    assert (
        "b comes first because more of its scarcest resource stays free: 89 % of its CPUs at busy times, on c "
        in comparison(answer)
    )


def test_memory_and_network_decide_where_they_are_scarcer_than_cpus() -> None:
    for scarce, says in (
        ({"memory_mb": 48 * 1024.0}, "on a 6 % of its memory"),
        ({"net_mbit": 1500.0}, "of its network at busy times"),
    ):
        residents = [*many("a", 10, **scarce), *many("b", 30)]
        answer = ask(cloud([large("a"), large("b")], residents), request(known("n", memory_mb=1024.0)))
        assert hosts_of(answer) == ["b", "a"]
        assert says in comparison(answer)


def test_a_host_where_the_new_vm_fits_into_one_numa_node_comes_first() -> None:
    halves = (tuple(range(32)), tuple(range(32, 64)))
    eighths = tuple(tuple(range(at, at + 8)) for at in range(0, 64, 8))
    new_vm = vm("n", None, vcpus=16, demand={"cpu": Demand(4.0, windows=1000.0)})
    hosts = [large("a", numa=eighths), large("b", numa=halves)]
    answer = ask(cloud(hosts, many("b", 10)), request(new_vm))
    assert hosts_of(answer) == ["b", "a"]
    assert comparison(answer).endswith("n fits into one NUMA node of b, and of a not.")


def test_a_host_with_a_victim_is_not_tied_with_one_where_all_is_well() -> None:
    pressed = [vm(f"p{at}", None, on="a", pins="0:0", demand={"cpu": Demand(1.0, windows=1000.0)}) for at in range(5)]
    answer = ask(cloud([large("a"), large("b")], [*pressed, *many("b", 40)]), request(known("n")))
    assert hosts_of(answer) == ["b", "a"]
    assert answer.candidates[0].score == pytest.approx(answer.candidates[1].score, abs=EQUAL)
    assert [one.tied_with for one in answer.candidates] == [(), ()]
    assert comparison(answer) == (
        "b is ahead of a: p0 on a runs at 20 % of its uncontended speed, and every instance on b at 100 % or more."
    )


class Waiting:
    """Every instance keeps all of its throughput, and waits longer on larger hosts."""

    version = origin = "waiting"
    metrics = ()

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        kept = np.where(scenes.present, 1.0, np.nan)
        waits = np.where(scenes.present, 1 + 0.08 * (scenes.pcpus[:, None] - 4), np.nan)
        throughput, latency = BandArrays(kept, kept - 0.05, kept), BandArrays(waits, waits * 0.5, waits * 2)
        return InterferencePrediction(throughput, latency, latency, np.zeros(kept.shape, dtype=bool))


def test_for_who_minds_latency_hosts_with_visibly_different_waits_are_not_tied() -> None:
    hosts = [host("a", pcpus=8), host("b", pcpus=4)]
    sensitive = ask(cloud(hosts), request(vm("n", service="latency")), Waiting())
    assert hosts_of(sensitive) == ["b", "a"]
    assert [one.tied_with for one in sensitive.candidates] == [(), ()]
    assert comparison(sensitive) == "b is ahead of a: n waits × 1.00 there, and × 1.32 on a."
    other = ask(cloud(hosts), request(vm("n")), Waiting())
    assert [one.tied_with for one in other.candidates] == [("b",), ("a",)]


def test_an_instance_counts_once_on_the_host_where_it_runs_already() -> None:
    there = [*many("a", 10), *many("b", 10)]
    moved = ask(cloud([large("a"), large("b")], there), request(known("a-0")))
    left = {one.host: one.headroom for one in moved.candidates}
    assert left["a"] and left["b"]
    assert (left["a"].cpu, left["a"].memory) != (left["b"].cpu, left["b"].memory)  # 10 on a, 11 on b
    alone = ask(cloud([large("a")], many("a", 9)), request(known("n")))
    assert alone.candidates[0].headroom == left["a"]


@given(st.lists(st.floats(-5, 5), max_size=30), st.floats(0.001, 1.0))
def test_a_group_has_all_within_its_width_of_its_highest_and_keeps_the_order(values: list[float], width: float) -> None:
    numbers = np.array(values)
    leaders = grouped(numbers, width)
    assert ((leaders >= numbers) & (leaders - numbers <= width)).all()
    assert set(leaders.tolist()) <= set(values)
    for one in range(len(values)):
        assert (leaders[numbers > numbers[one]] >= leaders[one]).all()


def test_ratios_of_which_one_is_unknown_are_not_distinguished() -> None:
    assert alike(1.0, float("nan")) and alike(1.0, 1.0 - NOTICED / 2) and not alike(1.0, 0.22)
