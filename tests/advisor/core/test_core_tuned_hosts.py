"""Hosts that would be better after a few changes to their residents are offered apart from those that need none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import (
    Candidate,
    Host,
    Instance,
    IsolationSettings,
    PlacementRequest,
    Recommendation,
    codec,
    recommendation_from_json,
)
from advisor.placement.decision import recommend
from advisor.snapshot import ClusterSnapshot
from profiler.demand import Demand
from tests.advisor.core.core_clouds import WORKLOADS, cloud, context, host, vm
from tests.advisor.tuning.tuning_hosts import SMALL_FILES, server
from tests.examples import examples

CONTEXT = context()


def busy(name: str, on: str | None, cpu: float, pins: str = "", **more: Any) -> Instance:
    return vm(name, None, on, vcpus=2, pins=pins, demand={"cpu": Demand(cpu, spread=0.3 * cpu)}, **more)


def ask(snapshot: ClusterSnapshot, new_vm: Instance, **more: Any) -> Recommendation:
    return recommend(snapshot, CONTEXT, PlacementRequest(new_vm, **{"tune": True, **more}))


PINNED = (busy("left", "h1", 1.5, "0:0-1|1:0-1"), busy("right", "h1", 1.5, "0:0-1|1:0-1"))


def kept(candidate: Candidate) -> dict[str, float]:
    return {one.instance: one.throughput_ratio.expected for one in (candidate.new_vm, *candidate.neighbours)}


def anew(hosts: list[Host], residents: list[Instance], new_vm: Instance, on: str) -> Candidate:
    """What is answered on this host where every instance is set so from the first."""
    answer = recommend(cloud(hosts, residents), CONTEXT, PlacementRequest(new_vm, hosts=(on,), mitigate=False))
    return answer.candidates[0]


def test_a_resident_that_is_pinned_badly_is_seen_and_freed_by_commands() -> None:
    answer = ask(cloud([host("h1", pcpus=8)], PINNED), busy("new", None, 0.5), commands=True)
    (offered,) = answer.tuned
    assert [step.settings for step in offered.tuning] == [IsolationSettings()] * len(offered.tuning)
    before = {one.instance: one.before.expected for one in offered.neighbours if one.before}
    assert max(before.values()) < 0.8
    assert min(kept(offered).values()) > 0.97
    assert {command.argv[:2] for command in offered.commands} == {("virsh", "vcpupin")}
    assert {command.undo[-1] for command in offered.commands} == {"0-1"}
    assert [command for step in offered.tuning for command in step.commands] == list(offered.commands)


def test_it_is_apart_from_hosts_that_need_nothing_whose_answer_does_not_change() -> None:
    snapshot = cloud([host("h1", pcpus=8), host("h2", pcpus=8)], PINNED)
    asked, plain = (ask(snapshot, busy("new", None, 0.5), tune=tune) for tune in (True, False))
    assert (plain.tuned, [one.host for one in asked.tuned]) == ((), ["h1"])
    assert asked.candidates == plain.candidates
    assert asked.rejected == plain.rejected


def test_no_setting_changes_where_none_may() -> None:
    assert ask(cloud([host("h1", pcpus=8)], PINNED), busy("new", None, 0.5), mitigate=False).tuned == ()


def test_a_host_that_breaks_a_limit_is_offered_where_others_give_up_their_pins() -> None:
    pinned = [busy(name, "h1", 1.4, "0:0-1|1:0-1") for name in ("left", "right")]
    new_vm = busy("new", None, 1.9, "0:0-1|1:0-1", min_throughput_ratio=0.9)
    answer = ask(cloud([host("h1", pcpus=8)], pinned), new_vm)
    assert [one.host for one in answer.rejected] == ["h1"]
    (offered,) = answer.tuned
    assert kept(offered)["new"] >= 0.9
    assert offered.pinning == new_vm.settings.pinning
    assert ask(cloud([host("h1", pcpus=2)], pinned), new_vm).tuned == ()


def test_figures_are_those_of_a_cloud_that_was_set_so_from_the_first() -> None:
    new_vm, hosts = busy("new", None, 0.5), [host("h1", pcpus=4)]
    (offered,) = ask(cloud(hosts, PINNED), new_vm).tuned
    changed = [replace(one, settings=offered.changes.get(one.id, one.settings)) for one in PINNED]
    pinned = replace(new_vm, settings=IsolationSettings(pinning=offered.pinning))
    assert kept(offered) == pytest.approx(kept(anew(hosts, changed, pinned, "h1")))
    today = anew(hosts, list(PINNED), busy("tiny", None, 0.001), "h1")
    before = {one.instance: one.before and one.before.expected for one in offered.neighbours}
    assert before == pytest.approx({one.instance: one.before and one.before.expected for one in today.neighbours})


def test_dom0_that_wants_a_cpu_of_its_own_is_a_change_to_the_host() -> None:
    """Finding N11: beside two servers of small files Dom0 needs a CPU of its own."""
    residents = [replace(server(name), host="x") for name in ("a", "b")]
    snapshot = cloud([host("x", kind="xen", pcpus=4)], residents, workloads=(*WORKLOADS, SMALL_FILES))
    answer = ask(snapshot, vm("new", "calm"), commands=True)
    (offered,) = answer.tuned
    (step,) = offered.tuning
    assert (step.instance, step.subject, step.settings, len(step.driver_cpus)) == ("", "driver domain", None, 1)
    assert [command.argv[:3] for command in offered.commands[:2]] == [
        ("xl", "vcpu-set", "Domain-0"), ("xl", "vcpu-pin", "Domain-0"),
    ]  # fmt: skip
    assert min(kept(offered).values()) > min(kept(answer.candidates[0]).values()) + 0.02


def test_an_instance_where_it_stands_is_offered_that_others_give_up_theirs() -> None:
    residents = [busy("me", "h1", 1.5, "0:0-1|1:0-1"), busy("right", "h1", 1.9, "0:0|1:0")]
    answer = ask(cloud([host("h1", pcpus=8)], residents), replace(residents[0], settings=IsolationSettings()))
    (offered,) = answer.tuned
    assert {step.instance for step in offered.tuning} == {"right"}
    assert kept(offered)["right"] > 0.97


def test_many_changes_are_no_small_change() -> None:
    residents = [busy(f"v{at}", "h1", 1.5, "0:0-1|1:0-1") for at in range(10)]
    assert ask(cloud([host("h1", pcpus=32)], residents), busy("new", None, 0.5)).tuned == ()


def test_the_same_over_the_wire() -> None:
    request = PlacementRequest(busy("new", None, 0.5), tune=True, commands=True)
    answer = recommend(cloud([host("h1", pcpus=8)], PINNED), CONTEXT, request)
    reported = codec.answer_values(answer)
    read = recommendation_from_json(reported, request)
    assert codec.answer_values(read) == reported
    assert [step.instance for step in read.tuned[0].tuning] == [step.instance for step in answer.tuned[0].tuning]


@given(st.integers(0, 2**31))
@settings(max_examples=examples(40), deadline=None)
def test_no_resident_noticeably_loses_and_no_limit_breaks_by_what_is_offered(seed: int) -> None:
    random = np.random.default_rng(seed)
    pins = ["", "0:0|1:0", "0:0-1|1:0-1", "0:2-3|1:2-3"]
    residents = [
        busy(
            f"v{at}", "h1", float(random.uniform(0.2, 1.6)), str(random.choice(pins)),
            min_throughput_ratio=0.8 if random.random() < 0.3 else None,
            weight=int(random.choice([64, 256, 1024])),
        )
        for at in range(int(random.integers(1, 5)))
    ]  # fmt: skip
    hosts = [host("h1", kind=str(random.choice(["kvm", "xen", "lxc"])), pcpus=int(random.choice([4, 6])))]
    new_vm = busy("new", None, float(random.uniform(0.2, 1.5)))
    for offered in ask(cloud(hosts, residents), new_vm).tuned:
        assert 0 < len(offered.tuning) <= 4
        then = kept(offered)
        untuned = kept(anew(hosts, residents, new_vm, "h1"))
        for one in offered.neighbours:
            assert one.before is not None
            assert then[one.instance] >= min(one.before.expected, untuned[one.instance]) - 0.05 - 1e-6
            limit = next(each.min_throughput_ratio for each in residents if each.id == one.instance)
            if limit is not None and one.before.expected >= limit:
                assert then[one.instance] >= limit - 1e-6
