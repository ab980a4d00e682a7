"""Reasons: who loses by what, the comparison, what would change the order (carried out and asked again), how sure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from advisor import explanation
from advisor.domain import Host, Instance, PlacementRequest, Reason, WorkloadProfile
from advisor.explanation import CandidateArrays, explain
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import RESOURCES
from models.prediction import BandArrays, Predictor
from profiler.demand import Demand
from tests.advisor.core.core_clouds import WORKLOADS, Slower, ask, cloud, host, only, request, vm
from tests.examples import examples


def reasons(*residents: Instance, new_vm: Instance, **of_host: Any) -> tuple[Reason, ...]:
    """Why the only host of a cloud stands where it stands."""
    return only(ask(cloud([host(**of_host)], residents), request(new_vm))).reasons


def losses(*residents: Instance, new_vm: Instance, **of_host: Any) -> list[Reason]:
    return [one for one in reasons(*residents, new_vm=new_vm, **of_host) if one.kind == "loss"]


def reported(
    hosts: Sequence[Host], residents: Sequence[Instance], question: PlacementRequest, predictor: Predictor | None = None
) -> dict[str, tuple[Reason, ...]]:
    """The reasons for each host, best first."""
    return {one.host: one.reasons for one in ask(cloud(hosts, residents), question, predictor).candidates}


def of_kind(kind: str, why: Sequence[Reason]) -> list[Reason]:
    return [one for one in why if one.kind == kind]


def arrays_of(snapshot: ClusterSnapshot, question: PlacementRequest) -> CandidateArrays:
    """The candidates of the prior's answer as its explanation gets them, which solves them again to the same effect."""
    explained: list[CandidateArrays] = []

    def keep(arrays: CandidateArrays) -> tuple[tuple[Reason, ...], ...]:
        explained.append(replace(arrays, solved=None))
        reasons = explain(arrays)
        assert reasons == explain(explained[0])
        return reasons

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explanation, "explain", keep)
        ask(snapshot, question)
    return explained[0]


@pytest.mark.parametrize(
    ("of_host", "pins", "how"),
    [
        ({}, ("0:0", "0:0"), "take turns on the same CPUs"),
        ({"threads_per_core": 2}, ("0:0", "0:2"), "two threads of one core"),
        ({"cpu_mhz": 1000.0, "turbo_mhz": 4000.0}, ("0:0", "0:2"), "the clock is lower"),
        ({"cpu_mhz": 1000.0, "turbo_mhz": 4000.0, "threads_per_core": 2}, ("0:0", "0:2"), "two threads of one core"),
        (
            {"cpu_mhz": 1000.0, "turbo_mhz": 4000.0, "threads_per_core": 2, "second_thread": 1.0},
            ("0:0", "0:2"),
            "the clock is lower",
        ),
    ],
    ids=["time", "siblings", "clock", "siblings more than clock", "clock and no siblings"],
)
def test_a_loss_of_cpu_is_for_its_time_its_siblings_or_the_clock(
    of_host: dict[str, Any], pins: tuple[str, str], how: str
) -> None:
    one, other = pins
    (found,) = losses(vm("r", on="h1", pins=other), new_vm=vm(pins=one), **of_host)
    assert (found.resource, found.neighbour) == ("cpu", "r")
    assert how in found.text


@pytest.mark.parametrize(
    ("residents", "text"),
    [
        ([], "No contention is expected: it would be alone on this host."),
        ([vm("r", "calm", on="h1")], "No contention is expected: no instance uses what another one needs."),
        ([vm("r", None, on="h1")], "No contention is expected, but nothing is known of what runs in r."),
        (
            [vm("r", None, on="h1", demand={"cpu": Demand(0.1)})],
            "No contention is expected by the known demands; no profile describes what runs in r.",
        ),
        (
            [vm("b1", "bulk", on="h1"), vm("b2", "bulk", on="h1")],
            "n costs no instance throughput: b1 runs at 52 % of its uncontended speed (52 % without n).",
        ),
    ],
    ids=["alone", "no neighbour demands the same", "unknown", "demand known", "slow before"],
)
def test_where_no_instance_loses_none_is_named(residents: list[Instance], text: str) -> None:
    (found,) = losses(*residents, new_vm=vm())
    assert (found.resource, found.share, found.neighbour, found.text) == ("none", 0.0, None, text)


def test_of_two_that_want_as_much_the_new_vm_is_named_for_it_is_what_changes() -> None:
    lost = losses(vm("a", on="h1"), vm("b", on="h1"), new_vm=vm("n", weight=1024), pcpus=1)
    assert lost[0].text.startswith("a runs at ")
    assert lost[0].neighbour == "n"


def test_a_latency_instance_that_waits_is_named_where_no_throughput_is_lost() -> None:
    shown = arrays_of(cloud([host()], [vm("r", "web", on="h1", service="latency", load=0.1)]), request())
    assert "no instance uses" in explain(shown)[0][0].text
    cases = (
        (3.0, "r takes 3.00 times as long to answer as alone (1.50-6.00)."),
        (6.0, "r takes 6.00 times as long to answer as alone (3.00 or more: how much more is not known)."),
        (1.05, "no instance uses"),
    )
    for factor, words in cases:
        band = BandArrays(*(np.full_like(shown.before, factor * edge) for edge in (1.0, 0.5, 2.0)))
        late = replace(shown, prediction=replace(shown.prediction, latency=band))
        assert words in explain(late)[0][0].text
        assert ("No contention" in explain(late)[0][0].text) == (factor < 1.1)


def test_a_wait_is_reported_beside_a_loss() -> None:
    lost = losses(vm("r", "web", on="h1", service="latency", pins="0:0"), new_vm=vm(pins="0:0"), pcpus=2)
    assert "of its uncontended speed" in lost[0].text
    assert re.search(r"\. r takes \d+\.\d\d times as long to answer as alone \(\d", lost[0].text)


def test_the_neighbour_that_wants_the_same_cpus_most_is_named() -> None:
    lost = losses(vm("r1", "calm", on="h1"), vm("r2", on="h1"), vm("r3", "web", on="h1"), new_vm=vm(), pcpus=1)
    assert lost[0].resource == "cpu"
    assert lost[0].neighbour == "r2"
    assert "r2 asks for 1.00 CPUs of it" in lost[0].text


def test_a_neighbour_on_other_cpus_is_not_named_for_the_cpu() -> None:
    lost = losses(
        vm("far", on="h1", vcpus=3, pins="0:1|1:2|2:3", workload=None),
        vm("near", on="h1", pins="0:0"),
        new_vm=vm(pins="0:0"),
    )
    assert [(one.resource, one.neighbour) for one in lost] == [("cpu", "near")]


@pytest.mark.parametrize(
    ("resource", "there", "new_vm", "neighbour", "finding"),
    [
        ("nic", ("bulk", "calm"), vm("n", "bulk"), "r0", "N6"),
        ("nic", ("bulk", "calm"), vm("n", "bulk", service="latency"), "r0", "L9"),
        ("disk", ("disk",), vm("n", "disk"), "r0", "L6"),
        ("memory", ("copy", "disk"), vm("n", "copy"), "r0", ""),
    ],
)
def test_link_disk_and_memory_are_named_with_who_fills_them(
    resource: str, there: Sequence[str], new_vm: Instance, neighbour: str, finding: str
) -> None:
    lost = losses(*[vm(f"r{at}", one, on="h1") for at, one in enumerate(there)], new_vm=new_vm)
    assert [(one.resource, one.neighbour, one.finding) for one in lost] == [(resource, neighbour, finding)]
    assert f"({finding})" in lost[0].text or not finding


@pytest.mark.parametrize(("kind", "finding"), [("xen", "N9"), ("kvm", "C4")])
def test_the_driver_domain_is_named_where_it_is_what_is_shared(kind: str, finding: str) -> None:
    lost = losses(
        *[vm(f"r{at}", "web", on="h1", pins=f"0:{at}") for at in (1, 2)],
        new_vm=vm("n", "web", pins="0:3"),
        driver_cpus=(0,),
        kind=kind,
    )
    assert [(one.resource, one.finding) for one in lost] == [("driver_domain", finding)]
    assert lost[0].neighbour in {"r1", "r2"}


def test_two_that_exchange_pages_on_one_cpu_are_the_papers_cpu_bound_pair() -> None:
    one_cpu = vm("r", "web", on="h1", pins="0:0")
    lost = losses(one_cpu, new_vm=vm("n", "web", pins="0:0"), pcpus=2, driver_cpus=(1,))
    assert (lost[0].resource, lost[0].finding) == ("cpu", "N5")


def test_a_packet_now_and_then_is_not_the_papers_cpu_bound_pair() -> None:
    quiet = WorkloadProfile("quiet", {"cpu": 100.0, "block": 0.0, "pages_exchanged": 0.03, "driver_domain.cpu": 0.001})
    there = [vm("r", "quiet", on="h1", pins="0:0")]
    snapshot = cloud([host(pcpus=2, driver_cpus=(1,))], there, workloads=(*WORKLOADS, quiet))
    first = only(ask(snapshot, request(vm("n", "web", pins="0:0")))).reasons[0]
    assert (first.resource, first.finding) == ("cpu", "L8")


def test_a_resident_that_loses_most_is_the_one_spoken_of() -> None:
    lost = losses(vm("r", "calm", on="h1", weight=1), vm("s", on="h1"), new_vm=vm("n", weight=1024), pcpus=1)
    assert lost[0].neighbour == "n"
    assert re.match(r"r runs at \d+ % of its uncontended speed \(\d+ % without n\)", lost[0].text)


def test_a_loss_without_neighbours_names_no_antagonist() -> None:
    (reason,) = reasons(new_vm=vm(cap_percent=50.0))
    assert (reason.resource, reason.share, reason.neighbour) == ("cpu", 1.0, None)
    assert reason.text == "n runs at 50 % of its uncontended speed, limited by the CPU: no neighbour competes for it."


def test_the_best_is_compared_with_the_next_one_though_it_alone_is_asked_for_and_reasons_may_be_left_out() -> None:
    snapshot = cloud([host("a", pcpus=1), host("b")], [vm("r", on="a"), vm("s", "bulk", on="b"), vm("t", on="b")])
    alone, first, bare = (
        ask(snapshot, request(vm("n", "bulk"), **more)).candidates[0].reasons
        for more in ({"limit": 1}, {"limit": 2}, {"explain": False})
    )
    assert alone == first
    assert of_kind("comparison", alone)
    assert bare == ()


def test_the_best_is_compared_with_the_next_one() -> None:
    found = reported([host("a"), host("b", pcpus=1)], [vm("r", on="b"), vm("s", on="b")], request())
    (comparison,) = of_kind("comparison", found["a"])
    assert re.match(r"a is ahead of b by 0\.\d{3}: the most affected on a is n with 100 %, on b ", comparison.text)
    assert not of_kind("comparison", found["b"])
    tie = reported([host("a"), host("b")], [], request())
    assert [one.text for one in of_kind("comparison", tie["a"])] == [
        "a and b are tied: the difference of what is expected (+0.000) lies inside the uncertainty. "
        "The scarcest resource of both would have as much free."
    ]
    assert not of_kind("comparison", tie["b"])


def test_the_fuller_host_is_said_to_be_fuller_where_hosts_are_to_be_saved() -> None:
    found = reported([host("a"), host("b")], [vm("r", "calm", on="b")], request(objective="pack"))
    assert found["b"][1].text == "b is fuller than a by 0.250 vCPUs per pCPU, and every limit is met on both."


def test_a_host_where_every_ratio_is_kept_comes_before_a_fuller_one_for_that() -> None:
    residents = [vm("r", on="b"), vm("s", "calm", on="a")]
    found = reported([host("a"), host("b", pcpus=1)], residents, request(objective="pack"))
    text = r"Every limit is met on a and not on b, where the most affected is \w with 50 %.*\."
    assert re.fullmatch(text, of_kind("comparison", found["a"])[0].text)


LINKS = [host("a", pcpus=1), host("b", nic_mbit=1000.0)]
SENDERS = [vm("r", "bulk", on="a"), vm("s", "bulk", on="b"), vm("t", "bulk", on="b")]


def test_a_link_without_limit_that_would_change_the_order_is_reported_with_the_first_and_with_its_host() -> None:
    text = (
        "If the network link of b had no limit, b would come before a: its most affected instance would run at "
        "100 % of its uncontended speed."
    )
    for why in reported(LINKS, SENDERS, request(vm("n", "bulk"))).values():
        assert text in [one.text for one in of_kind("counterfactual", why)]


TWO = [host("a", pcpus=1), host("b", pcpus=1)]
LOADED = cloud(TWO, [vm("r", "web", on="a"), vm("s", "calm", on="a"), vm("t", on="b")])


def test_an_instance_that_must_be_there_is_never_thought_away() -> None:
    shown = arrays_of(LOADED, request())
    assert [one.neighbour for one in of_kind("counterfactual", explain(shown)[1])] == ["r"]
    assert not of_kind("counterfactual", explain(replace(shown, beside=("r",)))[1])


def test_who_waits_too_long_in_any_case_speaks_against_no_counterfactual_and_who_would_begin_to_does() -> None:
    """A limit counts where it is held without the new VM, as in every other judgement."""
    for cap, said in ((4.0, ["r"]), (None, [])):  # under its own cap it waits whoever is there
        minding = vm("s", "calm", on="a", cap_percent=cap, max_latency_ratio=1.0)
        found = reported(TWO, [vm("r", "web", on="a"), minding, vm("t", on="b")], request())
        assert list(found) == ["b", "a"]
        assert [one.neighbour for one in of_kind("counterfactual", found["a"])] == said


def test_the_uncertainty_of_the_prior_names_what_would_be_measured() -> None:
    found = reasons(vm("r", "web", on="h1"), new_vm=vm(), pcpus=1)
    assert found[-1].kind == "uncertainty"
    assert re.search(r"predicts \d+-\d+ % of its uncontended speed for n; measuring spin beside web ", found[-1].text)


def test_an_unknown_workload_is_said_to_be_unknown() -> None:
    found = reasons(vm("r", on="h1"), new_vm=vm("n", None), pcpus=1)
    assert found[-1].text.startswith("No profile describes what n runs")


@pytest.mark.parametrize(("outside", "words"), [(False, "n is at 25-64 %"), (True, "Nothing like n here was measured")])
def test_a_learned_answer_says_whether_it_was_learned_there(outside: bool, words: str) -> None:
    why = only(ask(cloud([host(pcpus=1)], [vm("r", on="h1")]), request(), Slower(outside=outside))).reasons
    assert why[0].text.startswith("n runs at 45 % of its uncontended speed, limited by the CPU")
    assert words in why[-1].text
    assert "measuring spin beside spin would narrow it" in why[-1].text


def test_what_the_prior_cannot_tell_is_said_to_be_unknown() -> None:
    first = only(ask(cloud([host()], [vm("r", "calm", on="h1")]), request(), Slower())).reasons[0]
    assert first.resource == "unknown"
    assert first.text.startswith("n runs at 90 % of its uncontended speed; the analytic model does not attribute ")


def test_without_a_limit_a_learned_figure_moves_by_as_much_as_the_prior_moves() -> None:
    found = reported(LINKS, SENDERS, request(vm("n", "bulk")), Slower())
    (link,) = [one for one in of_kind("counterfactual", found["b"]) if one.neighbour is None]
    assert link.ratio == pytest.approx(0.9)


NAMES = st.sampled_from([one.name for one in WORKLOADS] + [None])
CLOUDS = st.lists(
    st.tuples(
        st.sampled_from(["xen", "kvm", "lxc"]),
        st.integers(1, 3),
        st.lists(st.tuples(NAMES, st.sampled_from([0.3, 1.0])), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


def laid_out(drawn: list[Any]) -> tuple[list[Host], list[Instance]]:
    hosts = [host(f"h{at}", kind=kind, pcpus=pcpus, cpu_overcommit=9.0) for at, (kind, pcpus, _) in enumerate(drawn)]
    there = [
        vm(f"r{at}-{number}", workload, on=f"h{at}", load=load)
        for at, (_, _, residents) in enumerate(drawn)
        for number, (workload, load) in enumerate(residents)
    ]
    return hosts, there


@settings(max_examples=examples(60), deadline=None)
@given(CLOUDS, NAMES, st.sampled_from(["worst", "total", "limits", "pack"]))
def test_reasons_are_few_and_their_numbers_are_the_answers(drawn: list[Any], new_vm: str | None, aim: Any) -> None:
    hosts, there = laid_out(drawn)
    for candidate in ask(cloud(hosts, there), request(vm("n", new_vm), objective=aim)).candidates:
        why = candidate.reasons
        effects = {one.instance: one for one in (candidate.new_vm, *candidate.neighbours)}
        assert 1 <= len(why) <= 5
        lost = of_kind("loss", why)
        assert sum(one.share for one in lost) <= 1.002
        assert [one.share for one in lost] == sorted((one.share for one in lost), reverse=True)
        assert {one.resource for one in lost} <= {*RESOURCES, "none", "unknown"}
        assert len({one.resource for one in lost}) == len(lost)
        for one in why:
            assert one.text.endswith(".")
            assert one.neighbour in {None, *effects} or one.kind == "counterfactual"
            runs, lost_in = r"(\S+) runs at (\d+) % of its uncontended speed", one.text if one.kind == "loss" else ""
            for name, ratio in re.findall(runs, lost_in):
                assert f"{100 * effects[name].throughput_ratio.expected:.0f}" == ratio
            for name, _, had in re.findall(rf"{runs} \((\d+) % without n\)", lost_in):
                before = effects[name].before
                assert before and f"{100 * before.expected:.0f}" == had
            for low, high, name in re.findall(
                r"predicts (\d+)-(\d+) % of its uncontended speed for (\S+?)[;.]", one.text
            ):
                band = effects[name].throughput_ratio
                assert (f"{100 * band.lower:.0f}", f"{100 * band.upper:.0f}") == (low, high)


CROWDED = st.lists(
    st.tuples(
        st.sampled_from(["xen", "kvm", "lxc"]),
        st.integers(1, 2),
        st.lists(st.tuples(st.sampled_from(["spin", "web", "bulk", "copy"]), st.just(1.0)), min_size=1, max_size=3),
    ),
    min_size=2,
    max_size=3,
)


@settings(max_examples=examples(60), deadline=None)
@given(CROWDED, NAMES, st.sampled_from(["worst", "total", "limits", "pack"]))
def test_a_counterfactual_that_is_carried_out_gives_the_order_it_says(
    drawn: list[Any], new_vm: str | None, aim: Any
) -> None:
    hosts, there = laid_out(drawn)
    question = request(vm("n", new_vm), objective=aim)
    first, *later = ask(cloud(hosts, there), question).candidates
    found = [
        (candidate.host, one)
        for candidate in later
        for one in of_kind("counterfactual", candidate.reasons)
        if one.neighbour or one.resource == "nic"
    ]
    for name, one in found:
        event("neighbour" if one.neighbour else "link")
        left = [resident for resident in there if resident.id != one.neighbour]
        changed = [replace(each, nic_mbit=None) if each.id == name and not one.neighbour else each for each in hosts]
        after = ask(cloud(changed, left), question)
        assert after.candidates[0].host == name, one.text
        assert first.host in one.text


def test_a_disk_without_limit_is_as_if_unused() -> None:
    hosts = [host("a", pcpus=1), host("b")]
    residents = [vm("r", "disk", on="a"), vm("s", "disk", on="b"), vm("t", "disk", on="b")]
    question = request(vm("n", "disk"))
    by_host = reported(hosts, residents, question)
    assert list(by_host) == ["a", "b"]
    (found,) = [one for one in of_kind("counterfactual", by_host["b"]) if one.neighbour is None]
    calm = tuple(replace(one, metrics={**one.metrics, "disk_mb_s": 0.0}) for one in WORKLOADS)
    alone = ask(cloud([hosts[1]], [one for one in residents if one.host == "b"], workloads=calm), question)
    effects = (only(alone).new_vm, *only(alone).neighbours)
    assert found.ratio == pytest.approx(min(one.throughput_ratio.expected for one in effects))


def test_a_loss_under_settings_that_the_ladder_gives_says_so() -> None:
    shown = arrays_of(cloud([host(pcpus=1)], [vm("r", on="h1")]), request())
    weight = shown.scenes.weight.copy()
    weight[0, -1] *= 4
    heavier = replace(shown, scenes=replace(shown.scenes, weight=weight))
    heavier = replace(heavier, prediction=shown.predictor.predict(heavier.scenes))
    assert "under the settings" not in explain(shown)[0][0].text
    text = explain(heavier)[0][0].text
    assert text.startswith(
        "r runs at 20 % of its uncontended speed (100 % without n), limited by the CPU: n asks for 1.00 CPUs of it "
    )
    assert "of it under the settings that it gets here, and both take turns" in text


def test_settings_of_the_ladder_are_not_thought_away() -> None:
    shown = arrays_of(LOADED, request())
    capped = shown.scenes.cap.copy()
    capped[1, -1] = 0.5
    assert of_kind("counterfactual", explain(shown)[1])
    assert not of_kind("counterfactual", explain(replace(shown, scenes=replace(shown.scenes, cap=capped)))[1])
