"""What comes of predicted against observed: the report, alarms, and wider intervals."""

from __future__ import annotations

import math
from typing import Any

import pytest

from advisor.domain import Host, Instance, PlanRequest, Scene, WhatIf
from advisor.errors import NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from models.physics.prior import CEILING
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.two_models import ASKED, CLOUD, HOSTS, placed, rows_of, seen

pytestmark = pytest.mark.usefixtures("cloud")


OTHERS = ("mail", "search")  # workloads of which no question is


def watch(
    advisor: Advisor, clock: Clock, ratios: list[float], *, start: int = 0, of: tuple[str, str] = ("web", "batch")
) -> None:
    for number, ratio in enumerate(ratios, start=start):
        clock.turn(10)
        advisor.outcomes.record_colocation(seen(number, ratio, ratio, of=of))


GOOD = [0.8 * math.exp(0.05 * math.sin(number)) for number in range(40)]


@pytest.mark.usefixtures("two")
def test_the_report_tells_coverage_error_drift_and_who_is_better(advisor: Advisor, clock: Clock) -> None:
    assert advisor.outcomes.quality().status == "no_data"
    watch(advisor, clock, GOOD)
    quality = advisor.outcomes.quality()
    assert (quality.version, quality.status) == ("m-1", "ok")
    everything = quality.groups[0].figures
    assert (everything.rows, everything.scenes, everything.coverage) == (80, 40, 1.0)
    assert [(one.other, one.role) for one in quality.beside] == [("analytic", "baseline"), ("m-2", "shadow")]
    assert quality.beside[0].text.startswith("m-1 errs by 0.")
    assert quality.beside[0].text.endswith("it is better beyond the uncertainty.")
    assert advisor.outcomes.quality("m-2").status == "drift"
    changed = clock.now
    watch(advisor, clock, [0.6] * 20, start=40)
    quality = advisor.outcomes.quality()
    assert quality.status == "drift"
    shift = next(alarm for alarm in quality.groups[0].alarms if alarm.kind == "shift")
    assert abs((shift.since - changed).total_seconds()) <= 20
    assert (shift.detected - changed).total_seconds() <= 10 * 10  # ten observations
    assert any("On platform I" in text and "25% below what m-1 expects" in text for text in quality.verdict)


@pytest.mark.usefixtures("two")
def test_another_process_tells_the_same(advisor: Advisor, settings: Settings, clock: Clock) -> None:
    watch(advisor, clock, [*GOOD, *[0.6] * 20])
    with Advisor(settings, clock=clock) as other:
        assert other.outcomes.quality() == advisor.outcomes.quality()
        assert other.placements.predict(SCENE) == advisor.placements.predict(SCENE)


def test_a_model_that_does_not_exist_has_no_quality(advisor: Advisor) -> None:
    with pytest.raises(NotFound, match="no model m-9"):
        advisor.outcomes.quality("m-9")


SCENE = Scene(HOSTS[0], (Instance("a", workload="web"), Instance("b", workload="batch")), CLOUD.workloads)
WILD = [0.8 * math.exp(0.2 * (-1) ** number) for number in range(30)]  # twice the half width, on either side


@pytest.mark.usefixtures("two")
def test_answers_about_a_platform_that_leaves_its_intervals_are_widened(advisor: Advisor, clock: Clock) -> None:
    imagined = PlanRequest("what_if", (ASKED.instance,), what_if=WhatIf(model="analytic"), then="admit", hosts=("h1",))
    before, of_prior = advisor.placements.place(ASKED).recommendation, advisor.plans.make(imagined)
    watch(advisor, clock, WILD, of=OTHERS)
    after = advisor.placements.place(ASKED).recommendation
    (factor,) = {round(value, 9) for value in after.widened.values()}
    assert set(after.widened) == {"h1", "h2"}
    assert 2.0 <= factor < 2.5
    assert [one.host for one in after.candidates] == [one.host for one in before.candidates]
    for old, new in zip(before.candidates, after.candidates, strict=True):
        grown = 1.0 if new.host == "x1" else factor
        band, wide = old.new_vm.throughput_ratio, new.new_vm.throughput_ratio
        assert wide.expected == band.expected
        assert math.log(wide.upper / wide.lower) == pytest.approx(grown * math.log(band.upper / band.lower))
        assert new.new_vm.latency_ratio == old.new_vm.latency_ratio
    assert "Intervals on h1, h2 are 2." in after.notes[-1]
    assert before.widened == {}
    assert advisor.placements.predict(SCENE).effects[0].throughput_ratio == after.candidates[0].new_vm.throughput_ratio
    plan = advisor.plans.make(PlanRequest(instances=(ASKED.instance,)))
    assert plan.steps[0].new_vm is not None
    assert plan.after["h1"][0].throughput_ratio.upper > 0.8 * math.exp(0.1)
    again = advisor.plans.make(imagined)
    assert [step.host for step in again.steps] == ["h1"]
    outcomes: Any = advisor.outcomes
    with advisor._database.read() as connection:
        own = outcomes._monitor.factors(connection, "analytic", HOSTS)["h1"]
    bands = [reported.after["h1"][0].throughput_ratio for reported in (of_prior, again)]
    down = [math.log(one.expected / one.lower) for one in bands]
    assert down[1] == pytest.approx(own * down[0])
    assert bands[1].upper == bands[0].upper == CEILING, "no instance gains by neighbours, however wide the interval is"
    assert own > 1.5 * factor, "each model is widened by what was observed of it"


@pytest.mark.usefixtures("two")
def test_only_platforms_that_leave_their_intervals_are_remembered(advisor: Advisor, clock: Clock) -> None:
    for number in range(5):
        advisor.inventory.put_host(Host(f"gone-{number}", "kvm", 2, 8192))
        advisor.outcomes.record_colocation(seen(1000 + number, platform=f"gone-{number}"))
        advisor.inventory.delete_host(f"gone-{number}")
    watch(advisor, clock, WILD, of=OTHERS)
    assert set(advisor.placements.place(ASKED).recommendation.widened) == {"h1", "h2"}
    outcomes: Any = advisor.outcomes
    assert set(outcomes._monitor._factors[2]) == {"I"}


@pytest.mark.usefixtures("two")
def test_a_widened_answer_is_judged_by_the_models_own_interval(advisor: Advisor, clock: Clock) -> None:
    watch(advisor, clock, WILD, of=OTHERS)
    answer = placed(advisor)
    advisor.outcomes.record(answer.id, "h1", {"new": 0.7})
    row = rows_of(advisor, "m-1")[-1]
    assert row.instance == "new"
    assert row.lower == pytest.approx(0.8 * math.exp(-0.1))
    assert row.upper == pytest.approx(0.8 * math.exp(0.1))


@pytest.mark.usefixtures("two")
def test_nothing_is_widened_while_intervals_hold_or_where_the_setting_is_off(
    advisor: Advisor, settings: Settings, clock: Clock
) -> None:
    first = advisor.placements.place(ASKED).recommendation
    assert {one.calibration for one in first.candidates} == {"trained"}
    watch(advisor, clock, GOOD, of=OTHERS)
    checked = advisor.placements.place(ASKED).recommendation
    assert checked.widened == {}
    calibration = {one.host: one.calibration for one in checked.candidates}
    assert calibration == {"h1": "observed", "h2": "observed", "x1": "trained"}  # x1 was not watched
    watch(advisor, clock, WILD, start=100, of=OTHERS)
    assert advisor.placements.place(ASKED).recommendation.widened
    with Advisor(settings.model_copy(update={"adapt_intervals": False}), clock=clock) as plain:
        answer = plain.placements.place(ASKED).recommendation
        assert (answer.widened, answer.notes) == ({}, ())
