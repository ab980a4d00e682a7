"""Labels that are rules: which hosts an instance may be on, beside which instances, and whether a plan may move it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Instance
from advisor.errors import InvalidInput
from advisor.planning.assignment.goal import Aim
from advisor.render import check_labels
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from tests.advisor.core.core_clouds import FRESH_S, cloud, host, request, vm
from tests.advisor.planning.test_assign import SMALL_CLOUD, assigned

ZONED = (host("a1", labels={"zone": "a"}), host("a2", labels={"zone": "a"}), host("b1", labels={"zone": "b"}))
LIGHT: Mapping[str, Any] = {"memory_mb": 100.0, "load": 0.05}


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
        {"never_move": "true"},
        {"affinity": "g"},
        {"anti_affinity": "h", "anti_affinity_most": "2"},
    ]
)


def broken(there: ClusterSnapshot) -> set[str]:
    """Ids of instances whose rules do not hold, from the definition of each."""
    where = [(at, one) for at, residents in zip(there.hosts, there.residents, strict=True) for one in residents]
    apart = Counter(at.id for at, one in where if "anti_affinity" in one.labels)
    together = {at.id for at, one in where if "affinity" in one.labels}
    return {
        one.id
        for at, one in where
        if at.labels["zone"] != one.labels.get("require.zone", at.labels["zone"])
        or ("affinity" in one.labels and len(together) > 1)
        or ("anti_affinity" in one.labels and apart[at.id] > 2)
    }


@SMALL_CLOUD
@given(
    st.lists(st.tuples(st.sampled_from(["a1", "a2", "b1"]), RULES, st.sampled_from([0.05, 1.0])), max_size=7),
    st.sampled_from(["rebalance", "consolidate"]),
)
def test_no_plan_breaks_a_rule_that_holds(there: list[tuple[str, dict[str, str], float]], aim: Aim) -> None:
    residents = [
        vm(f"r{at}", on=on, labels=labels, load=load, memory_mb=100.0) for at, (on, labels, load) in enumerate(there)
    ]
    before = cloud(ZONED, residents)
    after = assigned(before, aim).after
    assert broken(after) <= broken(before)
    hosts = {one.id: at.id for at, found in zip(after.hosts, after.residents, strict=True) for one in found}
    stay = [one for one in residents if one.labels.get("never_move") == "true"]
    assert [hosts[one.id] for one in stay] == [one.host for one in stay]
