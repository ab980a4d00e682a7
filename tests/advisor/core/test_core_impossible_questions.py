"""Questions that no cloud can answer are refused with field and reason; what one cloud cannot do is an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.domain import IsolationSettings, Pinning
from advisor.errors import InvalidInput
from advisor.placement.requests import check_request
from tests.advisor.core.core_clouds import ask, cloud, codes, host, request, vm

CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "beside itself": ({"affinity": ("n",)}, "affinity", "n cannot stand beside itself; leave it out of affinity"),
    "beside and apart": (
        {"affinity": ("r", "s"), "anti_affinity": ("s",)}, "anti_affinity",
        "s is in affinity and in anti_affinity; keep one of them",
    ),
    "alone and beside": (
        {"instance": vm(exclusive=True), "affinity": ("r",)}, "affinity",
        "n is exclusive, and affinity places it beside r",
    ),
    "named and excluded": (
        {"hosts": ("h1", "h2"), "exclude": ("h2",)}, "exclude", "host h2 is named and excluded; keep one of them",
    ),
    "another kind": ({"kind": "vmware"}, "kind", "kind 'vmware' is none of xen, kvm, lxc"),
    "pins beyond every host": (
        {"instance": vm(pins="0:1")}, "pinning", "pinned to pCPU 5000, no host has more than 4096 pCPUs",
    ),
    "more pins than vCPUs": (
        {"instance": vm(pins="0:1|1:2")}, "pinning", "the pinning names 2 vCPUs, the instance has 1",
    ),
    "nothing to show": ({"limit": 0}, "limit", "limit 0 is outside 1-1000"),
    "too much memory": (
        {"instance": vm(memory_mb=1e300)}, "instance.memory_mb", "instance.memory_mb is 1e+300, absurdly large",
    ),
    "no number": (
        {"instance": vm(disk_gb=float("nan"))}, "instance.disk_gb", "instance.disk_gb is nan, not a finite number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_impossible_question_is_refused_with_field_and_reason(name: str) -> None:
    asked, field, message = CASES[name]
    question = request(**asked)
    if name == "pins beyond every host":
        far = replace(question.instance, settings=IsolationSettings(pinning=Pinning(((5000,),))))
        question = replace(question, instance=far)
    with pytest.raises(InvalidInput) as refused:
        check_request(question)
    assert (refused.value.field, refused.value.message) == (field, message)


def test_sizes_below_nothing_cannot_even_be_asked_about() -> None:
    for sizes in ({"memory_mb": -1.0}, {"disk_gb": -1.0}, {"vcpus": 0}, {"vcpus": 10**6}):
        with pytest.raises(ValueError, match=r"instance n: .*(negative|outside)"):
            vm(**sizes)


@pytest.mark.parametrize(
    "question",
    [
        request(affinity=("ghost",)),
        request(hosts=("nowhere", "h1"), exclude=("h2",)),
        request(anti_affinity=("n",)),
        request(vm(exclusive=True), anti_affinity=("r",)),
        request(vm(vcpus=4096, memory_mb=1e9)),
    ],
)
def test_what_only_this_cloud_cannot_do_is_an_answer_with_a_reason_for_every_host(question: Any) -> None:
    check_request(question)
    for snapshot in (cloud([]), cloud([host("h1"), host("h2")], [vm("r", on="h1")])):
        answer = ask(snapshot, question)
        there = {one.id for one in snapshot.hosts} if question.hosts is None else set(question.hosts)
        assert {one.host for one in answer.candidates} | set(codes(answer)) == there
        assert all(one.reason for one in answer.rejected)
