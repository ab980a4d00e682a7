"""Each guard rail refuses what it is for, and lets all else pass."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from advisor.changes.guard import MaintenanceWindow, Past, Rules, refusals
from advisor.domain import Change, Rollout
from advisor.errors import InvalidInput
from advisor.settings import Settings

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)  # a Saturday
CHANGES = tuple(Change(number, "kvm01", f"vm{number}", "weight", "x", "t", {}, {}) for number in range(3))
ROLLOUT = Rollout("r1", NOW, "local", "p1", CHANGES)
ASK = Rules.of(Settings(apply_mode="ask"))
ACT = Rules.of(Settings(apply_mode="act", apply_hosts="kvm*", apply_kinds="weight"))


def refused(rules: Rules, past: Past | None = None, *, approved: bool = True, frozen: str = "") -> list[str]:
    return refusals(ROLLOUT, rules, past or Past(), NOW, approved=approved, frozen=frozen)


def test_the_default_mode_carries_nothing_out() -> None:
    (why,) = refused(Rules.of(Settings()))
    assert "COTENANT_APPLY_MODE" in why


def test_mode_ask_needs_an_approval_for_all_and_mode_act_for_what_is_not_allowed() -> None:
    assert refused(ASK) == []
    assert len(refused(ASK, approved=False)) == 1
    assert refused(ACT, approved=False) == []
    for other in (replace(ACT, hosts=("edge-*",)), replace(ACT, hosts=()), replace(ACT, kinds=frozenset({"cap"}))):
        assert len(refused(other, approved=False)) == 1
        assert refused(other, approved=True) == []


def test_a_freeze_refuses_whatever_was_approved() -> None:
    (why,) = refused(ACT, frozen="token:ann froze changes")
    assert why.startswith("token:ann froze changes")


@pytest.mark.parametrize(("minutes", "rule"), [(59, "per_hour"), (61, "per_day")])
def test_rate_and_budget_count_what_was_begun(minutes: int, rule: str) -> None:
    past = Past([NOW - timedelta(minutes=minutes)] * 8)
    eleven, ten = (
        replace(ASK, per_hour=most) if rule == "per_hour" else replace(ASK, per_day=most) for most in (11, 10)
    )
    assert refused(eleven, past) == []
    (why,) = refused(ten, past)
    assert "3 changes after 8" in why
    assert refused(replace(ASK, per_hour=10), Past([NOW - timedelta(minutes=61)] * 8)) == []


def test_an_instance_is_left_alone_after_a_change_and_while_another_rollout_changes_it() -> None:
    rules = replace(ASK, at_once=5)
    changed = {"vm1": NOW - timedelta(minutes=59), "vm2": NOW - timedelta(minutes=61)}
    (why,) = refused(rules, Past(changed=changed))
    assert why.startswith("vm1 was changed")
    (why,) = refused(rules, Past(under_way={"r0": ["vm2"]}))
    assert why.startswith("vm2 is part of another rollout")


def test_rollouts_at_once_are_bounded() -> None:
    past = Past(under_way={"r0": ["other"]})
    assert len(refused(ASK, past)) == 1
    assert refused(replace(ASK, at_once=2), past) == []


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("12:00-13:00", True),
        ("11:00-12:00", False),
        ("sat 10:00-14:00", True),
        ("mon-fri 10:00-14:00", False),
        ("fri-mon 10:00-14:00", True),
        ("fri 22:00-13:00", True),
        ("sat 22:00-13:00", False),
        ("00:00-24:00", True),
    ],
)
def test_maintenance_windows_are_utc_and_may_pass_midnight(text: str, is_open: bool) -> None:
    assert MaintenanceWindow.read(text).holds(NOW) is is_open
    assert (refused(replace(ASK, windows=(MaintenanceWindow.read(text),))) == []) is is_open


@pytest.mark.parametrize("text", ["always", "25:00-26:00", "10:70-11:00", "mon-xyz 10:00-11:00", "10-11"])
def test_a_window_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        Rules.of(Settings(apply_windows=text))


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Rules.of(Settings(apply_kinds="weight,reboot"))
