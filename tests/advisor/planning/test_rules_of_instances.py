"""Labels that are rules: which hosts an instance may be on, beside which instances, and whether a plan may move it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Instance, Plan, PlanKind, PlanRequest
from advisor.domain.rules import next_open
from advisor.errors import InvalidInput
from advisor.planning import planner
from advisor.planning.assignment.packing_problem import Aim
from advisor.planning.repair import every_violation
from advisor.prediction.active import ActivePredictor
from advisor.render.names import check_labels
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from tests.advisor.core.core_clouds import FRESH_S, NOW, ask, cloud, codes, host, hosts_of, request, vm
from tests.advisor.planning.test_assign import SMALL_CLOUD, assigned

ZONED = (host("a1", labels={"zone": "a"}), host("a2", labels={"zone": "a"}), host("b1", labels={"zone": "b"}))
LIGHT: Mapping[str, Any] = {"memory_mb": 100.0, "load": 0.05}


def planned(there: ClusterSnapshot, asked: PlanRequest) -> Plan:
    prior = ActivePredictor(PriorPredictor())
    return planner.plan(there, prior, asked, now=NOW, fresh_s=math.inf, models=lambda _: prior)


def kept(there: ClusterSnapshot, instance: Instance) -> list[str]:
    allowed, _ = filters.apply(there, request(instance), fresh_s=FRESH_S)
    return [there.hosts[at].id for at in allowed]


def test_an_instance_goes_only_to_hosts_with_the_labels_that_it_requires() -> None:
    there = cloud(ZONED)
    assert kept(there, vm(labels={"require.zone": "a"})) == ["a1", "a2"]
    assert kept(there, vm(labels={"require.zone": "c"})) == []
    assert kept(there, vm()) == ["a1", "a2", "b1"]


def test_a_question_that_asks_for_another_label_than_its_instance_requires_finds_no_host() -> None:
    mine = vm(labels={"require.zone": "a"})
    allowed, refused = filters.apply(cloud(ZONED), request(mine, labels={"zone": "b"}), fresh_s=FRESH_S)
    assert not len(allowed)
    assert {one.code for one in refused} == {"constraint.label"}


def test_a_member_of_an_affinity_group_goes_where_the_others_are() -> None:
    together: Mapping[str, Any] = {"labels": {"affinity": "g"}}
    there = cloud(ZONED, [vm("r", on="a2", **together)])
    assert kept(there, vm(**together)) == ["a2"]
    assert kept(cloud(ZONED), vm(**together)) == ["a1", "a2", "b1"]
    assert kept(there, vm(labels={"affinity": "other"})) == ["a1", "a2", "b1"]


@pytest.mark.parametrize(("members", "allowed"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_host_takes_as_many_of_a_group_as_its_rule_says(members: int, allowed: bool) -> None:
    apart = {"labels": {"anti_affinity": "g", "anti_affinity_most": "2"}, **LIGHT}
    there = cloud((host("h1"),), [vm(f"r{at}", on="h1", **apart) for at in range(members)])
    assert kept(there, vm(**apart)) == (["h1"] if allowed else [])


@pytest.mark.parametrize("odd", ["", "0", "-1", "two", "1e9", "9" * 40])
def test_a_number_of_a_group_that_is_none_is_refused_and_where_it_is_stored_counts_as_one(odd: str) -> None:
    one = vm(labels={"anti_affinity": "g", "anti_affinity_most": odd})
    assert one.anti_affinity_most == 1
    with pytest.raises(InvalidInput) as refused:
        check_labels(one)
    assert refused.value.field == "labels.anti_affinity_most"


@pytest.mark.parametrize(("said", "stays"), [("true", True), ("True", True), ("false", False), ("yes", None)])
def test_never_move_is_true_or_false_and_all_else_is_refused(said: str, stays: bool | None) -> None:
    one = vm(labels={"never_move": said})
    if stays is None:
        with pytest.raises(InvalidInput):
            check_labels(one)
    else:
        check_labels(one)
        assert one.never_moves is stays


def test_a_required_label_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidInput):
        check_labels(vm(labels={"require.": "a"}))


def test_a_question_about_an_instance_that_never_moves_offers_its_own_host_only() -> None:
    stays = vm("r1", on="a1", labels={"never_move": "true"}, **LIGHT)
    there = cloud(ZONED, [stays])
    assert kept(there, stays) == ["a1"]
    assert kept(there, vm("new", labels={"never_move": "true"}, **LIGHT)) == ["a1", "a2", "b1"]


def test_a_host_with_an_instance_that_never_moves_is_not_emptied_and_the_plan_says_so() -> None:
    stays = vm("r1", on="a1", labels={"never_move": "true"}, **LIGHT)
    there = cloud(ZONED, [stays, vm("r2", on="a1", **LIGHT)])
    found = assigned(there, "evacuate", emptied=frozenset({"a1"}))
    assert set(found.where) == {"r2"}
    assert "a1 is not emptied: r1 stays there (the label never_move)." in found.notes


@pytest.mark.parametrize("where", ["a1", "a2"])
def test_a_host_is_emptied_within_the_zone_that_its_instances_require(where: str) -> None:
    there = cloud(ZONED, [vm(f"r{at}", on=where, labels={"require.zone": "a"}, **LIGHT) for at in range(3)])
    found = assigned(there, "evacuate", emptied=frozenset({where}))
    assert set(found.where.values()) == {"a1", "a2"} - {where}


RULES = st.sampled_from(
    [
        {},
        {},
        {"require.zone": "a"},
        {"require.zone": "b"},
        {"require_any.id": "a2, b1"},
        {"require_none.zone": "b"},
        {"require_each.cpu_flags": "amx"},
        {"needs.gpu": "1"},
        {"never_move": "true"},
        {"affinity": "g"},
        {"anti_affinity": "h", "anti_affinity_most": "2"},
        {"anti_affinity": "h, k", "anti_affinity_most": "2"},
        {"move_window": "Mon 01:00-02:00"},
    ]
)
EQUIPPED = (
    replace(ZONED[0], labels={"zone": "a", "has.gpu": "2"}),
    replace(ZONED[1], labels={"zone": "a", "cpu_flags": "avx2, amx"}),
    replace(ZONED[2], labels={"zone": "b", "has.gpu": "1", "cpu_flags": "amx"}),
)


def broken(there: ClusterSnapshot) -> set[str]:
    """Ids of instances whose rules do not hold, from the definition of each."""
    where = [(at, one) for at, residents in zip(there.hosts, there.residents, strict=True) for one in residents]
    apart = Counter((at.id, group) for at, one in where for group in one.labels.get("anti_affinity", "").split(", "))
    gpus = Counter(at.id for at, one in where if "needs.gpu" in one.labels)
    together = {at.id for at, one in where if "affinity" in one.labels}
    return {
        one.id
        for at, one in where
        if at.labels["zone"] != one.labels.get("require.zone", at.labels["zone"])
        or at.id not in one.labels.get("require_any.id", at.id)
        or at.labels["zone"] == one.labels.get("require_none.zone")
        or one.labels.get("require_each.cpu_flags", "") not in at.labels.get("cpu_flags", "")
        or ("needs.gpu" in one.labels and gpus[at.id] > float(at.labels.get("has.gpu", "0")))
        or ("affinity" in one.labels and len(together) > 1)
        or any(apart[at.id, group] > 2 for group in one.labels.get("anti_affinity", "").split(", ") if group)
    }


Residents = list[tuple[str, dict[str, str], float]]
residents_of = st.lists(st.tuples(st.sampled_from(["a1", "a2", "b1"]), RULES, st.sampled_from([0.05, 1.0])), max_size=7)


def made(there: Residents) -> list[Instance]:
    return [
        vm(f"r{at}", on=on, labels=labels, load=load, memory_mb=100.0) for at, (on, labels, load) in enumerate(there)
    ]


def home_of(there: ClusterSnapshot) -> dict[str, str]:
    return {one.id: at.id for at, found in zip(there.hosts, there.residents, strict=True) for one in found}


@SMALL_CLOUD
@given(residents_of, st.sampled_from(["rebalance", "consolidate", "evacuate"]))
def test_no_plan_breaks_a_rule_that_holds(there: Residents, aim: Aim) -> None:
    residents = made(there)
    before = cloud(EQUIPPED, residents)
    after = assigned(before, aim, emptied=frozenset({"a2"} if aim == "evacuate" else ())).after
    assert broken(after) <= broken(before)
    hosts = home_of(after)
    stay = [one for one in residents if one.labels.get("never_move") == "true"]
    assert [hosts[one.id] for one in stay] == [one.host for one in stay]


@SMALL_CLOUD
@given(residents_of, st.sampled_from(["rebalance", "consolidate", "evacuate", "repair"]))
def test_no_rule_is_broken_at_any_moment_of_a_plan_or_of_its_way_back(there: Residents, kind: PlanKind) -> None:
    before = cloud(EQUIPPED, made(there))
    asked = PlanRequest(kind=kind, empty=("a2",) if kind == "evacuate" else (), keep_ratio=0.5)
    check_rules_are_kept(before, planned(before, asked))


def check_rules_are_kept(before: ClusterSnapshot, found: Plan) -> None:
    """At every moment of a plan and of its way back, by `broken`; who may never move does not."""
    assert not {step.instance for step in found.steps if step.host} & {
        name for name, one in before.names.placed.items() if one.labels.keys() & {"never_move", "move_window"}
    }
    for steps in (found.steps, (*found.steps, *found.undo)):
        now, last = dict(before.names.placed), before
        for step in (step for step in steps if step.host):
            now[step.instance] = replace(now[step.instance], host=step.host)
            then = cloud(EQUIPPED, now.values())
            assert broken(then) <= broken(last) | broken(before)
            last = then


@SMALL_CLOUD
@given(residents_of)
def test_a_repair_ends_rules_that_do_not_hold_with_no_move_of_others(there: Residents) -> None:
    before = cloud(EQUIPPED, made(there))
    found = planned(before, PlanRequest(kind="repair", keep_ratio=0.01))
    moves = {step.instance: step.host for step in found.steps if step.host}
    assert moves.keys() <= broken(before)
    after = cloud(EQUIPPED, [replace(one, host=moves.get(one.id, one.host)) for one in made(there)])
    assert broken(after) <= broken(before)
    assert found.search is not None
    assert (found.search.value == 0) == (not broken(after))
    assert (found.search.ended == "already fine") == (not broken(before))
    if not moves and broken(before):
        assert found.search.ended in {"in the way", "time"}


def test_each_violation_is_repaired_where_a_host_is_free() -> None:
    misplaced = [
        vm("zone", on="a1", labels={"require.zone": "b"}, **LIGHT),
        vm("flag", on="a1", labels={"require_each.cpu_flags": "amx"}, **LIGHT),
        *(vm(f"gpu{at}", on="a2", labels={"needs.gpu": "1"}, **LIGHT) for at in range(2)),
        *(vm(f"apart{at}", on="a1", labels={"anti_affinity": "x"}, **LIGHT) for at in range(2)),
        *(vm(f"near{at}", on=on, labels={"affinity": "y"}, **LIGHT) for at, on in enumerate(["a1", "b1", "b1"])),
        vm("large", on="a2", memory_mb=12_000.0, load=0.05),
        vm("small", on="a2", memory_mb=5_000.0, load=0.05),
    ]
    found = planned(cloud(EQUIPPED, misplaced), PlanRequest(kind="repair"))
    moves = {step.instance: step.host for step in found.steps}
    assert moves.keys() >= {"zone", "flag", "gpu0", "gpu1", "near0", "small"}
    assert len(moves) == 7  # and one of those that stay apart
    assert "large" not in moves
    assert (moves["zone"], moves["near0"]) == ("b1", "b1")
    after = cloud(EQUIPPED, [replace(one, host=moves.get(one.id, one.host)) for one in misplaced])
    assert not list(every_violation(after))
    assert all(step.why for step in found.steps)


def test_soft_rules_are_kept_where_that_is_possible_and_else_not() -> None:
    there = cloud(ZONED, [vm("r", on="a1", labels={"soft_anti_affinity": "g"}, **LIGHT)])
    mine = vm(labels={"soft_anti_affinity": "g"}, **LIGHT)
    answer = ask(there, request(mine))
    assert hosts_of(answer) == ["a2", "b1"]
    assert codes(answer) == {"a1": "constraint.soft"}
    assert hosts_of(ask(there, request(mine, hosts=("a1",)))) == ["a1"]
    near = ask(there, request(vm(labels={"prefer_any.zone": "b"}, **LIGHT)))
    assert hosts_of(near) == ["b1"]
    some = [vm(f"n{at}", labels={"soft_anti_affinity": "n"}, **LIGHT) for at in range(4)]
    found = planned(cloud(ZONED), PlanRequest(instances=tuple(some)))
    assert sorted(Counter(step.host for step in found.steps).values()) == [1, 1, 2]
    assert any("soft" in note for note in found.notes)


@SMALL_CLOUD
@given(residents_of, st.sampled_from(["rebalance", "consolidate"]))
def test_plans_that_improve_break_no_soft_rule_that_holds(there: Residents, kind: PlanKind) -> None:
    soft = {"affinity": "soft_affinity", "anti_affinity": "soft_anti_affinity", "require.zone": "prefer_any.zone"}
    renamed = [
        (on, {soft.get(name, "other"): text for name, text in labels.items()}, load) for on, labels, load in there
    ]

    def held(now: ClusterSnapshot) -> set[tuple[str, str]]:
        where = [(at, one) for at, found in zip(now.hosts, now.residents, strict=True) for one in found]
        kept = set()
        for at, one in where:
            near = [two for other, two in where if other is at and two is not one]
            if one.labels.get("prefer_any.zone") == at.labels["zone"]:
                kept.add((one.id, "prefer"))
            if any("soft_affinity" in one.labels and "soft_affinity" in two.labels for two in near):
                kept.add((one.id, "near"))
            group = one.labels.get("soft_anti_affinity")
            if group and not any(two.labels.get("soft_anti_affinity") == group for two in near):
                kept.add((one.id, "apart"))
        return kept

    before = cloud(EQUIPPED, made(renamed))
    found = planned(before, PlanRequest(kind=kind, keep_ratio=0.5))
    now = dict(before.names.placed)
    for step in (step for step in found.steps if step.host):
        now[step.instance] = replace(now[step.instance], host=step.host)
    assert held(before) <= held(cloud(EQUIPPED, now.values()))


@pytest.mark.parametrize(
    ("text", "at", "opens"),
    [
        ("02:00-06:00", "2026-01-02T03:00", "2026-01-02T03:00"),
        ("02:00-06:00", "2026-01-02T06:00", "2026-01-03T02:00"),
        ("Sat,Sun 02:00-06:00", "2026-01-02T03:00", "2026-01-03T02:00"),
        ("Fri 22:00-04:00", "2026-01-03T03:59", "2026-01-03T03:59"),
        ("Fri 22:00-04:00", "2026-01-03T04:00", "2026-01-09T22:00"),
        ("Mon-Wed 00:00-24:00; Fri-Sun 12:00-13:00", "2026-01-02T10:00", "2026-01-02T12:00"),
        ("Sun-Mon 01:00-02:00", "2026-01-02T10:00", "2026-01-04T01:00"),
        ("nonsense", "2026-01-02T10:00", "2026-01-02T10:00"),
    ],
)
def test_a_window_opens_when_its_text_says(text: str, at: str, opens: str) -> None:
    def moment(iso: str) -> datetime:
        return datetime.fromisoformat(iso).replace(tzinfo=UTC)

    assert next_open(text, moment(at)) == moment(opens)


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("require_any.", "a"),
        ("require_any.zone", " , "),
        ("needs.gpu", "many"),
        ("needs.gpu", "-1"),
        ("move_window", "sometimes"),
        ("move_window", "Sat 25:00-26:00"),
        ("move_window", "Xyz 01:00-02:00"),
        ("local_storage", "perhaps"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused_in_its_field(label: str, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_labels(vm(labels={label: text}))
    assert refused.value.field == f"labels.{label}"


HUGE: Mapping[str, Any] = {"memory_mb": 4096.0, "load": 0.05, "labels": {"needs.hugepages_1gib": "4"}}


def test_huge_pages_are_a_capacity_of_their_own() -> None:
    """Of 16 GB eight are huge pages: other memory is not made of them, and an instance of them needs no other."""
    pool = host("h1", labels={"has.hugepages_1gib": "8"})
    one = cloud((pool,), [vm("r", on="h1", **HUGE), vm("s", on="h1", memory_mb=8192.0)])
    assert kept(one, vm(**HUGE)) == ["h1"]
    assert kept(one, vm(memory_mb=1.0)) == []  # eight GB of ordinary memory are promised
    full = cloud((pool,), [vm(f"r{at}", on="h1", **HUGE) for at in range(2)])
    assert kept(full, vm(**HUGE)) == []
    assert kept(full, vm(memory_mb=8192.0)) == ["h1"]
    assert kept(cloud((host("h2"),)), vm(**HUGE)) == []


def test_a_plan_counts_huge_pages_on_each_host() -> None:
    hosts = (host("h1"), *(host(f"h{at}", labels={"has.hugepages_1gib": "4"}) for at in (2, 3)), host("h4"))
    there = cloud(hosts, [vm(f"r{at}", on="h1", **HUGE) for at in range(3)])
    plan = planned(there, PlanRequest("evacuate", empty=("h1",)))
    assert sorted(str(step.host) for step in plan.steps) == ["None", "h2", "h3"]
    room = planned(cloud(hosts), PlanRequest("capacity", instances=(vm("n", **HUGE),)))
    assert room.capacity is not None
    assert room.capacity.fit == 2
