"""Which rounds a campaign has: the least ones, further ones only of what is not sure enough, and when it is enough."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from lab.campaign import Campaign, Repeats, Temporal, read_campaign
from lab.dataset_writer import write_dataset
from lab.dry_run import estimate_campaign
from lab.environment import read_machine
from lab.precision import Precision
from lab.records import Record
from lab.rounds import RoundPlan
from lab.schedule import expand
from lab.show import analyse
from lab.show.noise import half_width
from lab.statistics import MemberRepeat
from tests.lab.lab_commands import TINY
from tests.lab.lab_records import one_round, record


def _campaign(least: int, most: int, narrow: float | None) -> Campaign:
    return replace(read_campaign(TINY), repeats=Repeats(least, most, narrow))


def _noisy_in(campaign: Campaign, noisy: str, number: int) -> list[Record]:
    """A round in which all runs are the same each time, but one group, which is a fifth off in every second round."""
    return [record(campaign, run, number, 0.8 if run.run == noisy and number % 2 else 1.0) for run in expand(campaign)]


def _carry_out(campaign: Campaign, noisy: str, records: list[Record]) -> list[tuple[int, set[str], int | None]]:
    """Do what the plan says until it has no more; what each step held."""
    done = {(finished.run, finished.round) for finished in records}
    steps = []
    for step in RoundPlan(campaign).steps(records):
        steps.append((step.number, {run.run for run in step.runs}, step.wide))
        fresh = [finished for finished in _noisy_in(campaign, noisy, step.number) if finished.run in steps[-1][1]]
        records += [finished for finished in fresh if (finished.run, finished.round) not in done]
    return steps


def test_without_a_width_there_are_exactly_the_asked_for_rounds() -> None:
    steps = _carry_out(_campaign(3, 3, None), "same:cpu:cpu", [])
    assert [number for number, _, _ in steps] == [0, 1, 2, 3]
    assert all(wide is None for _, _, wide in steps)


def test_further_rounds_hold_only_the_wide_groups_and_their_solos() -> None:
    steps = _carry_out(_campaign(3, 5, 0.03), "same:web-1k:cpu", [])
    assert [number for number, _, _ in steps] == [0, 1, 2, 3, 4, 5]
    assert [runs for _, runs, _ in steps[4:]] == [{"same:web-1k:cpu", "solo:web-1k:0:1", "solo:cpu:0"}] * 2
    assert [wide for _, _, wide in steps[4:]] == [1, 1]


def test_rounds_end_when_everything_is_sure_enough() -> None:
    assert len(_carry_out(_campaign(3, 30, 0.03), "ghost", [])) == 4


def test_an_interrupted_campaign_goes_on_with_the_same_runs() -> None:
    campaign = _campaign(3, 5, 0.03)
    whole: list[Record] = []
    steps = _carry_out(campaign, "same:cpu:cpu", whole)
    cut = next(place for place, finished in enumerate(whole) if finished.round == 4) + 1  # within a further round
    resumed = whole[:cut]
    assert _carry_out(campaign, "same:cpu:cpu", resumed) == steps
    measured, again = (sorted((finished.run, finished.round) for finished in part) for part in (whole, resumed))
    assert again == measured


def test_runs_that_the_campaign_no_longer_has_are_never_wide() -> None:
    campaign = _campaign(2, 9, 0.03)
    both = [*one_round(campaign, 1, 0.2), *one_round(campaign, 2, 0.2)]
    strangers = [replace(finished, run=f"old:{finished.run}") for finished in both]
    assert RoundPlan(campaign).wide(strangers) == frozenset()


def test_one_repeat_is_never_sure_and_neither_is_a_group_that_reaches_nothing() -> None:
    campaign = _campaign(1, 2, 0.5)
    assert len(RoundPlan(campaign).wide(one_round(campaign, 1))) == 3
    dead = [record(campaign, run, n, 0.0 if run.kind == "group" else 1.0) for n in (1, 2) for run in expand(campaign)]
    assert len(RoundPlan(campaign).wide(dead)) == 3


def test_a_repeat_without_its_solo_run_does_not_count() -> None:
    campaign = _campaign(2, 9, 0.5)
    alone = [finished for finished in one_round(campaign, 2) if finished.kind == "group"]
    assert len(RoundPlan(campaign).wide(one_round(campaign, 1) + alone)) == 3
    assert RoundPlan(campaign).wide(one_round(campaign, 1) + one_round(campaign, 2)) == frozenset()


def test_noise_within_runs_makes_intervals_of_few_repeats_wider() -> None:
    def pairs(spread: float) -> list[tuple[MemberRepeat, MemberRepeat]]:
        windows = tuple(100 + spread * (-1) ** position for position in range(12))
        return [
            (MemberRepeat(f"{spread} t{number}", 500.0, windows), MemberRepeat(f"{spread} b{number}", 1000.0, windows))
            for number in range(3)
        ]

    calm, noisy = (Precision().interval(pairs(spread)) for spread in (1.0, 20.0))
    assert calm is not None
    assert noisy is not None
    assert calm[0] == noisy[0] == 0.5
    assert calm[2] - calm[1] < 0.02 < noisy[2] - noisy[1]


def test_a_solo_run_that_was_mostly_idle_has_an_interval_too() -> None:
    idle = (*[0.0] * 11, 12.0)  # a third of all redraws hold nothing but idle windows
    pairs = [(MemberRepeat(f"t{n}", 500.0, (1.0,) * 12), MemberRepeat(f"b{n}", 1000.0, idle)) for n in range(3)]
    interval = Precision().interval(pairs)
    assert interval is not None
    assert interval[1] <= 0.5 <= interval[2] < math.inf


def test_lab_show_is_as_sure_of_a_pair_as_the_lab_that_decides_by_it(tmp_path: Path) -> None:
    path, draw = tmp_path / "driven.yaml", random.Random(1)
    path.write_text(TINY.read_text(encoding="utf-8").replace('clients: ["1"]', 'clients: ["1"], driver: "1"'))
    campaign = read_campaign(path)
    records = [
        record(campaign, run, number, draw.uniform(0.9, 1.1), windows=[draw.randint(50, 150) for _ in range(8)])
        for number in (1, 2, 3)
        for run in expand(campaign)
    ]
    write_dataset(tmp_path, campaign, records, read_machine(campaign), {})
    matrix = analyse(tmp_path).forms["same"].matrix
    shown = max(half_width(cell) or 0.0 for cell in (matrix["web-1k"]["cpu"], matrix["cpu"]["web-1k"]))
    assert shown == pytest.approx(Precision().widths(records)["same:web-1k:cpu"])


def test_from_six_repeats_on_ranks_decide() -> None:
    pairs = [(MemberRepeat(f"t{n}", 500.0 + n, ()), MemberRepeat(f"b{n}", 1000.0, ())) for n in range(10)]
    interval = Precision().interval(pairs)
    assert interval is not None
    assert interval[1:] == (0.501, 0.508)  # ranks 2 and 9 of 10


def test_a_time_grid_has_a_step_per_slot_and_no_further_ones() -> None:
    campaign = replace(_campaign(2, 9, 0.01), temporal=Temporal(10.0, 0.5))
    steps = list(RoundPlan(campaign).steps(one_round(campaign, 1, 0.3) + one_round(campaign, 2, 0.3)))
    assert [step.due_s for step in steps] == [None, 0.0, 600.0, 1200.0]


def test_an_estimate_counts_runs_and_takes_the_time_of_finished_ones() -> None:
    campaign = _campaign(4, 10, 0.03)
    before = estimate_campaign(campaign, [])
    assert (before.runs, before.finished, before.solos, before.sizes) == (20, 0, 2, {2: 3})
    assert before.minutes == pytest.approx(20 * before.run_s / 60)
    assert before.most_minutes == pytest.approx(50 * before.run_s / 60)
    after = estimate_campaign(campaign, one_round(campaign, 1))
    assert (after.finished, after.run_s) == (5, 1.5)
    assert after.minutes == pytest.approx(15 * 1.5 / 60)
    assert any("20 runs, 5 of them finished; 0:22 to go" in line for line in after.sentences())
    five = [finished for number in range(1, 6) for finished in one_round(campaign, number)]
    within = estimate_campaign(campaign, five)
    assert (within.finished, within.minutes) == (20, 0)
    assert within.most_minutes == pytest.approx(25 * 1.5 / 60)  # five of six further rounds


def test_what_was_not_measured_yet_is_guessed_to_be_as_much_slower_as_the_rest() -> None:
    """One run on/off goes through many states: the median of all finished runs would tell of none of them."""
    campaign = _campaign(1, 1, None)
    solos = [run for run in expand(campaign) if run.kind == "solo"]
    guess = estimate_campaign(campaign, []).run_s
    took = [replace(record(campaign, run, 1), took_s=2 * guess) for run in solos]
    assert estimate_campaign(campaign, took).run_s == pytest.approx(2 * guess)
    once = [replace(finished, took_s=2 * guess if number else 7 * guess) for number, finished in enumerate(took)]
    assert estimate_campaign(campaign, once).run_s == pytest.approx((7 + 2 + 3 * 4.5) / 5 * guess)


def test_an_estimate_ends_where_the_minutes_end() -> None:
    campaign = replace(_campaign(4, 10, 0.03), repeats=Repeats(4, 10, 0.03, 0.2))
    assert estimate_campaign(campaign, []).minutes == pytest.approx(0.2)
    assert estimate_campaign(campaign, one_round(campaign, 1)).minutes == pytest.approx(0.2 - 5 * 1.5 / 60)


def test_a_round_that_does_not_fit_into_its_time_is_reported() -> None:
    campaign = replace(_campaign(4, 4, None), temporal=Temporal(0.01, 1.0))
    assert any("does not fit" in line for line in estimate_campaign(campaign, []).sentences())
