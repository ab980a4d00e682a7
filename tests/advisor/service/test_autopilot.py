"""The controller that goes on by itself: modes, guard rails, harm, rest, and two of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import IsolationSettings, Plan, PlanRequest, PlanStep
from advisor.errors import Conflict
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import Pinning
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.test_rollouts import STEPS, groups, plan_of, service, shares, weigh, windows

__all__ = ["groups", "service"]
PIN = PlanStep("shop", "h1", action="settings", source="h1", settings=IsolationSettings(pinning=Pinning(((1,),))))


@pytest.fixture
def settings(tmp_path: Path, settings: Settings) -> Settings:
    return settings.model_copy(
        update={"apply_mode": "act", "apply_hosts": "h1", "apply_here": "h1,h2", "apply_canary": False,
                "apply_measure_windows": 5, "apply_kinds": "weight,cap"}
    )  # fmt: skip


class Planner:
    """In the place of a search: advises `steps` for h1 as long as h1 may be changed."""

    def __init__(self, advisor: Advisor, clock: Clock) -> None:
        self.advisor, self.clock = advisor, clock
        self.steps: tuple[PlanStep, ...] = STEPS
        self.asked: list[PlanRequest] = []

    def __call__(self, request: PlanRequest, progress: object = None) -> Plan:
        self.asked.append(request)
        return plan_of(self.advisor, self.clock, *self.steps, name=f"p{len(self.asked)}")


@pytest.fixture
def planner(service: Advisor, clock: Clock, groups: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planner]:
    planner = Planner(service, clock)
    monkeypatch.setattr(service.plans, "find", planner)
    monkeypatch.setattr(service.plans, "keep", lambda plan: None)  # the planner did
    windows(service, clock, 20, {"shop": 0.6, "batch": 0.9, "alike": 0.7})
    yield planner


def states(service: Advisor) -> list[str]:
    return [one.state for one in service.changes.page().items]


def test_in_mode_act_it_carries_out_measures_and_keeps_what_is_good(
    service: Advisor, planner: Planner, clock: Clock, groups: Path
) -> None:
    (said,) = service.autopilot.step()
    assert said.endswith("on h1: carried out")
    assert shares(groups) == {"shop": "4096", "batch": "512", "other": "1024"}
    assert planner.asked[0].hosts == ("h1",), "h2 is not allowed"
    assert service.autopilot.step() == (), "it is not measured yet, and one is enough at a time"
    windows(service, clock, 12, {"shop": 0.81, "batch": 0.81, "alike": 0.7})
    assert service.autopilot.step()[0].endswith("carried out, as predicted")
    (standing,) = service.changes.page().items
    assert standing.rollout.actor == standing.approved_by == "controller"


def test_what_did_harm_is_taken_back_and_its_host_rests_for_a_day(
    service: Advisor, planner: Planner, clock: Clock, groups: Path
) -> None:
    service.autopilot.step()
    windows(service, clock, 12, {"shop": 0.4, "batch": 0.81, "alike": 0.7})
    assert "taken back, harmful: shop fell" in service.autopilot.step()[0]
    assert set(shares(groups).values()) == {"1024"}
    asked = len(planner.asked)
    clock.turn(20 * 3600)
    service.autopilot.step()
    assert (len(planner.asked), states(service)) == (asked, ["taken_back"])
    clock.turn(5 * 3600)
    service.autopilot.step()
    assert states(service) == ["carried_out", "taken_back"]


@pytest.mark.parametrize(
    ("changed", "carried_out"),
    [
        ({"apply_mode": "advise"}, False),
        ({"apply_mode": "ask"}, False),
        ({"apply_kinds": "cap"}, False),
        ({"apply_hosts": "h2"}, False),
        ({"apply_hosts": ""}, False),
        ({"apply_windows": "05:00-06:00"}, False),
        ({"apply_per_hour": 1}, False),
        ({"apply_per_day": 1}, False),
        ({"apply_windows": "03:00-04:00", "apply_per_hour": 2, "apply_per_day": 2}, True),
    ],
    ids=str,
)
def test_it_stays_within_the_guard_rails(
    service: Advisor, planner: Planner, settings: Settings, groups: Path, changed: dict[str, object], carried_out: bool
) -> None:
    narrowed = settings.model_copy(update=changed)
    service.autopilot._settings = service.changes._settings = narrowed
    service.autopilot.step()
    assert (shares(groups)["shop"] == "4096") is carried_out
    assert "carried_out" not in states(service) or carried_out


def test_a_freeze_stops_it(service: Advisor, planner: Planner, groups: Path) -> None:
    service.changes.freeze("release week")
    assert service.autopilot.step() == ()
    assert planner.asked == []
    service.changes.thaw()
    service.autopilot.step()
    assert shares(groups)["shop"] == "4096"


def test_what_kinds_do_not_allow_waits_for_an_approval_and_is_carried_out_after_it(
    service: Advisor, planner: Planner, clock: Clock, groups: Path
) -> None:
    planner.steps = (PIN,)
    (groups / "cpuset" / "lxc.payload.shop" / "cpuset.cpus").write_text("0-1\n")
    assert "waits for an approval: 1 changes on h1" in service.autopilot.step()[0]
    clock.turn(600)
    assert service.autopilot.step() == (), "it is proposed once"
    assert states(service) == ["planned"]
    (waiting,) = service.changes.page().items
    service.changes.approve(waiting.rollout.id)
    assert service.autopilot.step()[0].endswith("carried out")
    assert (groups / "cpuset" / "lxc.payload.shop" / "cpuset.cpus").read_text().strip() == "1"


def test_what_was_interrupted_is_ended(service: Advisor, planner: Planner, groups: Path) -> None:
    asked = iter([False, False, True])
    service.autopilot.step(lambda: next(asked, True))
    assert states(service) == ["applying"]
    assert service.autopilot.step()[0].endswith("carried out")
    assert shares(groups) == {"shop": "4096", "batch": "512", "other": "1024"}


def test_two_controllers_do_not_both_begin(
    service: Advisor, planner: Planner, settings: Settings, clock: Clock, groups: Path
) -> None:
    with Advisor(settings, clock=clock) as other:
        rollouts = [each.changes.of_plan(planner(PlanRequest())) for each in (service, other)]
        for each, rollout in zip((service, other), rollouts, strict=True):
            each.changes.store(rollout)
        assert service.changes.carry_out(rollouts[0].id).state == "carried_out"
        with pytest.raises(Conflict, match="under way"):
            other.changes.carry_out(rollouts[1].id)
        assert other.autopilot.step() == ()


def test_the_rest_after_a_canary_is_measured_as_well(
    service: Advisor, planner: Planner, settings: Settings, clock: Clock, groups: Path
) -> None:
    service.changes._settings = settings.model_copy(update={"apply_canary": True})
    assert service.autopilot.step()[0].endswith("canary")
    windows(service, clock, 12, {"shop": 0.7, "batch": 0.85, "alike": 0.7})
    assert service.autopilot.step()[0].endswith("carried out")
    windows(service, clock, 12, {"shop": 0.3, "batch": 0.81, "alike": 0.7})
    assert "taken back, harmful" in service.autopilot.step()[0]
    assert set(shares(groups).values()) == {"1024"}
    assert service.changes.verdicts() == {"less": 1, "harmful": 1}


def test_a_plan_is_stored_with_its_rollout_and_looks_without_one_leave_none(
    service: Advisor, settings: Settings, clock: Clock, groups: Path
) -> None:
    found = service.plans.find(PlanRequest(kind="tune", hosts=("h1",)))
    assert found.steps
    service.changes.freeze("not yet")
    assert service.autopilot.step() == ()
    service.changes.thaw()
    service.autopilot._settings = service.changes._settings = settings.model_copy(update={"apply_per_hour": 1})
    service.autopilot.step()
    rollouts = service.changes.page().items
    assert {one.id for one in service.plans.page().items} == {one.rollout.source for one in rollouts}


def test_hosts_with_a_step_that_is_done_by_hand_leave_the_others_their_turn(
    service: Advisor, planner: Planner, groups: Path
) -> None:
    planner.steps = (PlanStep("shop", "h1", action="resize", vcpus=2, source="h1"), weigh("batch", 128))
    assert service.autopilot.step() == ()
    assert states(service) == []
