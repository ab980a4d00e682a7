"""Badabing's estimator on simulated paths whose loss frequency and duration are known."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.loss import Experiment, SlotProbe, draw, estimate, largest_delays, mark, probed_slots

SLOTS = 400_000


def episodes(frequency: float, duration: float, seed: int) -> tuple[set[int], float, float]:
    """Congested slots in episodes of `duration` slots in the mean, at least 2 and 2 apart; true frequency, duration."""
    dice = random.Random(seed)
    calm = duration * (1 - frequency) / frequency
    congested: set[int] = set()
    slot, count = 0, 0
    while slot < SLOTS:
        slot += 2 + int(dice.expovariate(1 / (calm - 1.5)))
        length = 2 + int(dice.expovariate(1 / (duration - 1.5)))
        congested.update(range(slot, min(slot + length, SLOTS)))
        slot += length
        count += 1
    return congested, len(congested) / SLOTS, len(congested) / count


@pytest.mark.parametrize(("frequency", "duration"), [(0.01, 10), (0.05, 14), (0.2, 4)])
def test_known_frequency_and_duration_are_estimated(frequency: float, duration: float) -> None:
    congested, true_frequency, true_duration = episodes(frequency, duration, 1)
    found = estimate(experiment.outcome(congested) for experiment in draw(SLOTS, 0.3, 2))
    assert found.frequency == pytest.approx(true_frequency, rel=0.05)
    assert found.duration_slots == pytest.approx(true_duration, rel=0.15)
    assert found.duration_basic_slots == pytest.approx(true_duration, rel=0.10)
    assert found.asymmetry is not None
    assert found.asymmetry < 0.10
    assert found.violations == 0


def test_the_improved_algorithm_corrects_probes_that_see_some_outcomes_less_often() -> None:
    """p1 = 0.9 and p2 = 0.5: the basic algorithm takes half of the long episodes for nothing."""
    congested, _, duration = episodes(0.05, 12, 3)
    dice = random.Random(4)

    def seen(experiment: Experiment) -> str:
        outcome = experiment.outcome(congested)
        chance = {"00": 1.0, "000": 1.0, "01": 0.9, "10": 0.9, "001": 0.9, "100": 0.9}.get(outcome, 0.5)
        return outcome if dice.random() < chance else "0" * len(outcome)

    found = estimate(seen(experiment) for experiment in draw(SLOTS, 0.3, 5))
    assert found.duration_slots == pytest.approx(duration, rel=0.15)
    assert found.duration_basic_slots == pytest.approx(1 + (duration - 1) * 0.5 / 0.9, rel=0.10)


def test_the_published_formulas_are_those_used() -> None:
    outcomes = ["11"] * 30 + ["01"] * 6 + ["10"] * 4 + ["00"] * 160 + ["011"] * 4 + ["110"] * 4 + ["001", "100"] * 5
    found = estimate(outcomes)
    assert found.experiments == 218
    assert found.frequency == pytest.approx((30 + 4 + 4 + 5) / 218)  # first digits
    assert found.duration_basic_slots == pytest.approx(2 * (40 / 10 - 1) + 1)  # R = 40, S = 10
    assert found.duration_slots == pytest.approx(2 * 10 / 8 * (40 / 10 - 1) + 1)  # U = 8, V = 10
    assert found.asymmetry == pytest.approx(2 / 10)


@given(st.lists(st.sampled_from([f"{number:0{digits}b}" for digits in (2, 3) for number in range(2**digits)])))
def test_estimates_stay_where_they_mean_something(outcomes: list[str]) -> None:
    found = estimate(outcomes)
    assert (found.frequency is None) == (not outcomes)
    assert found.frequency is None or 0 <= found.frequency <= 1
    for duration in (found.duration_slots, found.duration_basic_slots):
        assert duration is None or duration >= 1
    assert found.asymmetry is None or 0 <= found.asymmetry <= 1


@given(st.integers(3, 3000), st.floats(0.01, 1), st.integers(0, 10**6), st.booleans())
def test_experiments_stay_inside_of_the_run_and_every_slot_they_need_is_probed(
    slots: int, probability: float, seed: int, improved: bool
) -> None:
    experiments = draw(slots, probability, seed, improved=improved)
    assert experiments == draw(slots, probability, seed, improved=improved)
    probed = probed_slots(experiments)
    assert list(probed) == sorted(set(probed))
    assert {experiment.first + step for experiment in experiments for step in range(experiment.slots)} == set(probed)
    assert not probed or probed[-1] < slots
    assert {experiment.slots for experiment in experiments} <= ({2, 3} if improved else {2})


def test_experiments_start_as_often_as_they_should() -> None:
    experiments = draw(100_000, 0.3, 7)
    assert len(experiments) == pytest.approx(30_000, rel=0.02)
    assert sum(experiment.slots == 3 for experiment in experiments) == pytest.approx(15_000, rel=0.04)
    with pytest.raises(ValueError, match="probability"):
        draw(100, 0.0, 1)


def probe(slot: int, *delays_ms: float | None) -> SlotProbe:
    return SlotProbe(slot, slot * 0.005, tuple(None if delay is None else delay / 1e3 for delay in delays_ms))


def test_slots_near_a_loss_and_slots_as_late_as_before_one_are_lossy() -> None:
    probes = [
        probe(0, 1, 1, 1),
        probe(4, 2, 40, None),  # the largest delay is now 39 ms above the smallest
        probe(13, 1, 1, 1),  # 45 ms after the loss
        probe(16, 1, 1, 1),  # 60 ms after
        probe(30, 1, 39.9, 1),  # within 0.5 % of the largest
        probe(40, 1, 39, 1),  # not quite
    ]
    marked = mark(probes)
    assert marked.either == {0, 4, 13, 30}
    assert marked.both == {4}
    assert marked.by_delay_alone == 1
    assert [None if x is None else round(x, 3) for x in largest_delays(probes)] == [None, 0.04, 0.04, 0.04, 0.04, 0.04]


def test_without_a_loss_nothing_is_lossy_however_late() -> None:
    assert not mark([probe(0, 1), probe(1, 500), probe(2, 1)]).either


def test_a_delay_that_scheduling_makes_counts_as_loss_as_the_paper_saw() -> None:
    """One packet lost in a calm moment makes the largest delay small: then every late probe is a false positive."""
    probes = [probe(0, 1.0, 1.2, None)] + [probe(slot, 25.0 if slot % 4 else 1.0) for slot in range(20, 120)]
    marked = mark(probes)
    assert marked.by_delay_alone == 75
    assert marked.both == {0}


delays = st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=1, max_size=3)


@given(st.lists(delays, min_size=1, max_size=40), st.sampled_from([-3600.0, 1024.0]))
def test_the_clocks_of_both_ends_need_not_agree(all_delays: list[list[float | None]], offset: float) -> None:
    whole = [[None if d is None else round(d * 1024) / 1024 for d in some] for some in all_delays]  # exact with offsets
    probes = [SlotProbe(slot, slot * 0.005, tuple(some)) for slot, some in enumerate(whole)]
    shifted = [
        SlotProbe(probe.slot, probe.sent_s, tuple(None if d is None else d + offset for d in probe.delays_s))
        for probe in probes
    ]
    assert mark(probes) == mark(shifted)


@given(st.lists(delays, min_size=1, max_size=40))
def test_the_strict_reading_marks_no_slot_that_the_printed_one_does_not(all_delays: list[list[float | None]]) -> None:
    probes = [SlotProbe(slot, slot * 0.02, tuple(some)) for slot, some in enumerate(all_delays)]
    marked = mark(probes)
    assert marked.both <= marked.either
    assert {probe.slot for probe in probes if probe.lost} <= marked.both
