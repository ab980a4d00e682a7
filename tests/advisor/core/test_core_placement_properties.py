"""What must hold of every answer, on clouds made at random."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from advisor.domain import Candidate, Effect, Host, Instance, IsolationSettings, PlacementRequest, Recommendation, Scene
from advisor.placement.decision import predict_scene
from advisor.rounding import SLACK
from advisor.scheduling.scoring import EQUAL
from advisor.validation import misfit
from models.physics.prior import PriorPredictor
from profiler.observed import NetworkSettings
from tests.advisor.core.core_clouds import NOW, WORKLOADS, ask, cloud, host, request, vm
from tests.advisor.core.isolation_hosts import looser
from tests.examples import examples

NAMES = [*(workload.name for workload in WORKLOADS), None]
ALL = 100  # candidates: more than there are hosts
MOST_RISE = 0.08  # of 1 / latency by one neighbour more, as of a share of CPU time (decision 70)


@dataclass(frozen=True)
class Case:
    """A cloud and a question to it."""

    hosts: tuple[Host, ...]
    instances: tuple[Instance, ...]
    pending: tuple[Instance, ...]
    question: PlacementRequest
    ages: dict[str, float | None]

    def answer(self) -> Recommendation:
        return ask(cloud(self.hosts, self.instances, pending=self.pending, age_s=self.ages), self.question)


@st.composite
def some_hosts(draw: st.DrawFn) -> tuple[Host, ...]:
    found = []
    for at in range(draw(st.integers(0, 4))):
        pcpus = draw(st.integers(1, 4))
        found.append(
            host(
                f"h{at}",
                kind=draw(st.sampled_from(["xen", "kvm", "lxc"])),
                pcpus=pcpus,
                memory_mb=draw(st.sampled_from([1024.0, 4096.0])),
                cpu_overcommit=draw(st.sampled_from([1.0, 4.0])),
                driver_cpus=tuple(sorted(draw(st.sets(st.integers(0, pcpus - 1), max_size=1)))),
                labels=draw(st.sampled_from([{}, {"zone": "a"}])),
                enabled=draw(st.sampled_from([True, True, True, False])),
                disk_gb=draw(st.sampled_from([None, 50.0])),
            )
        )
    return tuple(found)


@st.composite
def an_instance(draw: st.DrawFn, name: str, hosts: Sequence[Host], workloads: Sequence[str | None] = NAMES) -> Instance:
    there = draw(st.sampled_from([*hosts, None])) if hosts else None
    pcpus = there.pcpus if there else 4
    vcpus = draw(st.integers(1, 2))
    pins = draw(st.none() | st.lists(st.integers(0, pcpus - 1), min_size=vcpus, max_size=vcpus))
    return vm(
        name,
        draw(st.sampled_from(workloads)),
        on=there.id if there else None,
        vcpus=vcpus,
        memory_mb=draw(st.sampled_from([256.0, 1024.0])),
        disk_gb=draw(st.sampled_from([0.0, 30.0])),
        pins="|".join(f"{at}:{cpu}" for at, cpu in enumerate(pins)) if pins else "",
        min_throughput_ratio=draw(st.sampled_from([None, None, 0.3, 0.7, 0.95])),
        max_latency_ratio=draw(st.sampled_from([None, None, None, 1.5, 4.0])),
        max_time_short=draw(st.sampled_from([None, None, None, 0.01, 0.3])),
        cap_percent=draw(st.sampled_from([None, None, 60.0])),
        network=draw(st.sampled_from([None, None, NetworkSettings("shared", 100.0, 500.0)])),
    )


@st.composite
def cases(draw: st.DrawFn, /, workloads: Sequence[str | None] = NAMES, **fixed: Any) -> Case:
    hosts = draw(some_hosts())
    instances = tuple(draw(an_instance(f"i{at}", hosts, workloads)) for at in range(draw(st.integers(0, 6))))
    pending = tuple(draw(an_instance(f"p{at}", hosts, workloads)) for at in range(draw(st.integers(0, 1))))
    ids = [one.id for one in instances]
    mine = replace(draw(an_instance(draw(st.sampled_from(["n", *ids])), hosts, workloads)), host=None)
    names = [one.id for one in hosts] + ["ghost"]
    some = st.lists(st.sampled_from(ids), max_size=2, unique=True).map(tuple) if ids else st.just(())
    more = {
        "labels": draw(st.sampled_from([{}, {}, {"zone": "a"}])),
        "exclude": draw(st.lists(st.sampled_from(names), max_size=1).map(tuple)),
        "affinity": draw(st.one_of(st.just(()), st.just(()), some)),
        "anti_affinity": draw(some),
        "kind": draw(st.sampled_from([None, None, "kvm"])),
        "allow_stale": draw(st.booleans()),
        "hosts": draw(st.none() | st.none() | st.lists(st.sampled_from(names), max_size=3).map(tuple)),
        "objective": draw(st.sampled_from(["worst", "total", "limits", "pack"])),
        "limit": draw(st.sampled_from([ALL, ALL, 5, 1])),
    }
    ages = {one.id: draw(st.sampled_from([0.0, 0.0, 0.0, 1e6, None])) for one in hosts}
    return Case(hosts, instances, pending, request(mine, **{**more, **fixed}), ages)


def others(case: Case, there: Host) -> list[Instance]:
    """Who is on a host beside the instance in question, from the inventory itself."""
    placed = {one.id for one in case.instances if one.host}
    all_instances = [*case.instances, *(one for one in case.pending if one.id not in placed)]
    return [one for one in all_instances if one.host == there.id and one.id != case.question.instance.id]


def broken(effect: Effect, instance: Instance) -> set[str]:
    """Which limits of an instance are not kept."""
    short = effect.cpu.short if effect.cpu else 0.0
    least, most, longest = instance.min_throughput_ratio, instance.max_latency_ratio, instance.max_time_short
    return {
        name
        for name, hit in {
            "throughput": least is not None and effect.throughput_ratio.expected < least - SLACK,
            "latency": most is not None and effect.latency_ratio.expected > most + SLACK,
            "time short": longest is not None and short > longest + SLACK,
        }.items()
        if hit
    }


def satisfied(case: Case, found: Candidate) -> bool:
    """Every constraint of the question and every limit of host and residents, checked from the inventory."""
    there = next(one for one in case.hosts if one.id == found.host)
    residents, mine, wanted = others(case, there), case.question.instance, case.question.constraints
    names = {one.id for one in residents}
    pinned = found.pinning.union if found.pinning else set()
    age = case.ages[there.id]
    after = {one.instance: one for one in found.neighbours}
    before = predict_scene(Scene(there, tuple(residents)), PriorPredictor(), workloads=WORKLOADS).effects
    now = [one.settings for one in (mine, *residents)]
    advised = [found.isolation, *(found.changes.get(one.id, one.settings) for one in residents)]
    here = as_advised(case, found)
    return all(
        [
            set(found.changes) <= names,
            not any(map(looser, now, advised)),
            misfit(here.host, here.instances) is None,
            set(here.host.driver_cpus) <= set(range(there.pcpus)),
            there.enabled,
            case.question.hosts is None or there.id in case.question.hosts,
            all(there.labels.get(key) == value for key, value in wanted.labels.items()),
            there.id not in wanted.exclude,
            set(wanted.affinity) <= names,
            not set(wanted.anti_affinity) & names,
            wanted.kind in {None, there.kind},
            wanted.allow_stale or (age is not None and age <= 600),
            mine.vcpus <= there.pcpus,
            mine.vcpus + sum(one.vcpus for one in residents) <= there.pcpus * there.cpu_overcommit,
            mine.memory_mb + sum(one.memory_mb for one in residents) <= there.memory_mb,
            there.disk_gb is None or mine.disk_gb + sum(one.disk_gb for one in residents) <= there.disk_gb,
            all(cpu < there.pcpus for cpu in pinned),
            mine.settings.pinning in {None, found.pinning},
            set(after) == names,
            not broken(found.new_vm, mine),
            all(broken(after[one.id], one) <= broken(was, one) for one, was in zip(residents, before, strict=True)),
        ]
    )


def as_advised(case: Case, found: Candidate, *more: Instance) -> Scene:
    """The host of a candidate as it would be: all under the advised settings, and the driver domain moved."""
    there = next(one for one in case.hosts if one.id == found.host)
    if found.mitigation and found.mitigation[-1].driver_cpus is not None:
        there = replace(there, driver_cpus=found.mitigation[-1].driver_cpus)
    mine = replace(case.question.instance, settings=found.isolation)
    changed = [replace(one, settings=found.changes.get(one.id, one.settings)) for one in others(case, there)]
    return Scene(there, (*changed, mine, *more))


@settings(max_examples=examples(120), deadline=None)
@given(cases(), st.data())
def test_every_answer_keeps_what_answers_promise(case: Case, data: st.DataObject) -> None:
    answer = case.answer()
    for found in answer.candidates:
        assert satisfied(case, found)
        numbers_are_inside_their_intervals(found)
        what_is_promised_is_what_a_scene_with_the_advised_settings_predicts(case, found)
        a_figure_that_speaks_for_the_other_host_is_reported_as_such(found)
    if case.question.limit == ALL:
        every_host_in_question_is_answered_once(case, answer)
        if answer.candidates:
            what_is_said_of_a_host_depends_on_no_other(case, data.draw(st.sampled_from(answer.candidates)))
    assert in_another_order(case, data).answer() == answer


def in_another_order(case: Case, data: st.DataObject) -> Case:
    return replace(
        case,
        hosts=tuple(data.draw(st.permutations(case.hosts))),
        instances=tuple(data.draw(st.permutations(case.instances))),
        pending=tuple(data.draw(st.permutations(case.pending))),
    )


def every_host_in_question_is_answered_once(case: Case, answer: Recommendation) -> None:
    in_question = {one.id for one in case.hosts} if case.question.hosts is None else set(case.question.hosts)
    answered = [one.host for one in answer.candidates] + [one.host for one in answer.rejected]
    assert sorted(answered) == sorted(in_question)
    assert [one.rank for one in answer.candidates] == list(range(1, len(answer.candidates) + 1))
    scores = [one.score for one in answer.candidates]  # of nearly equal ones other things decide
    assert all(later <= score + EQUAL + 1e-9 for score, later in pairwise(scores))


def numbers_are_inside_their_intervals(found: Candidate) -> None:
    assert np.isfinite([found.score, found.combined_score]).all()
    for effect in (found.new_vm, *found.neighbours):
        for band in (effect.throughput_ratio, effect.latency_ratio, *([effect.before] if effect.before else [])):
            assert 0 < band.lower <= band.expected <= band.upper < np.inf
    ratios = [effect.throughput_ratio.expected for effect in (found.new_vm, *found.neighbours)]
    assert found.combined_score == pytest.approx(sum(ratios))


def what_is_promised_is_what_a_scene_with_the_advised_settings_predicts(case: Case, found: Candidate) -> None:
    scene = as_advised(case, found)
    said = {one.instance: one for one in predict_scene(scene, PriorPredictor(), workloads=WORKLOADS).effects}
    for effect in (found.new_vm, *found.neighbours):
        ratio = said[effect.instance].throughput_ratio
        expected, lower = ratio.expected, ratio.lower
        if effect.before and not found.mitigation:  # a new VM helps no instance
            expected, lower = min(expected, effect.before.expected), min(lower, effect.before.lower)
        assert effect.throughput_ratio.expected == pytest.approx(expected, rel=1e-4)
        assert effect.throughput_ratio.lower == pytest.approx(lower, rel=1e-4)


def what_is_said_of_a_host_depends_on_no_other(case: Case, found: Candidate) -> None:
    (same,) = replace(case, question=replace(case.question, hosts=(found.host,))).answer().candidates
    assert same.new_vm.throughput_ratio.expected == pytest.approx(found.new_vm.throughput_ratio.expected)
    assert same.score == pytest.approx(found.score)
    assert (same.pinning, same.isolation) == (found.pinning, found.isolation)


def a_figure_that_speaks_for_the_other_host_is_reported_as_such(candidate: Candidate) -> None:
    for reason in candidate.reasons:
        if reason.kind != "comparison" or "though" in reason.text:
            continue
        if waited := re.search(r"waits × ([\d.]+) there, and × ([\d.]+) on ", reason.text):
            assert float(waited[1]) < float(waited[2])
        if ran := re.search(r"runs at (\d+) % of .*, and every instance on \S+ at (\d+) % or more", reason.text):
            assert int(ran[1]) < int(ran[2])


@st.composite
def tight(draw: st.DrawFn, workloads: Sequence[str | None] = NAMES) -> Case:
    """One or two crowded hosts and a new VM with a limit, so that the isolation ladder is climbed on most."""
    hosts, instances = [], []
    for at in range(draw(st.integers(1, 2))):
        pcpus = draw(st.integers(1, 2))
        kind, driver = draw(st.sampled_from(["xen", "kvm", "lxc"])), draw(st.sampled_from([(), (0,)]))
        there = host(f"h{at}", kind=kind, pcpus=pcpus, driver_cpus=driver, cpu_overcommit=9.0)
        hosts.append(there)
        count = draw(st.integers(1, 3))
        instances += [draw(_on(there, f"r{at}{number}", workloads)) for number in range(count)]
    mine = vm("n", draw(st.sampled_from(workloads)), min_throughput_ratio=draw(st.sampled_from([0.4, 0.55, 0.7, 0.9])))
    ages: dict[str, float | None] = dict.fromkeys((one.id for one in hosts), 0.0)
    return Case(tuple(hosts), tuple(instances), (), request(mine, explain=False), ages)


@st.composite
def _on(draw: st.DrawFn, there: Host, name: str, workloads: Sequence[str | None]) -> Instance:
    found = replace(draw(an_instance(name, [there], workloads)), host=there.id)
    return found if misfit(there, [found]) is None else replace(found, settings=IsolationSettings())


@st.composite
def mendable(draw: st.DrawFn) -> Case:
    """A crowded host and one on which a busy resident that no limit protects must make way for the new VM."""
    case = draw(tight())
    first, mine = case.hosts[0], case.question.instance
    there = host("m", kind=draw(st.sampled_from(["xen", "kvm", "lxc"])), pcpus=1, cpu_overcommit=9.0)
    mine = replace(mine, workload="spin", min_throughput_ratio=draw(st.sampled_from([0.55, 0.7, 0.9])))
    return replace(
        case,
        hosts=(first, there),
        instances=(*(one for one in case.instances if one.host == first.id), vm("busy", "spin", on="m")),
        question=replace(case.question, instance=mine),
        ages={first.id: 0.0, there.id: 0.0},
    )


def test_a_mended_candidate_satisfies_every_constraint_whatever_the_order_of_hosts_and_neighbours() -> None:
    mended: list[bool] = []

    @settings(max_examples=examples(40), deadline=None)
    @given(mendable(), st.data())
    def check(case: Case, data: st.DataObject) -> None:
        answer = case.answer()
        mended.append(any(found.mitigation for found in answer.candidates))
        assert all(satisfied(case, found) for found in answer.candidates)
        assert in_another_order(case, data).answer() == answer

    check()
    assert sum(mended) > len(mended) / 2, "the cases are mended too seldom to say something"


def test_more_pressure_improves_no_vm_under_the_settings_that_a_candidate_ends_with() -> None:
    """On CPUs alone, as below; more pressure may call for a further step, which may give a VM more. Latency follows
    the share of CPU time, whose approximation is not exactly monotone (decision 70)."""
    rises: list[float] = []

    @settings(max_examples=examples(40), deadline=None)
    @given(tight(["spin", "calm", None]), st.data())
    def check(case: Case, data: st.DataObject) -> None:
        for found in case.answer().candidates:
            event("mended" if found.mitigation else "as it is")
            there = next(one for one in case.hosts if one.id == found.host)
            further = data.draw(_on(there, "further", ["spin", "calm", None]))
            before, after = (
                {one.instance: one for one in predict_scene(scene, PriorPredictor(), workloads=WORKLOADS).effects}
                for scene in (as_advised(case, found), as_advised(case, found, further))
            )
            for name, effect in before.items():
                assert after[name].throughput_ratio.expected <= effect.throughput_ratio.expected + 1e-4
                if there.kind != "xen":
                    rises.append(1 / after[name].latency_ratio.expected - 1 / effect.latency_ratio.expected)
                    assert rises[-1] <= MOST_RISE

    check()
    assert sum(rise > 0.01 for rise in rises) <= 1 + 0.025 * len(rises)  # few are looked at


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from(["spin", "calm", None]), min_size=1, max_size=5),
    st.sampled_from(["spin", "calm", None]),
    st.integers(1, 3),
)
def test_one_more_resident_never_helps_the_new_vm(residents: list[str | None], new_vm: str | None, pcpus: int) -> None:
    """On CPUs alone. Where several resources are shared, who slows a third one down may help (the prior's tests)."""

    def ratio(count: int) -> float:
        there = [vm(f"r{at}", workload, on="h1") for at, workload in enumerate(residents[:count])]
        one = host(pcpus=pcpus, cpu_overcommit=9.0)
        (found,) = ask(cloud([one], there), request(vm("n", new_vm, pins="0:0"))).candidates
        return found.new_vm.throughput_ratio.expected

    assert ratio(len(residents)) <= ratio(len(residents) - 1) + 1e-6


def test_the_same_question_on_the_same_snapshot_has_the_same_answer() -> None:
    snapshot = cloud([host(name) for name in "abc"], [vm("r", "web", on="a"), vm("s", on="b")])
    assert ask(snapshot) == ask(snapshot)
    assert ask(snapshot).created_at == NOW
