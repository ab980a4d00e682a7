"""The isolation ladder: what is tried where a placement breaks a limit, how strongly, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import mitigation
from advisor.domain import IsolationSettings, MitigationStep, Pinning, WorkloadProfile
from advisor.render import commands
from models.data.scene import SceneBatch
from models.physics import demands
from models.physics.prior import PriorPredictor
from models.prediction import InterferencePrediction
from profiler.demand import Demand
from profiler.observed import NetworkSettings
from tests.advisor.core.core_clouds import Counting, host, vm
from tests.advisor.core.isolation_hosts import TABLE, Shared, broken, crowded_hosts, looser
from tests.examples import examples

COST = ["weight", "cap", "pinning", "network", "disk", "hint", "driver_domain", "host"]


def actions(rungs: Sequence[MitigationStep]) -> list[str]:
    return [rung.action for rung in rungs]


def mended(crowded: Shared, action: str) -> MitigationStep:
    """The step of this kind that ends the ladder, for all limits are kept then."""
    rung = crowded.escalate()[-1]
    assert (rung.action, rung.satisfies) == (action, True)
    return rung


def test_a_weight_mends_it_where_weights_are_shares() -> None:
    crowded = Shared(host(pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=0.6))
    rung = mended(crowded, "weight")
    assert crowded.escalate() == (rung,)
    assert rung.changes["shop"].weight == 512
    assert rung.text == "Give shop 2 times the default weight: shop 0.50 -> 0.67, batch 0.50 -> 0.33."
    assert [one.instance for one in rung.effects] == ["shop", "batch"]
    assert [round(one.throughput_ratio.expected, 3) for one in rung.effects] == [0.667, 0.333]
    assert [one.before.expected for one in rung.effects if one.before] == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("limit", "weight"), [(0.55, 512), (0.75, 1024), (0.85, 2048)])
def test_the_mildest_weight_that_satisfies_is_taken(limit: float, weight: int) -> None:
    (rung,) = Shared(host(pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=limit)).escalate()
    assert rung.changes["shop"].weight == weight


def test_who_has_a_weight_of_its_own_keeps_it_and_the_other_gets_less() -> None:
    (rung,) = Shared(host(pcpus=1), [vm("r", weight=128, min_throughput_ratio=0.6)], vm("n")).escalate()
    assert rung.action == "weight"
    assert dict(rung.changes) == {"n": replace(vm("n").settings, weight=64)}


def test_a_cap_mends_it_where_a_weight_is_no_share() -> None:
    crowded = Shared(host(kind="xen", pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=0.6))
    weight, cap = crowded.escalate()
    assert (weight.action, weight.satisfies) == ("weight", False)
    assert "a weight is not a share, L4" in weight.text
    assert weight.text.endswith("which is not enough.")
    assert cap == mended(crowded, "cap")
    assert cap.changes == {"batch": IsolationSettings(cap_percent=40.0)}  # nothing is advised that is not needed
    assert "batch 0.50 -> 0.40" in cap.text and "weight above is not needed then" in cap.text


def test_who_has_no_limit_is_not_cut_by_more_than_half_where_a_dearer_rung_is_enough() -> None:
    busy = [vm("batch", vcpus=2), vm("crunch", vcpus=2)]
    crowded = Shared(host(kind="xen", pcpus=2), busy, vm("shop", min_throughput_ratio=0.9))
    hard = {"batch": replace(busy[0].settings, cap_percent=20.0)}
    assert not broken(crowded, crowded.kept(MitigationStep("cap", "", hard)))  # a hard cap would do
    _, cap, pinning = crowded.escalate()
    assert (cap.action, cap.satisfies) == ("cap", False)
    assert (pinning.action, pinning.satisfies) == ("pinning", True)
    placed, after = crowded.kept(), crowded.kept(pinning)
    assert all(after[name][0] >= placed[name][0] / 2 for name in ("batch", "crunch"))
    assert "last resort" not in pinning.text


def test_a_cut_by_more_than_half_is_the_last_resort_and_names_its_victim() -> None:
    crowded = Shared(host(kind="xen", pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=0.9))
    rungs = crowded.escalate(others=("h2",))
    assert actions(rungs) == ["weight", "cap", "cap"]
    assert [rung.satisfies for rung in rungs] == [False, False, True]
    assert rungs[1].effects[1].throughput_ratio.expected >= 0.25
    assert rungs[2].changes["batch"].cap_percent == 10.0
    assert rungs[2].text.endswith("a last resort, for batch, which no limit protects, would lose more than half.")
    said = "batch would run at {} % of its uncontended speed instead of 50 %, and no limit protects it".format
    assert [rung.notes for rung in rungs] == [(), (), (said(10),)]
    weighted = Shared(host(pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=0.85))
    assert mended(weighted, "weight").notes == (said(11),)


def test_a_last_resort_is_the_one_that_leaves_the_hardest_hit_most() -> None:
    crowded = Shared(host(kind="lxc", nic_mbit=80.0), [vm("b", "web")], vm("n", "web", min_throughput_ratio=0.85))
    cheaper = MitigationStep("cap", "", {"b": replace(vm("b").settings, cap_percent=5.0)})
    assert not broken(crowded, crowded.kept(cheaper))
    rung = mended(crowded, "network")
    assert "a last resort" in rung.text
    assert crowded.kept()["b"][0] / 2 > crowded.kept(rung)["b"][0] > crowded.kept(cheaper)["b"][0]


def test_a_limit_of_its_own_however_low_takes_the_place_of_the_half() -> None:
    batch = vm("batch", min_throughput_ratio=0.05)
    rungs = Shared(host(kind="xen", pcpus=1), [batch], vm("shop", min_throughput_ratio=0.9)).escalate()
    assert actions(rungs) == ["weight", "cap"]
    assert rungs[1].changes["batch"].cap_percent == 10.0
    assert "last resort" not in rungs[1].text


@pytest.mark.parametrize("limit", [0.63, 0.78, 0.9])
def test_the_cap_is_the_mildest_step_that_satisfies(limit: float) -> None:
    crowded = Shared(host(kind="xen", pcpus=1), [vm("batch")], vm("shop", min_throughput_ratio=limit))
    cap = mended(crowded, "cap")
    assert not broken(crowded, crowded.kept(cap))
    milder = replace(cap.changes["batch"], cap_percent=(cap.changes["batch"].cap_percent or 0) + 5)
    assert broken(crowded, crowded.kept(replace(cap, changes={"batch": milder})))


def test_a_cap_is_found_to_a_step_on_a_very_large_culprit_in_two_calls() -> None:
    counting = Counting()
    busy = {"cpu": Demand(32.0, doubt=1e-9)}  # always on all of its vCPUs
    culprit, new_vm = (vm(name, None, vcpus=32, demand=busy) for name in ("b", "n"))
    crowded = Shared(host(pcpus=32), [culprit], replace(new_vm, min_throughput_ratio=0.901))
    cap = crowded.escalate(counting)[-1]
    assert (cap.action, cap.satisfies) == ("cap", True)
    assert cap.changes["b"].cap_percent == 315.0  # of 3200, so that more than 600 steps lie above it
    milder = replace(cap.changes["b"], cap_percent=(cap.changes["b"].cap_percent or 0) + 5)
    assert broken(crowded, crowded.kept(replace(cap, changes={**cap.changes, "b": milder})))
    assert len(counting.asked) <= 6


def test_a_cap_stays_above_what_the_culprits_own_limit_needs() -> None:
    tight = vm("batch", min_throughput_ratio=0.4)
    crowded = Shared(host(kind="xen", pcpus=1), [tight], vm("shop", min_throughput_ratio=0.9))
    rungs = crowded.escalate()
    assert not any(rung.satisfies for rung in rungs)
    caps = [rung.changes["batch"].cap_percent for rung in rungs if rung.action == "cap"]
    assert caps and all(cap is not None and cap >= 40.0 for cap in caps)


def test_a_step_that_would_break_a_limit_is_not_kept_however_much_it_helps_the_worst_off() -> None:
    batch, shop = vm("batch", min_throughput_ratio=0.6, weight=512), vm("shop", min_throughput_ratio=0.9, weight=256)
    crowded = Shared(host(pcpus=1), [batch], shop)
    assert crowded.kept()["shop"][0] == pytest.approx(1 / 3)
    weight, cap = crowded.escalate()[:2]
    assert actions((weight, cap)) == ["weight", "cap"]
    assert crowded.kept(weight)["batch"][0] < 0.6, "half the weight would make both equally fast"
    assert "a limit of batch breaks" in weight.text
    assert crowded.kept(cap)["batch"][0] >= 0.6, "and the next step does not build on it"


def test_a_cap_on_who_minds_latency_says_how_long_it_stands_still() -> None:
    antagonist = vm("batch", service="latency")
    rung = Shared(host(kind="xen", pcpus=1), [antagonist], vm("shop", min_throughput_ratio=0.7)).escalate()[-1]
    assert rung.changes["batch"].cap_percent == 30.0
    assert "stands still for up to 7 of 10 ms" in rung.text  # P - Q of a period of 10 ms


@pytest.mark.parametrize(("kind", "stall"), [("kvm", "39 of 40 ms"), ("lxc", "20 of 20 ms")])
def test_the_stall_that_is_reported_is_that_of_the_period_that_is_rendered(kind: str, stall: str) -> None:
    batch = vm("batch", service="latency", vcpus=2)
    crowded = Shared(host(kind=kind, pcpus=1), [batch], vm("shop", min_throughput_ratio=0.93))
    rung = crowded.escalate()[-1]
    assert rung.changes["batch"].cap_percent == 5.0
    texts = [" ".join(one.argv) for one in commands(crowded.host, batch, IsolationSettings(), rung.changes["batch"])]
    assert any("vcpu_period=40000 --set vcpu_quota=1000" in one or "cpu.max=1000 20000" in one for one in texts)
    assert f"stands still for up to {stall}" in rung.text


def test_a_cap_brings_latency_back_as_the_stall_model_says() -> None:
    crowded = Shared(host(kind="xen", pcpus=1), [vm("batch")], vm("q", "steady", max_latency_ratio=1.5))
    assert crowded.kept()["q"][1] > 3
    rung = mended(crowded, "cap")
    assert rung.effects[0].latency_ratio.expected <= 1.5
    assert "latency of q" in rung.text


def test_a_culprits_own_latency_limit_is_not_broken_by_its_cap() -> None:
    new_vm = vm("n", "spin", min_throughput_ratio=0.8)
    free = Shared(host(kind="xen", pcpus=1), [vm("r", "steady")], new_vm)
    latency = free.kept(mended(free, "cap"))["r"][1]
    careful = Shared(free.host, [vm("r", "steady", max_latency_ratio=latency * 0.9)], new_vm)
    assert not broken(careful, careful.kept()) - {("n", "throughput")}
    assert not any(rung.satisfies for rung in careful.escalate())


def test_neighbours_keep_off_the_cpu_of_who_is_pinned_there_where_no_weight_or_cap_mends_it() -> None:
    neighbours = [*(vm(f"s{at}", min_throughput_ratio=0.7) for at in range(3)), vm("p", pins="0:0")]
    question = vm("q", "steady", pins="0:1", weight=256, max_latency_ratio=1.05)
    crowded = Shared(host(pcpus=4), neighbours, question)
    assert crowded.kept()["q"][1] > 1.5
    rungs = crowded.escalate()
    assert actions(rungs) == ["weight", "cap", "pinning", "pinning"]
    assert rungs[-1].satisfies
    away = Pinning(((0, 2, 3),))
    assert {name: settings.pinning for name, settings in rungs[-1].changes.items()} == dict.fromkeys(
        ("s0", "s1", "s2"), away
    )
    assert "Keep the 3 others on CPUs 0,2-3" in rungs[-1].text
    assert not broken(crowded, crowded.kept(rungs[-1]))


def test_a_class_of_its_own_mends_what_an_unshaped_uplink_does_to_a_query() -> None:
    senders = [vm("b1", "flow"), vm("b2", "flow")]
    question = vm("q", "query", service="latency", max_latency_ratio=1.5)
    crowded = Shared(host(kind="lxc", pcpus=4), senders, question)
    rung = mended(crowded, "network")
    network = rung.changes["q"].network
    assert network and (network.mode, network.ceil_mbit) == ("shared", 1000.0)
    assert "L9" in rung.text
    mean = Shared(crowded.host, senders, replace(question, service="throughput")).escalate()[-1].changes["q"].network
    assert mean and mean.mode == "dedicated"  # it minds the mean, not jitter and time-outs


def test_a_culprit_is_held_to_the_largest_rate_that_satisfies() -> None:
    own = NetworkSettings("shared", 100.0, 1000.0)
    crowded = Shared(
        host(kind="lxc", pcpus=4), [vm("b", "bulk")], vm("n", "flow", network=own, min_throughput_ratio=0.9)
    )
    rung = mended(crowded, "network")
    held = rung.changes["b"].network
    assert held and set(rung.changes) == {"b"}
    more = NetworkSettings("dedicated", (held.rate_mbit or 0) + 50, (held.rate_mbit or 0) + 50)
    milder = {"b": replace(rung.changes["b"], network=more)}
    assert broken(crowded, crowded.kept(replace(rung, changes=milder)))


def test_a_disk_limit_mends_a_pair_that_keeps_the_disk_busy() -> None:
    """It says where it holds each way by itself, and none is tried where the host can set none."""
    for kind, says in (("lxc", "MB/s, reading and writing each, (it mitigates"), ("kvm", "MB/s (it mitigates")):
        crowded = Shared(host(kind=kind), [vm("d", "disk")], vm("n", "disk", min_throughput_ratio=0.7))
        rung = mended(crowded, "disk")
        assert rung.changes["d"].disk_limit_mb_s == 60.0  # of 200 MB/s
        assert all(words in rung.text for words in (says, "L6", "n 0.50 -> 0.70, d 0.50 -> 0.30"))
    rungs = replace(crowded, host=host(kind="xen")).escalate()
    assert "disk" not in actions(rungs)
    assert not any(rung.satisfies for rung in rungs)


def test_one_cpu_more_for_the_driver_domain_is_a_change_of_the_host() -> None:
    pair = [vm("c", "chatty", pins="0:1", min_throughput_ratio=0.9)]
    crowded = Shared(host(pcpus=4, driver_cpus=(0,)), pair, vm("n", "chatty", pins="0:2", min_throughput_ratio=0.9))
    rungs = crowded.escalate()
    assert actions(rungs)[-2:] == ["hint", "driver_domain"]
    assert (rungs[-1].satisfies, dict(rungs[-1].changes)) == (True, {})
    assert "CPUs 0,3" in rungs[-1].text and "N11" in rungs[-1].text
    assert not broken(crowded, crowded.kept(host=replace(crowded.host, driver_cpus=(0, 3))))


def test_a_driver_domain_under_a_cpu_bound_guest_gets_a_quiet_cpu() -> None:
    hog = vm("s", "spin", pins="0:0", min_throughput_ratio=0.5)
    crowded = Shared(
        host(kind="xen", pcpus=4, driver_cpus=(0,)), [hog], vm("n", "chatty", pins="0:2", min_throughput_ratio=0.9)
    )
    assert "CPU 1 alone" in mended(crowded, "driver_domain").text
    assert not broken(crowded, crowded.kept(host=replace(crowded.host, driver_cpus=(1,))))


def test_vhost_threads_are_hinted_at_and_never_said_to_satisfy() -> None:
    sender = vm("b", "bulk", min_throughput_ratio=0.6)
    crowded = Shared(host(pcpus=4), [sender], vm("n", "bulk", vcpus=2, min_throughput_ratio=0.99))
    (hint,) = (rung for rung in crowded.escalate() if rung.action == "hint")
    assert "C4" in hint.text and "2 queues" in hint.text
    assert (dict(hint.changes), hint.effects, hint.satisfies) == ({}, (), False)
    on_xen = Shared(host(kind="xen", pcpus=4), crowded.residents, crowded.new_vm)
    assert "hint" not in actions(on_xen.escalate())


def test_where_nothing_mends_it_the_last_rung_says_so_and_names_another_host() -> None:
    crowded = Shared(host(kind="xen", pcpus=1), [vm("r", min_throughput_ratio=0.5)], vm("n", min_throughput_ratio=0.6))
    rungs = crowded.escalate(others=("h2", "h3"))
    assert not any(rung.satisfies for rung in rungs)
    assert rungs[-1] == MitigationStep(
        "host", "No setting that was tried on h1 meets every limit: place n on h2, which does."
    )
    assert crowded.escalate()[-1].text.endswith("and no other host is known that does.")
    refused = next(rung for rung in rungs if rung.action == "weight")
    assert "a limit of r breaks" in refused.text


def test_a_rung_that_helps_is_kept_and_the_next_ones_stand_on_it() -> None:
    crowded = Shared(
        host(kind="xen", pcpus=4),
        [vm(f"s{at}", min_throughput_ratio=0.7) for at in range(4)],
        vm("q", "steady", weight=256, max_latency_ratio=1.1),
    )
    weight, *rest = crowded.escalate()
    assert weight.text.endswith("which is not enough.")
    last, tried = weight, [rung for rung in rest if rung.effects]
    assert [rung.text.endswith("which is not enough.") for rung in tried] == [True, False]
    for rung in tried:
        reached = {one.instance: round(one.throughput_ratio.expected, 9) for one in last.effects}
        assert {one.instance: round(one.before.expected, 9) for one in rung.effects if one.before} == reached
        assert rung.changes["s0"].weight == weight.changes["s0"].weight == 64
        last = rung


def test_help_at_the_expense_of_who_is_below_a_limit_too_is_not_kept() -> None:
    pair = [vm("a", pins="0:0", min_throughput_ratio=0.9)]
    crowded = Shared(host(pcpus=2), pair, vm("n", pins="0:0", min_throughput_ratio=0.9))
    weight, *rest = crowded.escalate()
    assert weight.text.endswith("and another instance below its limit loses as much.")
    assert not any(rung.satisfies for rung in rest)
    assert all(one.settings.weight is None for one in crowded.all_instances)
    assert all(settings.weight is None for rung in rest for settings in rung.changes.values())


def test_the_new_vms_own_profile_is_used_where_it_brings_one() -> None:
    table = TABLE.with_profile(WorkloadProfile("shop", {"cpu": 5.0, "block": 90.0}))

    def rungs(row: int | None) -> tuple[MitigationStep, ...]:
        new_vm = vm("shop", "spin", min_throughput_ratio=0.9)
        return mitigation.escalate(host(pcpus=1), [vm("r")], new_vm, table=table, row=row, predictor=PriorPredictor())

    assert rungs(None)  # the workload that it names demands a whole CPU
    assert rungs(len(table.values) - 1) == ()


def test_who_sits_on_the_host_already_is_not_its_own_neighbour() -> None:
    assert Shared(host(pcpus=1), [vm("n")], vm("n", min_throughput_ratio=0.9)).escalate() == ()


def test_a_whole_ladder_asks_the_predictor_at_most_ten_times() -> None:
    counting = Counting()
    crowded = Shared(
        host(pcpus=4, driver_cpus=(0,), nic_mbit=100.0),
        [vm("a", "web"), vm("b", "bulk"), vm("c", "disk", min_throughput_ratio=0.9), vm("d", None, vcpus=4)],
        vm("n", "disk", vcpus=4, min_throughput_ratio=1.0),
    )
    assert actions(crowded.escalate(counting))[-3:] == ["disk", "driver_domain", "host"]
    assert 2 < len(counting.asked) <= 10


@given(crowded_hosts())
@settings(max_examples=examples(40), deadline=None)
def test_a_rung_that_satisfies_does_so_when_it_is_asked_again(crowded: Shared) -> None:
    before = broken(crowded, crowded.kept(new_vm=False))
    kept = crowded.kept()
    placed = broken(crowded, kept) - before
    rungs = crowded.escalate()
    assert bool(rungs) == bool(placed)
    for rung in rungs:
        assert rung.satisfies == (rung is rungs[-1] and rung.action != "host")
        if rung.action in {"hint", "host"}:
            continue
        cpus = crowded.host.driver_cpus if rung.driver_cpus is None else rung.driver_cpus
        again = crowded.kept(rung, host=replace(crowded.host, driver_cpus=cpus))
        reported = {one.instance: one.throughput_ratio.expected for one in rung.effects}
        assert reported == pytest.approx({name: ratio for name, (ratio, *_) in again.items()}, abs=1e-9)
        if rung.satisfies:
            assert not broken(crowded, again) - before
            alone = {name for name, kind in before if kind == "throughput"}
            free = [one.id for one in crowded.all_instances if one.min_throughput_ratio is None or one.id in alone]
            cut = any(again[name][0] < kept[name][0] / 2 - 1e-9 for name in free)
            assert rung.action == "weight" or cut == ("a last resort" in rung.text)


@given(crowded_hosts())
@settings(max_examples=examples(40), deadline=None)
def test_rungs_loosen_nothing_and_come_in_order_of_cost_whatever_the_order_of_residents(crowded: Shared) -> None:
    counting = Counting()
    rungs = crowded.escalate(counting)
    costs = [COST.index(rung.action) for rung in rungs if "a last resort" not in rung.text]
    assert costs == sorted(set(costs))
    assert len(counting.asked) <= 10
    for rung in rungs:
        for one in crowded.all_instances:
            assert looser(one.settings, rung.changes.get(one.id, one.settings)) == []
    assert replace(crowded, residents=crowded.residents[::-1]).escalate() == rungs


@pytest.mark.parametrize("bystanders", [0, 1])
def test_no_class_is_tried_that_the_rendered_tree_could_not_keep(bystanders: int) -> None:
    """Half of the line is kept for instances without a class; where all have one, classes may have all of it."""
    quiet = [vm(f"calm-{at}", "calm") for at in range(bystanders)]
    crowded = Shared(host(kind="lxc", pcpus=4), [vm("b", "bulk"), *quiet], vm("n", "flow", min_throughput_ratio=0.95))
    tried: list[SceneBatch] = []

    class Watching(PriorPredictor):
        def predict(self, scenes: SceneBatch, *targets: Any) -> InterferencePrediction:
            tried.append(scenes)
            return super().predict(scenes, *targets)

    assert crowded.escalate(Watching())[-1].action == "network"
    rates = [
        (np.where(has_class, scenes.net_rate[at], 0.0), bool(has_class.all()))
        for scenes in tried
        for at, has_class in enumerate(demands.shaped(scenes))
        if has_class.size == len(crowded.all_instances) and has_class[-1]
    ]
    assert rates
    for promised, all_instances in rates:
        assert promised.sum() <= (1000.0 if all_instances else 500.0) + 0.1
    assert (max(float(promised[-1]) for promised, _ in rates) > 500.0) == (bystanders == 0)


def test_a_step_that_no_command_can_carry_out_says_which_label_it_needs() -> None:
    senders = [vm("b1", "flow"), vm("b2", "flow")]
    question = vm("q", "query", service="latency", max_latency_ratio=1.5)
    bare = Shared(host(kind="lxc", pcpus=4), senders, question).escalate()[-1]
    assert bare.satisfies
    assert bare.notes == ("needs label uplink on host h1 to be carried out",)
    assert bare.text.endswith("; needs label uplink on host h1 to be carried out.")
    with_name = host(kind="lxc", pcpus=4, labels={"uplink": "eth0"})
    halfway = Shared(with_name, senders, question).escalate()[-1]
    assert halfway.notes == ("needs label mac on instance q to be carried out",)
    ready = Shared(with_name, senders, replace(question, labels={"mac": "52:54:00:00:00:01"})).escalate()[-1]
    assert ready.notes == ()
    assert ready.changes == bare.changes
    assert ready.text == bare.text.removesuffix("; needs label uplink on host h1 to be carried out.") + "."


def test_a_name_that_no_command_may_hold_is_reported_with_the_step_and_refuses_nothing() -> None:
    rung = Shared(host(pcpus=1), [vm("batch")], vm("7", min_throughput_ratio=0.6)).escalate()[-1]
    assert rung.satisfies
    assert len(rung.notes) == 1 and "no command can be rendered for instance '7'" in rung.notes[0]


@given(crowded_hosts(), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_a_step_says_what_it_needs_where_and_only_where_something_of_it_has_no_command(
    crowded: Shared, labelled: bool
) -> None:
    if labelled:
        disk = "8:0" if crowded.host.kind == "lxc" else "vda"
        reported = [
            replace(one, labels={"mac": f"52:54:00:00:00:{at:02x}", "disk": disk})
            for at, one in enumerate(crowded.all_instances)
        ]
        crowded = Shared(replace(crowded.host, labels={"uplink": "eth0"}), reported[:-1], reported[-1])
    for rung in crowded.escalate():
        made = [
            command
            for one in crowded.all_instances
            if one.id in rung.changes
            for command in commands(crowded.host, one, one.settings, rung.changes[one.id])
        ]
        needs = [note for note in rung.notes if "no limit protects it" not in note]
        assert bool(needs) == any(not command.argv for command in made)
        assert all(note in rung.text for note in needs)
