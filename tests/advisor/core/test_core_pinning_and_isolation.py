"""The pinnings that are asked about, and the ladder of settings for where a placement alone breaks a limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from core_clouds import cloud, host, vm

from advisor import isolation, pinning
from advisor.domain import Instance, IsolationSettings, Pinning
from models.scene import SceneBatch
from profiler.observed import NetworkSettings


def options(scenes: SceneBatch, newcomer: Instance) -> dict[str, pinning.PinningOption]:
    return {one.name: one for one in pinning.options(scenes, newcomer)}


def usable(option: pinning.PinningOption, scene: int = 0) -> list[int] | None:
    return [int(cpu) for cpu in np.flatnonzero(option.affinity[scene])] if option.usable[scene] else None


def test_an_unpinned_newcomer_may_stay_free_or_take_the_quietest_cpus() -> None:
    snapshot = cloud([host(pcpus=4)], [vm("r", on="h1", pins="0:0"), vm("s", "calm", on="h1", pins="0:1")])
    found = options(snapshot.scenes, vm(vcpus=2))
    assert usable(found["unpinned"]) == [0, 1, 2, 3]
    assert usable(found["quiet CPUs"]) == [2, 3]
    assert usable(found["guest CPUs"]) is None
    assert not found["unpinned"].pins


def test_the_driver_domains_own_cpus_are_left_alone() -> None:
    snapshot = cloud([host(pcpus=4, driver_cpus=(0,))], [vm("r", on="h1", pins="0:1")])
    found = options(snapshot.scenes, vm(vcpus=1))
    assert usable(found["quiet CPUs"]) == [2]
    assert usable(found["guest CPUs"]) == [1, 2, 3]
    assert usable(found["unpinned"]) == [0, 1, 2, 3]


def test_a_driver_domain_that_may_run_anywhere_has_no_cpus_of_its_own() -> None:
    found = options(cloud([host(pcpus=2, driver_cpus=(0, 1))]).scenes, vm(vcpus=1))
    assert usable(found["quiet CPUs"]) == [0]
    assert usable(found["guest CPUs"]) is None


def test_a_pinning_that_is_no_choice_of_its_own_is_not_asked_about() -> None:
    whole = options(cloud([host(pcpus=2)]).scenes, vm(vcpus=2))
    assert usable(whole["quiet CPUs"]) is None
    small = options(cloud([host(pcpus=2, driver_cpus=(0,))]).scenes, vm(vcpus=2))
    assert usable(small["quiet CPUs"]) is None
    assert usable(small["guest CPUs"]) is None


def test_hosts_of_unequal_size_have_options_of_their_own() -> None:
    scenes = cloud([host("a", pcpus=1), host("b", pcpus=3), host("c", pcpus=2, driver_cpus=(1,))]).scenes
    found = options(scenes, vm(vcpus=1))
    assert [usable(found["unpinned"], at) for at in range(3)] == [[0], [0, 1, 2], [0, 1]]
    assert [usable(found["quiet CPUs"], at) for at in range(3)] == [None, [0], [0]]


def test_an_existing_pin_is_the_only_option_and_stays_as_it_was() -> None:
    scenes = cloud([host(pcpus=4)]).scenes
    for text in ("0:3|1:1", "0:2-3|1:2-3", "0:1|1:1", "0:0-3|1:2"):
        (found,) = pinning.options(scenes, vm(vcpus=2, pins=text))
        assert str(pinning.as_pinning(found, 0, 2)) == text
        assert usable(found) == sorted(Pinning.parse(text).union)  # type: ignore[union-attr]
        assert found.pins


def test_a_pin_of_some_vcpus_is_kept_and_lets_the_others_run_anywhere() -> None:
    half = replace(vm(vcpus=2), settings=IsolationSettings(pinning=Pinning(((1,), ()))))
    (found,) = pinning.options(cloud([host(pcpus=3)]).scenes, half)
    assert usable(found) == [0, 1, 2]
    assert pinning.as_pinning(found, 0, 2) == Pinning(((1,), ()))


def test_an_option_is_written_one_cpu_for_each_vcpu_where_the_counts_match() -> None:
    found = options(cloud([host(pcpus=4, driver_cpus=(0,))]).scenes, vm(vcpus=2))
    assert str(pinning.as_pinning(found["quiet CPUs"], 0, 2)) == "0:1|1:2"
    assert str(pinning.as_pinning(found["guest CPUs"], 0, 2)) == "0:1-3|1:1-3"
    assert pinning.as_pinning(found["unpinned"], 0, 2) is None


def test_equally_quiet_cpus_are_taken_from_the_lowest_on() -> None:
    scenes = cloud([host(pcpus=4)], [vm("r", on="h1")]).scenes
    assert usable(options(scenes, vm(vcpus=1))["quiet CPUs"]) == [0]


def test_the_ladder_goes_from_weight_to_cap_to_network_class() -> None:
    rungs = list(isolation.ladder(host(nic_mbit=1000.0), vm(vcpus=2)))
    assert [rung.name for rung in rungs] == [
        "half weight", "cap 75%", "cap 50%", "cap 25%", "tc class 500 Mbit/s", "tc class 250 Mbit/s",
    ]  # fmt: skip
    assert rungs[0].settings.weight == 128
    assert [rung.settings.cap_percent for rung in rungs[1:4]] == [150.0, 100.0, 50.0]
    assert rungs[4].settings.network == NetworkSettings("dedicated", 500.0, 500.0)


def test_the_ladder_keeps_what_an_instance_has_already() -> None:
    network = NetworkSettings("shared", 10.0, 20.0)
    held = vm(weight=100, cap_percent=50.0, network=network)
    assert list(isolation.ladder(host(), held)) == []
    some = vm(vcpus=1, weight=100, pins="0:1")
    for rung in isolation.ladder(host(), some):
        assert rung.settings.weight == 100
        assert rung.settings.pinning == Pinning(((1,),))


def test_the_ladder_has_no_network_class_on_a_link_of_unknown_speed() -> None:
    assert all(rung.settings.network is None for rung in isolation.ladder(host(nic_mbit=None), vm()))


def test_a_network_that_is_not_shaped_may_be_shaped() -> None:
    open_network = vm(network=NetworkSettings("none"))
    assert any(rung.name.startswith("tc class") for rung in isolation.ladder(host(), open_network))


def test_an_uplink_class_is_sure_of_its_share_and_may_use_the_whole_link() -> None:
    assert isolation.uplink_class(host(), vm(), 0.25) == NetworkSettings("shared", 250.0, 1000.0)
    assert isolation.uplink_class(host(), vm(), 0.0) == NetworkSettings("shared", 1.0, 1000.0)


def test_there_is_no_uplink_class_without_a_known_link_or_beside_another_class() -> None:
    assert isolation.uplink_class(host(nic_mbit=None), vm(), 0.5) is None
    shaped = vm(network=NetworkSettings("dedicated", 10.0, 10.0))
    assert isolation.uplink_class(host(), shaped, 0.5) is None


@pytest.mark.parametrize("vcpus", [1, 3, 7])
def test_caps_of_the_ladder_are_parts_of_all_vcpus(vcpus: int) -> None:
    caps = [
        rung.settings.cap_percent for rung in isolation.ladder(host(), vm(vcpus=vcpus)) if rung.settings.cap_percent
    ]
    assert caps == [vcpus * 75.0, vcpus * 50.0, vcpus * 25.0]
