"""Capacity looks ahead with the growth that was seen: who came and went, and how demand changed between two weeks."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa

from advisor.domain import Growth, Host, Instance, Inventory, PlanRequest
from advisor.domain.plans import DAYS_A_MONTH
from advisor.lifecycle.arrivals import load_trend, measured
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import packs, rollups, stays
from advisor.store.engine import Database
from advisor.store.samples import series
from advisor.store.stays import Stay
from profiler.demand import Demand
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

DAY = 86_400.0


def test_a_trend_is_the_change_of_all_together_a_month() -> None:
    weeks = [(0.5 + 0.1 * at, (0.5 + 0.1 * at) * 1.21) for at in range(20)]
    trend = load_trend(weeks, 2 * DAYS_A_MONTH)
    assert trend is not None
    assert [trend.percent, trend.lower, trend.upper] == pytest.approx([10, 10, 10])
    assert trend.is_growth


def test_a_trend_within_noise_is_no_growth_and_few_instances_are_none() -> None:
    noise = np.random.default_rng(7).lognormal(0.0, 0.5, size=(30, 2))
    trend = load_trend([(float(a), float(b)) for a, b in noise], 28.0)
    assert trend is not None
    assert not trend.is_growth
    assert trend.lower < 0 < trend.upper
    assert load_trend([(1.0, 2.0)] * 9, 28.0) is None
    assert load_trend([(0.0, 2.0)] * 20, 28.0) is None


def test_the_range_holds_the_true_growth_as_often_as_it_says() -> None:
    """In 200 clouds of 60 instances whose demand grows by 8 % a month, each with noise of its own."""
    rng, inside = np.random.default_rng(3), 0
    for _ in range(200):
        former = rng.lognormal(-1.0, 0.8, size=60)
        later = former * 1.08 * rng.lognormal(-0.02, 0.2, size=60)
        trend = load_trend(list(zip(former.tolist(), later.tolist(), strict=True)), DAYS_A_MONTH)
        assert trend is not None
        inside += trend.lower <= 8.0 <= trend.upper
    assert inside >= 165  # nine in ten, less what a bootstrap of 60 lacks


@pytest.mark.parametrize(
    ("came", "went", "days", "growth"),
    [
        (40, 10, 28.0, Growth(round(30 * DAYS_A_MONTH / 28, 1), 0.0, uncertain_percent=39.0)),
        (10, 40, 28.0, None),
        (40, 10, 5.0, None),  # not looked for long enough
        (3, 3, 28.0, None),
    ],
)
def test_comings_and_goings_are_growth_where_more_come(
    came: int, went: int, days: float, growth: Growth | None
) -> None:
    assert measured(came, went, days, None)[0] == growth


def _grown(settings: Settings, clock: Clock, factor: float) -> None:
    """Rolled-up weeks of the CPU time of 12 instances, eight weeks apart; the later one is `factor` times the other."""
    end_s = (clock() - timedelta(days=settings.keep_samples_days)).timestamp() // 300 * 300
    database = Database(settings.database)
    with database.write() as connection:
        ids = np.array(sorted(connection.scalars(sa.select(series.c.id).where(series.c.metric == "cpu"))))
        alike = np.ones(len(ids))
        rows = [
            {
                "host": "h1",
                "time_s": end - 300 * at,
                "number": len(ids),
                "data": packs.pack(ids, 20.0 * scale * alike, 90.0 * alike, 30 * alike),
            }
            for end, scale in ((end_s - 56 * DAY, 1.0), (end_s, factor))
            for at in range(2000)
        ]
        connection.execute(sa.insert(rollups.mean_packs), rows)
        stays.begin(connection, [Stay(f"new{at}", clock().timestamp() - (at + 1) * DAY, "h1") for at in range(20)])
    database.close()


@pytest.fixture
def measured_cloud(advisor: Advisor, clock: Clock) -> Advisor:
    there = [Instance(f"i{at:02d}", host="h1", memory_mb=64, demand={"cpu": Demand(0.2)}) for at in range(12)]
    advisor.inventory.put(Inventory((Host("h1", "kvm", 64, 65_536),), tuple(there)), mode="replace", generation=None)
    at_s = clock().timestamp() - 30
    advisor.telemetry.ingest([MetricSample("h1", one.id, "instance", "cpu", 20.0, at_s) for one in there])
    return advisor


def test_capacity_without_growth_looks_ahead_with_what_was_seen(
    measured_cloud: Advisor, settings: Settings, clock: Clock
) -> None:
    _grown(settings, clock, 1.5)
    plan = measured_cloud.plans.make(PlanRequest("capacity", (Instance("n", vcpus=4, memory_mb=512),)))
    growth = plan.request.growth
    assert growth is not None
    assert growth.load_percent_per_month == pytest.approx(100 * (1.5 ** (DAYS_A_MONTH / 56) - 1), abs=0.01)
    assert growth.instances_per_month == pytest.approx(20 / 20 * DAYS_A_MONTH, rel=0.06)
    assert plan.capacity is not None
    assert plan.capacity.runs_out_month is not None
    assert sum("came and" in note or "stayed changed" in note for note in plan.notes) == 2
    own = measured_cloud.plans.make(
        PlanRequest("capacity", (Instance("n", vcpus=4, memory_mb=512),), growth=Growth(1.0, months=2))
    )
    assert own.request.growth == Growth(1.0, months=2)


def test_without_history_there_is_no_growth(measured_cloud: Advisor) -> None:
    plan = measured_cloud.plans.make(PlanRequest("capacity", (Instance("n", vcpus=4, memory_mb=512),)))
    assert plan.request.growth is None
    assert plan.capacity is not None
    assert plan.capacity.runway == ()
