"""Reasons: shares that add up, the resource that costs most first, and the neighbour that presses."""

from __future__ import annotations

from typing import Any

import pytest
from core_clouds import ask, cloud, host, only, request, vm
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor import explanation
from advisor.domain import Instance, Reason
from models.prior import RESOURCES


def reasons(*residents: Instance, newcomer: Instance, **of_host: Any) -> tuple[Reason, ...]:
    """Why the only host of a cloud stands where it stands."""
    return only(ask(cloud([host(**of_host)], residents), request(newcomer))).reasons


def test_alone_there_is_nothing_to_explain() -> None:
    (reason,) = reasons(newcomer=vm())
    assert (reason.resource, reason.share, reason.neighbour) == ("none", 0.0, None)
    assert "alone on this host" in reason.text


def test_without_contention_nobody_is_named() -> None:
    (reason,) = reasons(vm("r", "calm", on="h1"), newcomer=vm())
    assert (reason.resource, reason.neighbour) == ("none", None)
    assert "nobody wants what another one needs" in reason.text


def test_the_neighbour_that_wants_the_same_cpus_most_is_named() -> None:
    found = reasons(vm("r1", "calm", on="h1"), vm("r2", on="h1"), vm("r3", "web", on="h1"), newcomer=vm(), pcpus=1)
    assert found[0].resource == "cpu"
    assert found[0].neighbour == "r2"
    assert "most of all with r2" in found[0].text


def test_a_neighbour_on_other_cpus_is_not_named_for_the_cpu() -> None:
    found = reasons(
        vm("far", on="h1", vcpus=3, pins="0:1|1:2|2:3", workload=None),
        vm("near", on="h1", pins="0:0"),
        newcomer=vm(pins="0:0"),
    )
    assert [(one.resource, one.neighbour) for one in found] == [("cpu", "near")]


def test_link_disk_and_memory_are_named_with_who_fills_them() -> None:
    found = reasons(vm("b", "bulk", on="h1"), vm("c", "calm", on="h1"), newcomer=vm("n", "bulk"))
    assert [(one.resource, one.neighbour) for one in found] == [("nic", "b")]
    found = reasons(vm("d", "disk", on="h1"), newcomer=vm("n", "disk"))
    assert [(one.resource, one.neighbour) for one in found] == [("disk", "d")]
    found = reasons(vm("m", "copy", on="h1"), vm("d", "disk", on="h1"), newcomer=vm("n", "copy"))
    assert [(one.resource, one.neighbour) for one in found] == [("memory", "m")]


def test_the_driver_domain_is_named_where_it_is_what_is_shared() -> None:
    found = reasons(
        *[vm(f"r{at}", "web", on="h1", pins=f"0:{at}") for at in (1, 2)],
        newcomer=vm("n", "web", pins="0:3"),
        driver_cpus=(0,),
    )
    assert [one.resource for one in found] == ["driver_domain"]
    assert found[0].neighbour == "r2"


def test_a_loss_without_neighbours_names_nobody() -> None:
    (reason,) = reasons(newcomer=vm(cap_percent=50.0))
    assert (reason.resource, reason.share, reason.neighbour) == ("cpu", 1.0, None)
    assert "50%" in reason.text


def test_reasons_are_left_out_where_they_are_not_asked_for() -> None:
    assert only(ask(cloud([host()]), request(explain=False))).reasons == ()


def test_the_best_is_compared_with_the_next_one() -> None:
    best, other = ask(cloud([host("a"), host("b", pcpus=1)], [vm("r", on="b")])).candidates
    assert best.reasons[-1].resource == other.reasons[-1].resource.replace("cpu", "comparison")
    assert best.reasons[-1].text.startswith("a is ahead of b by ")
    tie, _ = ask(cloud([host("a"), host("b")])).candidates
    assert tie.reasons[-1].text.startswith("a and b are tied")


@pytest.mark.parametrize("tie", [True, False])
def test_comparisons_are_sentences_with_both_names(tie: bool) -> None:
    text = explanation.compared("h1", "h2", 0.123, tie=tie).text
    assert text.endswith(".")
    assert "h1" in text
    assert "h2" in text


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.sampled_from(["spin", "calm", "web", "bulk", "disk", "copy", None]), max_size=4),
    st.sampled_from(["spin", "web", "bulk", "disk", None]),
    st.sampled_from(["xen", "kvm", "lxc"]),
    st.integers(1, 3),
)
def test_shares_add_up_and_only_residents_are_named(
    residents: list[str | None], newcomer: str | None, kind: str, pcpus: int
) -> None:
    there = [vm(f"r{at}", workload, on="h1") for at, workload in enumerate(residents)]
    found = reasons(*there, newcomer=vm("n", newcomer), kind=kind, pcpus=pcpus, cpu_overcommit=9.0)
    if [one.resource for one in found] != ["none"]:
        assert sum(one.share for one in found) == pytest.approx(1.0, abs=0.002)
        assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
        assert {one.resource for one in found} <= set(RESOURCES)
        assert len({one.resource for one in found}) == len(found)
    for one in found:
        assert one.neighbour in {None, *(resident.id for resident in there)}
        assert one.text.endswith(".")
