"""What placements of new VMs lead to: the judge, and policies that differ in what they know of the day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from advisor.scheduling.rules import RULES
from models.physics.prior import PriorPredictor
from research.arena.contest import Advised, ByRule, Policy, rules
from research.arena.evenings import HOSTS, MOST, NEW_VMS, DailyContainer, Evening, draw

DAY = np.where((np.arange(144) >= 54) & (np.arange(144) < 102), 7.2, 0.16)
NIGHT = np.where((np.arange(144) >= 54) & (np.arange(144) < 102), 0.16, 7.2)


def evening() -> Evening:
    """One host full by day, nine at night; who comes works at night."""
    residents = [DailyContainer(f"web-{at}", "web", DAY, at) for at in range(2)]
    residents += [DailyContainer(f"batch-{at}", "batch", NIGHT, at) for at in range(2, 20)]
    host_of = (0, 0, *(1 + at // 2 for at in range(18)))
    return Evening(tuple(residents), host_of, (DailyContainer("batch-99", "batch", NIGHT, 99),))


def short(world: Evening, placed: Sequence[int]) -> float:
    return world.judged(placed)["short"]


def test_who_goes_by_days_puts_night_workers_where_people_work_by_day() -> None:
    by_days = [ByRule(RULES[f"greedy by {days}, 80%"])(evening()) for days in ("days, 2 waves", "every hour")]
    assert by_days == [[0], [0]]
    assert short(evening(), [0]) < short(evening(), [3])


def test_rules_have_every_value_of_what_they_leave_free() -> None:
    placed = {name: policy(draw(0, 0)) for name, policy in rules(Evening.columns, settings=True).items()}
    greedy = {name: tuple(hosts) for name, hosts in placed.items() if name.startswith("greedy")}
    assert len(greedy) == 20
    assert len({hosts for name, hosts in greedy.items() if name.startswith("greedy by every hour")}) > 1
    assert {"first fit", "random", "Nova's weighers", "least loaded"} <= placed.keys()


def test_no_host_is_short_where_no_instance_works() -> None:
    idle = tuple(DailyContainer(f"dev-{at}", "dev", np.full(144, 0.08), at) for at in range(5))
    assert short(Evening(idle, (0,) * 5, ()), []) == 0
    busy = tuple(DailyContainer(f"ci-{at}", "ci", np.full(144, 7.6), at) for at in range(5))
    assert short(Evening(busy, (0,) * 5, ()), []) > 90


def test_every_instance_finds_a_host_that_has_room() -> None:
    policies: list[Policy] = [*rules(Evening.columns).values(), Advised(PriorPredictor())]
    for policy in policies:
        placed = policy(draw(0, 0))
        assert len(placed) == NEW_VMS
        assert np.bincount([*draw(0, 0).host_of, *placed], minlength=HOSTS).max() <= MOST


def test_who_knows_the_next_day_is_short_less_often() -> None:
    greedy = ByRule(RULES["greedy by every hour, 80%"])
    worlds = [draw(world, 0) for world in range(4)]
    knowing = sum(short(one, greedy(replace(one, foresight=True))) for one in worlds)
    assert knowing < sum(short(one, greedy(one)) for one in worlds)
