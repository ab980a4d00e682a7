"""The form for plans: what is typed becomes one question, and a mistake stands beside its field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from advisor.domain import Growth, Host, Instance, Plan, PlanRequest, PlanStep, WhatIf
from advisor.errors import InvalidInput, NotFound
from api.web import plans
from api.web.plan_form import FIELDS, KINDS, PlanForm

H1 = Host("h1", "xen", 4, 8192, numa=((0, 1), (2, 3)))
NEW = Instance("new-1", vcpus=2, memory_mb=2048)
ASKED: dict[str, Any] = {"commands": False, "time_limit_s": 30.0}


def host(name: str) -> Host:
    if name != "h1":
        raise NotFound(f"there is no host {name}")
    return H1


def read(**typed: str) -> PlanForm:
    return PlanForm.read(typed, sent=True)


@pytest.mark.parametrize(
    ("typed", "request_"),
    [
        ({}, PlanRequest("admit", (NEW,), **ASKED)),
        (
            {
                "count_1": "2",
                "workload_1": "Web, 1 kB",
                "ratio_1": "0,9",
                "count_2": "1",
                "vcpus_2": "4",
                "commands": "yes",
            },
            PlanRequest(
                "admit",
                (
                    *(Instance(f"new-{n}", 2, 2048, workload="Web, 1 kB", min_throughput_ratio=0.9) for n in (1, 2)),
                    Instance("new-2-1", 4, 2048),
                ),
                commands=True,
                time_limit_s=30.0,
            ),
        ),
        (
            {"kind": "evacuate", "empty": "h1, h2\nh1", "max_moves": "7", "seed": "3", "plan_for": "p95"},
            PlanRequest("evacuate", empty=("h1", "h2"), max_moves=7, seed=3, plan_for="p95", **ASKED),
        ),
        (
            {"kind": "rebalance", "movable": "a b", "keep_ratio": "", "move_gain": "0"},
            PlanRequest("rebalance", movable=("a", "b"), move_gain=0.0, **ASKED),
        ),
        (
            {"kind": "capacity", "instances_per_month": "3", "months": "6"},
            PlanRequest("capacity", (NEW,), growth=Growth(3.0, 0.0, 6), **ASKED),
        ),
        ({"kind": "capacity"}, PlanRequest("capacity", (NEW,), **ASKED)),
        (
            {"kind": "what_if", "like": "h1", "add": "1", "change": "h1", "pcpus": "8", "then": "capacity"},
            PlanRequest(
                "what_if",
                (NEW,),
                what_if=WhatIf((Host("h1-more-1", "xen", 4, 8192, numa=H1.numa), Host("h1", "xen", 8, 8192))),
                then="capacity",
                **ASKED,
            ),
        ),
    ],
)
def test_what_is_typed_is_what_is_asked(typed: Mapping[str, str], request_: PlanRequest) -> None:
    form = read(**typed)
    assert (form.request(host), form.errors) == (request_, {})


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ({"count_1": "0"}, {"count_1": "is empty or 0 in every row: give the number"}),
        ({"count_1": "1001"}, {"count_1": "is not a whole number from 0 to 1000"}),
        ({"vcpus_1": "2.5"}, {"vcpus_1": "is not a whole number from 1 to 4096"}),
        ({"workload_1": "a\0b"}, {"workload_1": "is not 1–255 characters without control characters"}),
        ({"prefix": "x" * 255}, {"prefix": "xxxx"}),
        ({"kind": "evacuate"}, {"empty": "names nothing"}),
        ({"kind": "evacuate", "empty": "h1 h/2"}, {"empty": "'h/2' is not 1–255 letters"}),
        ({"kind": "rebalance", "keep_ratio": "nan", "seed": "-1"}, {"keep_ratio": "is not a number", "seed": "is not"}),
        ({"kind": "evacuate", "empty": "h1 " * 7000 + "h1"}, {"empty": "is longer than 20,000 characters"}),
        ({"objective": "best"}, {"objective": "'best' is none of worst, total, limits, pack"}),
        ({"kind": "what_if", "then": "evacuate"}, {"then": "is none of capacity, admit, rebalance, consolidate"}),
        ({"kind": "what_if", "like": "h9"}, {"like": "there is no host h9"}),
        ({"kind": "what_if", "change": "h1", "pcpus": "99999"}, {"pcpus": "is not a whole number from 1 to 4096"}),
    ],
)
def test_a_mistake_stands_beside_its_field(typed: Mapping[str, str], wrong: Mapping[str, str]) -> None:
    form = read(**typed)
    assert form.request(host) is None
    assert set(form.errors) == set(wrong)
    assert all(words in form.errors[name] for name, words in wrong.items())


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"kind": "evict"}, "kind 'evict' is none of admit, rebalance,"),
        ({"kind": "admit", "empty": "h1"}, "a plan of kind admit has no field 'empty'"),
    ],
)
def test_what_no_form_of_ours_sends_is_refused_whole(typed: Mapping[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read(**typed)


def test_what_the_advisor_refuses_stands_beside_the_field_it_means() -> None:
    form = read(kind="what_if")
    form.blame(InvalidInput("h1 is put twice", field="what_if.hosts"))
    form.blame(InvalidInput("the cloud is empty", field="inventory"))
    assert form.errors == {"like": "h1 is put twice", "": "the cloud is empty"}


def test_every_field_of_every_kind_is_known_and_its_default_is_right() -> None:
    for kind, (_, _, sections) in KINDS.items():
        form = PlanForm.read({"kind": kind, "empty": "h1"}, sent=False)
        assert {name for _, names in sections for name in names} <= set(FIELDS)
        assert form.request(host) is not None, form.errors


def test_two_plans_differ_where_an_instance_goes_elsewhere() -> None:
    a, b = (_plan([step]) for step in (_move("x", "h2"), _move("x", "h3")))
    assert plans.plan_differences(a, b) == [("x", "to h2", "to h3")]
    assert plans.plan_differences(a, a) == []
    assert plans.plan_differences(a, _plan([])) == [("x", "to h2", "stays")]


def _move(name: str, target: str) -> PlanStep:
    return PlanStep(name, target, action="move", source="h1")


def _plan(steps: list[PlanStep]) -> Plan:
    return Plan("p", datetime(2026, 1, 31, tzinfo=UTC), "analytic", "analytic", tuple(steps), {}, {})
