"""A resident is compared as it stands: with the settings that it has on its host, with better ones, and elsewhere."""

from __future__ import annotations

import pytest

from advisor.domain import Candidate, Instance, PlacementRequest, Recommendation, Scene, asked_about, found_in
from advisor.placement.decision import answer_scene, rank_hosts, recommend
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import cloud, context, host, vm

CONTEXT = context(PriorPredictor())
TWO_CPUS = "|".join(f"{vcpu}:4-5" for vcpu in range(3))


def busy(name: str, on: str, cpu: float = 1.7, pins: str = TWO_CPUS) -> Instance:
    return vm(name, None, on, vcpus=3, pins=pins, demand={"cpu": Demand(cpu, "cpu")})


def crowded(*hosts: str) -> ClusterSnapshot:
    """Three VMs share two CPUs of the host `m1`, whose other ten idle."""
    there = [busy(name, "m1") for name in ("north", "south", "west")]
    return cloud([host(name, pcpus=12) for name in hosts], there)


def ask(snapshot: ClusterSnapshot, name: str, *, commands: bool = False) -> Recommendation:
    find = found_in([each for residents in snapshot.residents for each in residents])
    return recommend(snapshot, CONTEXT, PlacementRequest(asked_about(name, {}, find), commands=commands))


def own(answer: Recommendation) -> Candidate:
    return next(each for each in answer.candidates if answer.present and each.host == answer.present.host)


def test_a_resident_as_it_stands_has_what_its_scene_says() -> None:
    snapshot = crowded("m1")
    answer = ask(snapshot, "north")
    scene = answer_scene(CONTEXT.active, Scene(snapshot.hosts[0], snapshot.residents[0]), ())
    expected = {effect.instance: effect.throughput_ratio for effect in scene.effects}
    assert answer.present is not None
    effects = (answer.present.new_vm, *answer.present.neighbours)
    assert {effect.instance: effect.throughput_ratio for effect in effects} == expected
    assert expected["north"].expected < 0.6


def test_without_another_host_its_pinning_comes_off() -> None:
    answer = ask(crowded("m1"), "north", commands=True)
    assert answer.advised == "settings"
    assert answer.unpins(answer.best)
    assert own(answer).new_vm.throughput_ratio.expected > 0.95
    argvs = [command.argv for command in answer.best.commands]
    assert [argv[:2] for argv in argvs] == [("virsh", "vcpupin")] * 3
    assert all(command.undo[-1] == "4-5" for command in answer.best.commands)


def test_where_nothing_is_to_be_gained_it_stays_with_its_pinning() -> None:
    answer = ask(cloud([host("m1", pcpus=12), host("m2", pcpus=12)], [busy("alone", "m1", cpu=0.3)]), "alone")
    assert answer.advised == "stay"
    assert str(own(answer).pinning) == TWO_CPUS


def test_a_host_where_it_would_be_worse_off_is_not_the_same() -> None:
    loud = [vm(f"loud-{at}", None, "m2", vcpus=4, demand={"cpu": Demand(3.9, "cpu")}) for at in range(2)]
    answer = ask(cloud([host("m1"), host("m2"), host("m3")], [busy("calm", "m1", pins=""), *loud]), "calm")
    assert answer.present is not None
    assert (answer.advised, answer.present.tied_with) == ("stay", ("m1", "m3"))
    assert answer.present.tied_elsewhere == ("m3",)
    worse = ask(cloud([host("m1"), host("m2")], [busy("calm", "m1", pins=""), *loud]), "calm")
    assert worse.advised == "stay"
    assert own(worse).tied_with == own(worse).tied_elsewhere == ()


def test_a_move_has_its_commands_and_their_undo() -> None:
    there = [vm(name, None, "m1", vcpus=4, demand={"cpu": Demand(3.9, "cpu")}) for name in ("loud", "loud-2", "loud-3")]
    answer = ask(cloud([host("m1"), host("m2")], there), "loud", commands=True)
    assert (answer.advised, answer.best.host) == ("move", "m2")
    (migration,) = [command for command in answer.best.commands if "migrate" in command.argv]
    assert "qemu+ssh://m2/system" in migration.argv
    assert "qemu+ssh://m1/system" in migration.undo


def test_a_scheduler_that_changes_no_settings_sees_it_pinned_on_its_own_host_only() -> None:
    snapshot = crowded("m1", "m2")
    find = found_in(snapshot.residents[0])
    request = PlacementRequest(asked_about("north", {}, find), mitigate=False, explain=False)
    scores = rank_hosts(snapshot, CONTEXT, request, detailed=0).scores
    present = ask(snapshot, "north").present
    assert present is not None
    assert scores["m1"] == pytest.approx(present.score)
    assert scores["m2"] > scores["m1"] + 0.3


def test_a_new_instance_has_no_present() -> None:
    answer = recommend(crowded("m1"), CONTEXT, PlacementRequest(vm("new", None)))
    assert answer.present is None
    assert answer.advised == "place"
