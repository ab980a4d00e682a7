"""On/off measurement: the order of states, ratios of simulated series, how long a state must last, tables."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student_t

from lab.campaign import Campaign, read_campaign
from lab.control_groups import CAP_PERIOD_S
from lab.dataset_writer import write_dataset
from lab.environment import read_machine
from lab.errors import CampaignError
from lab.measure import RunMeasurement
from lab.on_off.estimator import StateShare, estimate_ratio
from lab.on_off.freezer import Freezer
from lab.on_off.making import _plan
from lab.on_off.measure import OnOffRun, OnOffWindow, _beside_busy, judged
from lab.on_off.outcomes import state_outcomes
from lab.on_off.speed_correction import SpeedCorrection
from lab.on_off.states import all_states, draw_order
from lab.on_off.tuning import STEP_S, settling_ms, tune
from lab.precision import Precision
from lab.records import Record, StateOutcome
from lab.schedule import Run, expand, tunings
from lab.workloads import WorkloadResult
from models.data.dataset import load_dataset
from tests.examples import examples
from tests.lab.lab_commands import table, write_campaign

NAMES = ("a.1", "b.2", "c.3")
ON_OFF = {"dwell_ms": 100, "guard_ms": 10}


def machine_noise(seed: int, count: int, *, drift: float, correlation: float, spread: float) -> list[float]:
    """The machine's speed in each window: a trend over the whole run, times noise that remembers the last window."""
    draw = random.Random(seed)
    noise, speeds = 0.0, []
    for place in range(count):
        noise = correlation * noise + math.sqrt(1 - correlation**2) * draw.gauss(0, spread)
        speeds.append((1 + drift * place / count) * math.exp(noise))
    return speeds


def simulated(
    seed: int, ratios: dict[tuple[int, ...], float], members: int, blocks: int, *, drift: float = 0.0,
    correlation: float = 0.9, spread: float = 0.1, disturbed: float = 0.0,
) -> OnOffRun:  # fmt: skip
    """Members that reach 1000 a second alone and `ratios[state]` of it in company, on a machine that changes."""
    order = draw_order(all_states(members), blocks, str(seed))
    speeds = machine_noise(seed, len(order), drift=drift, correlation=correlation, spread=spread)
    draw = random.Random(-seed)
    windows = []
    for place, ((block, state), speed) in enumerate(zip(order, speeds, strict=True)):
        bad = draw.random() < disturbed
        rate = 1000 * speed * ratios.get(state, 1.0) * (0.2 if bad else 1.0)
        done = tuple(rate * 0.09 if member in state else 0.0 for member in range(members))
        windows.append(
            OnOffWindow(block, state, place * 0.1, 0.09, done, (0,) * members, (0.0,) * members, disturbed=bad)
        )
    return OnOffRun(
        "2026-11-26T00:00:00+00:00", 0.1 * len(order), 1.0, NAMES[:members], ("events/s",) * members, tuple(windows),
        {}, 0.0, 0.0, {},
    )  # fmt: skip


def outcome(run: OnOffRun, state: tuple[int, ...], place: int) -> StateOutcome:
    return next(known for known in state_outcomes(run) if (known.state, known.place) == (state, place))


@given(members=st.integers(1, 4), blocks=st.integers(1, 8), seed=st.text(max_size=5))
def test_every_block_has_each_state_once_and_windows_begin_with_a_switch(members: int, blocks: int, seed: str) -> None:
    states = all_states(members)
    assert len(states) == 2**members - 1
    order = draw_order(states, blocks, seed)
    for block in range(blocks):
        assert Counter(state for number, state in order if number == block) == Counter(states)
    if members > 1:
        assert all(before[1] != after[1] for before, after in itertools.pairwise(order))
    assert order == draw_order(states, blocks, seed)


@settings(max_examples=examples(20))
@given(
    ratio=st.floats(0.3, 1.1), drift=st.floats(-0.8, 2.0), correlation=st.floats(0.0, 0.98), seed=st.integers(0, 10**6)
)
def test_the_true_ratio_is_found_whatever_the_drift_of_the_machine(
    ratio: float, drift: float, correlation: float, seed: int
) -> None:
    run = simulated(seed, {(0, 1): ratio}, 2, 60, drift=drift, correlation=correlation, spread=0.05)
    estimate = outcome(run, (0, 1), 0)
    assert estimate.together / estimate.alone == pytest.approx(ratio, rel=0.05)
    assert estimate.error < 0.03


@pytest.mark.parametrize(("blocks", "correlation"), [(10, 0.0), (20, 0.9)])
def test_intervals_hold_the_true_ratio_about_as_often_as_they_say(blocks: int, correlation: float) -> None:
    held = 0
    for seed in range(120):
        estimate = outcome(simulated(seed, {(0, 1): 0.7}, 2, blocks, drift=0.5, correlation=correlation), (0, 1), 0)
        most = student_t.ppf(0.975, estimate.pairs - 1) * estimate.error
        held += abs(estimate.together / estimate.alone - 0.7) <= most
    assert 0.88 <= held / 120 <= 0.999


def test_disturbed_windows_count_for_nothing_and_triples_come_from_the_same_run() -> None:
    ratios = {(0, 1): 0.8, (0, 2): 0.6, (1, 2): 0.9, (0, 1, 2): 0.5}
    run = simulated(3, ratios, 3, 40, correlation=0.5, spread=0.02, disturbed=0.2)
    for state, ratio in ratios.items():
        for place in state:
            estimate = outcome(run, state, place)
            assert estimate.together / estimate.alone == pytest.approx(ratio, abs=0.03)
            assert 10 < estimate.pairs < 40


def on_two_speeds(seed: int, ratio: float, follows: float, *, known: bool) -> OnOffRun:
    """A run on CPUs that lose 0.45 of their speed for spells of some windows; the second member feels nothing of it."""
    run, draw, slow = simulated(seed, {(0, 1): ratio}, 2, 20, spread=0.01), random.Random(seed), False
    windows = []
    for window in run.windows:
        slow = draw.random() < (0.8 if slow else 0.2)
        speed = 0.55 if slow else 1.0
        done = (window.progress[0] * (1 - follows * (1 - speed)), window.progress[1])
        speeds = tuple(speed * (1 + draw.gauss(0, 0.03)) for _ in done) if known else ()
        windows.append(replace(window, progress=done, speeds=speeds))
    return replace(run, windows=tuple(windows))


@pytest.mark.parametrize("follows", [0.0, 0.4, 1.0])
def test_rates_are_reported_at_the_full_speed_of_the_cpus_as_far_as_they_follow_it(follows: float) -> None:
    known, unknown = [], []
    for seed in range(60):
        run = on_two_speeds(seed, 0.7, follows, known=True)
        assert SpeedCorrection(run.windows, 0).follows == pytest.approx(follows, abs=0.15)
        assert SpeedCorrection(run.windows, 1).follows <= 0.1
        estimate = outcome(run, (0, 1), 0)
        known.append((estimate.together / estimate.alone - 0.7) / estimate.error)
        if seed % 3 == 0:  # they differ by a factor, which a few tell
            unknown.append(outcome(on_two_speeds(seed, 0.7, follows, known=False), (0, 1), 0).error / estimate.error)
    assert abs(fmean(known)) < 0.6
    assert fmean(abs(value) <= student_t.ppf(0.975, 19) for value in known) >= 0.85
    assert fmean(unknown) > (2 if follows else 0.9)


def test_without_speeds_or_with_few_windows_rates_are_as_they_were() -> None:
    run = on_two_speeds(1, 0.7, 1.0, known=True)
    assert SpeedCorrection(run.windows[:20], 0).seconds(run.windows[0]) == run.windows[0].seconds
    assert SpeedCorrection(on_two_speeds(1, 0.7, 1.0, known=False).windows, 0).follows == 0.0


def test_a_state_of_which_one_member_is_not_known_is_left_out() -> None:
    run = simulated(3, {}, 3, 8)
    windows = tuple(replace(window, disturbed=window.state == (2,)) for window in run.windows)
    assert {known.state for known in state_outcomes(replace(run, windows=windows))} == {(0, 1)}


def test_latency_is_the_mean_over_answers_and_only_where_it_is_counted() -> None:
    run = simulated(1, {}, 2, 12)
    asked = tuple(
        replace(window, answers=(10, 0), waited_s=(0.02 if len(window.state) > 1 else 0.01, 0.0))
        for window in run.windows
    )
    outcomes = {(known.place, known.outcome): known for known in state_outcomes(replace(run, windows=asked))}
    assert outcomes[0, "latency_mean_ms"].alone == pytest.approx(1.0)
    assert outcomes[0, "latency_mean_ms"].together == pytest.approx(2.0)
    assert (1, "latency_mean_ms") not in outcomes


def test_who_asks_at_fixed_moments_is_judged_by_answers_per_question_however_many_there_were() -> None:
    draw = random.Random(2)
    run = simulated(1, {}, 2, 30)
    due = [(draw.randrange(0, 60, 20), 0) for _ in run.windows]
    asked = tuple(
        replace(window, due=asked, answers=(asked[0] // len(window.state), 0))
        for window, asked in zip(run.windows, due, strict=True)
    )
    estimate = outcome(replace(run, windows=asked), (0, 1), 0)
    assert (estimate.alone, estimate.together) == (1.0, 0.5)
    assert estimate.error < 1e-9


def test_steal_counts_against_the_usual_of_its_state_for_a_disk_makes_its_own() -> None:
    run = simulated(1, {}, 2, 10)
    windows = [replace(window, steal=0.3 if 1 in window.state else 0.0) for window in run.windows]
    windows[7] = replace(windows[7], steal=0.6)
    windows[9] = replace(windows[9], foreign=0.2)
    assert [place for place, window in enumerate(judged(windows)) if window.disturbed] == [7, 9]


def test_too_few_blocks_or_nothing_reached_alone_give_no_ratio() -> None:
    assert estimate_ratio([(StateShare(1, 1), StateShare(1, 1))] * 3) is None
    assert estimate_ratio([(StateShare(1, 1), StateShare(0, 1))] * 9) is None


def test_tuning_finds_the_settling_time_and_longer_states_where_events_are_rare() -> None:
    draw = random.Random(5)

    def window(settles: int, spread: float) -> list[float]:
        return [(0.3 if step < settles else 1.0) * (1 + draw.gauss(0, spread)) for step in range(40)]

    slow = [(("0", "01")[number % 2], window(6, 0.02)) for number in range(16)]
    assert settling_ms(slow) == round(6 * STEP_S * 1000)
    assert tune(slow).dwell_ms >= 200
    quick = [(("0", "01")[number % 2], window(0, 0.02)) for number in range(16)]
    assert tune(quick).guard_ms == 10
    drifting = [(name, [rate * (1 + number / 8) for rate in rates]) for number, (name, rates) in enumerate(quick)]
    assert tune(drifting).dwell_ms == 50


def test_only_profiles_are_measured_alone_and_each_workload_is_tuned_once(tmp_path: Path) -> None:
    more = {
        "workloads": {name: {"kind": "loop"} for name in ("x", "y", "z")},
        "pinnings": {"same": {"cpus": ["0"]}, "different": {"cpus": ["0", "1"]}},
        "groups": [{"members": ["x", "y", "z"]}],
    }
    campaign = read_campaign(write_campaign(tmp_path / "a.yaml", pairs=None, on_off=ON_OFF, **more))
    runs = expand(campaign)
    assert sorted(run.kind for run in runs) == ["group", "group", "solo", "solo", "solo"]
    assert tunings(campaign, runs) == ()
    assert campaign.on_off is not None
    assert campaign.on_off.fill_idle
    tuned = tunings(*_expanded(write_campaign(tmp_path / "b.yaml", pairs=None, on_off={"beside": "z"}, **more)))
    assert [run.run for run in tuned] == ["tuning:x", "tuning:y", "tuning:z"]
    assert all(run.placed[1].member.workload == "z" for run in tuned)


@pytest.mark.parametrize(
    "more", [{"host_cap_percent": 120}, {"groups": [{"members": ["x", {"workload": "y", "cap_percent": 50}]}]}]
)
def test_with_a_cap_states_are_measured_for_whole_periods_of_it(tmp_path: Path, more: dict[str, object]) -> None:
    work = {"workloads": {name: {"kind": "loop"} for name in ("x", "y")}, "pinnings": {"same": {"cpus": ["0"]}}}
    groups = {"groups": [{"members": ["x", "y"]}], **more}
    capped = read_campaign(write_campaign(tmp_path / "a.yaml", pairs=None, on_off=ON_OFF, **work, **groups))
    group = next(run for run in expand(capped) if run.kind == "group")
    plan = _plan(capped, group, 1, ())
    assert plan.guard_s >= CAP_PERIOD_S
    assert (plan.dwell_s - plan.guard_s) / CAP_PERIOD_S == pytest.approx(4)


def test_states_with_an_open_loop_last_for_several_bursts_behind_a_guard_in_which_its_queue_settles(
    tmp_path: Path,
) -> None:
    work = {"a": {"kind": "loop"}, "w": {"kind": "web", "bursts": 10, "load": 0.6}}
    more = {"workloads": work, "pinnings": {"same": {"cpus": ["0"], "clients": "1"}}}
    groups = [{"members": ["w", "a"]}, {"members": ["a", "a"]}]
    campaign = read_campaign(write_campaign(tmp_path / "a.yaml", pairs=None, groups=groups, on_off=ON_OFF, **more))
    opened, closed = (_plan(campaign, run, 1, ()) for run in expand(campaign) if run.kind == "group")
    assert opened.dwell_s - opened.guard_s == pytest.approx(10 * 0.1)  # ten bursts, a tenth of a second each
    assert opened.guard_s == pytest.approx(0.3)
    assert (closed.dwell_s, closed.guard_s) == (0.1, 0.01)


def test_an_open_loop_answers_at_most_what_it_is_asked_in_a_state() -> None:
    """In states together it answers what was asked before them, too; alone it leaves some questions open."""
    order = draw_order(all_states(2), 12, "1")
    windows = tuple(
        OnOffWindow(
            block, state, float(place), 1.0, (1.0, 1.0), (130 if len(state) == 2 else 80, 0), (0.0, 0.0), False,
            due=(100, 0),
        )
        for place, (block, state) in enumerate(order)
    )  # fmt: skip
    units = ("answers per question", "x")
    run = OnOffRun("2026-11-26T00:00:00+00:00", 36.0, 1.0, ("a.1", "b.2"), units, windows, {}, 0.0, 0.0, {})
    found = outcome(run, (0, 1), 0)
    assert (found.together, found.alone) == (1.0, 0.8)


def _expanded(path: Path) -> tuple[Campaign, tuple[Run, ...]]:
    campaign = read_campaign(path)
    return campaign, expand(campaign)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"on_off": {"dwell_ms": 100}}, "needs dwell_ms and guard_ms, or neither"),
        ({"on_off": {"dwell_ms": 100, "guard_ms": 60}}, "at most half of dwell_ms"),
        ({"on_off": {"beside": "ghost"}}, "'ghost' is not under workloads"),
        ({"on_off": ON_OFF, "instances": "qemu"}, "needs instances: container"),
        ({"on_off": ON_OFF, "pairs": [["cpu", "web-1k"]]}, "is of kind cpu, which shows no progress"),
    ],
)
def test_what_cannot_be_measured_on_off_is_refused(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(CampaignError, match=complaint):
        read_campaign(write_campaign(tmp_path / "c.yaml", **changes))


def test_a_run_on_off_survives_the_journal_and_its_states_are_rows_that_models_can_read(tmp_path: Path) -> None:
    more = {"workloads": {name: {"kind": "loop"} for name in "abc"}, "pinnings": {"same": {"cpus": ["0"]}}}
    path = write_campaign(tmp_path / "a.yaml", pairs=None, groups=[{"members": ["a", "b", "c"]}], on_off=ON_OFF, **more)
    campaign = read_campaign(path)
    group = next(run for run in expand(campaign) if run.kind == "group")
    states = state_outcomes(simulated(3, {(0, 1): 0.8, (0, 1, 2): 0.5}, 3, 20, spread=0.01))
    reached = {entry.instance: WorkloadResult(5.0) for entry in group.placed}
    measured = RunMeasurement("2026-11-26T00:00:00+00:00", 14.0, reached, (), {}, 0.0, 0.0)
    record = Record.of(group, 1, measured, {}, dict.fromkeys("abc", "events/s"), 15.0, None, states)
    again = Record.load(record.entry())
    assert again.entry() == record.entry()
    write_dataset(tmp_path, campaign, [again], read_machine(campaign), {})
    rows = table(tmp_path, "colocations")
    assert len(rows) == 3 * 2 + 3
    (pair,) = [row for row in rows if row["run"] == "same:a:b:c/1+2" and row["instance"] == "a.1"]
    assert float(pair["colocated"]) / float(pair["solo"]) == pytest.approx(0.8, abs=0.02)
    assert 0 < float(pair["ratio_se"]) < 0.02
    dataset = load_dataset(tmp_path)
    assert sorted(len(row.outcomes) for row in dataset.colocations) == [2, 2, 2, 3]
    assert 0 < Precision().widths([again])["same:a:b:c"] < 0.05


def test_groups_of_version_2_are_frozen_by_their_own_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.freeze").write_text("0")
        (tmp_path / name / "cgroup.events").write_text("populated 1\nfrozen 1\n")
    with Freezer([("one",), ("two",)], {"unified": str(tmp_path)}) as freezer:
        freezer.switch((1,))
        assert [(tmp_path / name / "cgroup.freeze").read_text() for name in ("one", "two")] == ["1", "0"]
        freezer.switch((0,))
        assert [(tmp_path / name / "cgroup.freeze").read_text() for name in ("one", "two")] == ["0", "1"]
    assert (tmp_path / "two" / "cgroup.freeze").read_text() == "0"


def test_threads_of_one_core_show_by_their_speed_while_the_other_one_works() -> None:
    windows = simulated(1, {}, 2, 10).windows
    samples = {
        cpu: [(window.at_s - 0.01, 1.0 if set(window.state) <= {cpu} else 0.6) for window in windows] for cpu in (0, 1)
    }
    assert _beside_busy(samples, windows, 0.0, [(0,), (1,)]) == pytest.approx(0.6)
    assert _beside_busy({0: samples[0]}, windows, 0.0, [(0,), (0,)]) is None
