"""Answers say for how much of the time each instance is short of CPU, and how crowded each host is."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.domain import (
    Effect,
    Host,
    Instance,
    Scene,
    codec,
    latency_in_words,
    short_of_cpu,
    time_part,
)
from advisor.domain.effects import Band, CpuTime
from advisor.placement.decision import predict_scene
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import Slower, ask, cloud, host, request, vm


def bursty(name: str, *, on: str | None = None, **more: Any) -> Instance:
    """An instance of four vCPUs that serves what arrives: 1.5 CPUs of work on average."""
    demand = {"cpu": Demand(1.5, spread=0.1, common=0.3, windows=1000.0, open_loop=True)}
    return vm(name, None, on=on, vcpus=4, demand=demand, **more)


def large(name: str, *, pcpus: int = 64) -> Host:
    return host(name, pcpus=pcpus, memory_mb=256 * 1024.0)


def residents(on: str, count: int) -> list[Instance]:
    return [bursty(f"{on}-{at:02}", on=on) for at in range(count)]


def cpu_of(effect: Effect) -> CpuTime:
    assert effect.cpu is not None
    return effect.cpu


def test_each_instance_has_the_figures_of_the_physics_and_each_host_how_crowded_it_is() -> None:
    there, new_vm = residents("a", 39), bursty("n")
    answer = ask(cloud([large("a")], there), request(new_vm))
    best = answer.candidates[0]
    before, after = (
        PriorPredictor().predict(build_batch([(large("a"), crowd)], ProfileTable.build(()))).pressure
        for crowd in (there, [*there, new_vm])
    )
    assert before and after
    mine, other = cpu_of(best.new_vm), cpu_of(best.neighbours[0])
    assert (mine.share, mine.worst_share, mine.short) == pytest.approx(
        (after.share[0, -1], after.worst[0, -1], after.short[0, -1]), abs=1e-9
    )
    assert mine.short_before is None
    assert other.short_before == pytest.approx(before.short[0, 0], abs=1e-9)
    assert other.short == pytest.approx(after.short[0, 0], abs=1e-9)
    assert best.crowded == pytest.approx(after.crowded[0], abs=1e-9)
    assert 0 < cpu_of(best.neighbours[0]).short < 1


def test_no_resident_is_short_for_less_time_than_before() -> None:
    answer = ask(cloud([large("a")], residents("a", 41)), request(bursty("n")))
    for cpu in map(cpu_of, answer.candidates[0].neighbours):
        assert cpu.short_before is not None and cpu.short >= cpu.short_before


def test_the_reasons_say_who_is_short_of_cpu_for_how_long() -> None:
    answer = ask(cloud([large("a")], residents("a", 39)), request(bursty("n")))
    best = answer.candidates[0]
    reported = short_of_cpu("n", cpu_of(best.new_vm))
    assert reported in best.reasons[0].text
    assert reported == f"n is contended {time_part(cpu_of(best.new_vm).short)} of the time."


def test_the_physics_stands_beside_what_another_model_predicts() -> None:
    clouded = cloud([large("a")], residents("a", 39))
    by_physics = ask(clouded, request(bursty("n"))).candidates[0]
    other = ask(clouded, request(bursty("n")), Slower()).candidates[0]
    assert other.new_vm.cpu == by_physics.new_vm.cpu
    assert other.new_vm.throughput_ratio != by_physics.new_vm.throughput_ratio


def test_an_overloaded_instance_has_no_latency() -> None:
    scene = Scene(large("a", pcpus=4), tuple(bursty(f"i{at}") for at in range(4)), ())
    effects = predict_scene(scene, PriorPredictor(), workloads=()).effects
    assert all(one.overloaded for one in effects)
    assert latency_in_words(effects[0]) == "overloaded"
    words = "i0 is overloaded at busy times: more work arrives then than it is served."
    assert short_of_cpu("i0", cpu_of(effects[0])) == words
    answer = ask(cloud([large("a", pcpus=4)], residents("a", 3)), request(bursty("n")))
    new_vm = codec.answer_values(answer)["candidates"][0]["new_vm"]
    assert new_vm["cpu"]["overloaded"]
    assert new_vm["latency_ratio"]["expected"] is new_vm["jitter_ratio"]["upper"] is None
    reason = answer.candidates[0].reasons[0].text
    assert "overloaded" in reason and "times as long" not in reason


@pytest.mark.parametrize(
    ("part", "words"),
    [(0.0, "0 %"), (0.0004, "< 0.1 %"), (0.021, "2.1 %"), (0.0994, "9.9 %"), (0.0996, "10 %"), (1.0, "100 %")],
)
def test_parts_of_the_time_have_a_decimal_where_they_are_small(part: float, words: str) -> None:
    assert time_part(part) == words


def test_residents_have_a_figure_before_the_placement() -> None:
    effect = Effect("web-12", Band(1.0, 0.9, 1.0), Band(1.03, 1.0, 2.0), cpu=CpuTime(0.98, 0.9, 0.021, 0.003))
    assert short_of_cpu(effect.instance, cpu_of(effect)) == "web-12 is contended 2.1 % of the time, 0.3 % before."
    assert latency_in_words(effect) == "× 1.03"


def test_demand_that_its_own_vcpus_never_serve_is_no_overload() -> None:
    doubtful = vm("n", None, vcpus=1, demand={"cpu": Demand(0.8, open_loop=True)})
    effects = predict_scene(Scene(large("a"), (doubtful,), ()), PriorPredictor(), workloads=()).effects
    assert not effects[0].overloaded
