"""What placements of newcomers lead to: the judge, and policies that differ in what they know of the day."""

from __future__ import annotations

import numpy as np

from research.contention.newcomer_choices import Product, by_days, first_fit, nova, short_part, tunable_rules
from research.contention.newcomer_world import HOSTS, MOST, NEWCOMERS, DailyContainer, NewcomerWorld, draw

DAY = np.where((np.arange(144) >= 54) & (np.arange(144) < 102), 7.2, 0.16)
NIGHT = np.where((np.arange(144) >= 54) & (np.arange(144) < 102), 0.16, 7.2)


def world() -> NewcomerWorld:
    """One host full by day, nine at night; who comes works at night."""
    residents = [DailyContainer(f"web-{at}", "web", DAY, at) for at in range(2)]
    residents += [DailyContainer(f"batch-{at}", "batch", NIGHT, at) for at in range(2, 20)]
    host_of = (0, 0, *(1 + at // 2 for at in range(18)))
    return NewcomerWorld(tuple(residents), host_of, (DailyContainer("batch-99", "batch", NIGHT, 99),))


def test_who_goes_by_days_puts_night_workers_where_people_work_by_day() -> None:
    assert by_days(None)(world()) == by_days(2)(world()) == [0]
    assert short_part(world(), [0]) < short_part(world(), [3])


def test_rules_have_every_value_of_what_they_leave_free() -> None:
    placed = {name: choose(draw(0, 0)) for name, choose in tunable_rules().items()}
    assert len(placed) == 18
    assert len({tuple(hosts) for name, hosts in placed.items() if name.startswith("greedy by every hour")}) > 1


def test_no_host_is_short_where_nobody_works() -> None:
    idle = tuple(DailyContainer(f"dev-{at}", "dev", np.full(144, 0.08), at) for at in range(5))
    assert short_part(NewcomerWorld(idle, (0,) * 5, ()), []) == 0
    busy = tuple(DailyContainer(f"ci-{at}", "ci", np.full(144, 7.6), at) for at in range(5))
    assert short_part(NewcomerWorld(busy, (0,) * 5, ()), []) > 0.9


def test_everybody_finds_a_host_that_has_room() -> None:
    evening = draw(0, 0)
    for choose in (nova, by_days(0), by_days(None, known=True), first_fit, Product()):
        placed = choose(evening)
        assert len(placed) == NEWCOMERS
        assert np.bincount([*evening.host_of, *placed], minlength=HOSTS).max() <= MOST
