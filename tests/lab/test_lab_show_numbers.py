"""What `lab show` computes: ratios, intervals, noise, curves, modes and compositions, on known data."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.show import DatasetAnalysis, analyse
from lab.show.noise import WIDTHS
from lab.statistics import describe
from tests.examples import examples
from tests.lab.lab_show_cases import START, Made

POSITIVE = st.floats(0.01, 100, allow_nan=False)
ROUNDS = st.lists(st.tuples(st.floats(0.05, 1.2), st.floats(0.05, 1.2)), min_size=1, max_size=8)
IS = pytest.approx


def _shown(made: Made, tmp_path: Path) -> DatasetAnalysis:
    return analyse(made.write(tmp_path))


def _rounds(*ratios: tuple[float, float], labels: tuple[str, str] = ("a", "b"), windows: int = 0) -> Made:
    """A pair in as many rounds as ratios."""
    made = Made()
    for repeat, both in enumerate(ratios, 1):
        made.add("same", labels, both, repeat, windows=windows)
    return made


@settings(max_examples=examples(25))
@given(rounds=ROUNDS)
def test_cells_and_scores_are_medians_over_the_rounds(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[float, float]]
) -> None:
    form = _shown(_rounds(*rounds), tmp_path_factory.mktemp("made")).forms["same"]
    assert form.matrix["a"]["b"].median == IS(median(first for first, _ in rounds))
    assert form.matrix["b"]["a"].median == IS(median(second for _, second in rounds))
    assert form.scores[0].score.median == IS(median(first + second for first, second in rounds))
    assert form.matrix["a"]["b"].count == len(rounds)


@given(values=st.lists(POSITIVE, min_size=2, max_size=12))
def test_an_interval_holds_the_median_and_nothing_below_zero(values: list[float]) -> None:
    description = describe(values)
    assert description.lower is not None
    assert description.upper is not None
    assert 0 <= description.lower <= description.median * (1 + 1e-9)
    assert description.median <= description.upper * (1 + 1e-9)


def test_what_may_be_negative_has_its_interval_around_its_median() -> None:
    description = describe([-3.0, -2.0, -1.0])
    assert description.lower is not None
    assert description.upper is not None
    assert description.lower < description.median < description.upper


def test_one_round_has_no_interval_and_no_variation() -> None:
    description = describe([0.5])
    assert (description.lower, description.upper, description.cv) == (None, None, None)
    with pytest.raises(ValueError, match="no values"):
        describe([])


def test_restless_windows_widen_the_interval(tmp_path: Path) -> None:
    widths = []
    for windows in (0, 12):
        made = _rounds(*((0.5 + repeat / 1000, 0.9) for repeat in (1, 2, 3)), windows=windows)
        cell = _shown(made, tmp_path / str(windows)).forms["same"].matrix["a"]["b"]
        assert cell.upper is not None and cell.lower is not None
        widths.append(cell.upper - cell.lower)
    assert widths[1] > 3 * widths[0]


def test_twins_count_once_per_round(tmp_path: Path) -> None:
    made = _rounds((0.4, 0.6), (0.4, 0.6), labels=("a", "a"))
    cell = _shown(made, tmp_path).forms["same"].matrix["a"]["a"]
    assert (cell.count, cell.median) == (2, IS(0.5))


def test_variants_are_not_in_the_matrix_but_among_the_scores(tmp_path: Path) -> None:
    made = _rounds((0.4, 0.6))
    made.add("same", ("a.load0.5", "b"), (0.9, 0.9), settings=({"load": 0.5}, {}))
    form = _shown(made, tmp_path).forms["same"]
    assert set(form.matrix) == {"a", "b"}
    assert [score.members for score in form.scores] == [("a.load0.5", "b"), ("a", "b")]


@settings(max_examples=examples(25))
@given(ratios=st.lists(st.tuples(st.floats(0.2, 1), st.floats(0.2, 1)), min_size=3, max_size=3))
def test_rules_predict_groups_from_their_pairs(
    tmp_path_factory: pytest.TempPathFactory, ratios: list[tuple[float, float]]
) -> None:
    pairs = dict(zip((("a", "b"), ("a", "c"), ("b", "c")), ratios, strict=True))
    beside = {**pairs, **{(b, a): (y, x) for (a, b), (x, y) in pairs.items()}}
    made = Made()
    for names, both in pairs.items():
        made.add("same", names, both)
    product = [beside["a", "b"][0] * beside["a", "c"][0], beside["b", "a"][0] * beside["b", "c"][0],
               beside["c", "a"][0] * beside["c", "b"][0]]  # fmt: skip
    made.add("same", ("a", "b", "c"), product)
    composition = _shown(made, tmp_path_factory.mktemp("made")).composition
    assert composition.without_pairs == 0
    assert composition.groups[0].error("product") == IS(0, abs=1e-9)
    assert composition.groups[0].predicted["min"] >= composition.groups[0].predicted["product"] - 1e-9
    assert {rule.name: rule.error for rule in composition.rules}["product"] == IS(0, abs=1e-9)


def test_a_pair_predicts_only_where_cpus_are_shared_alike(tmp_path: Path) -> None:
    made = Made()
    for pair in (("a", "b"), ("a", "c"), ("b", "c")):
        made.add("same", pair, (0.5, 0.5), cpus=("0", "0"))
        made.add("apart", pair, (0.9, 0.9), cpus=("0", "1"))
    made.add("apart", ("a", "b", "c"), (0.45, 0.81, 0.45), cpus=("0", "1", "0"))
    made.add("apart", ("a", "b", "d"), (0.5, 0.5, 0.5), cpus=("0", "1", "0"))
    composition = _shown(made, tmp_path).composition
    assert composition.without_pairs == 1
    assert composition.groups[0].predicted["product"] == IS(0.45 + 0.81 + 0.45)
    assert composition.groups[0].borrowed == 2  # a and c share a CPU, which pairs of this form never do


def test_curves_hold_all_else_constant(tmp_path: Path) -> None:
    made = Made()
    for load, ratio in ((0.3, 0.95), (0.6, 0.8)):
        made.add("same", (f"a.load{load}", "b"), (ratio, 0.9), settings=({"load": load}, {}))
    made.add("same", ("a", "b"), (0.5, 0.7))
    made.add("same", ("a.load0.3", "b.cap50"), (0.99, 0.4), settings=({"load": 0.3}, {"cap": 50}))
    sweeps = {(sweep.victim, sweep.factor, sweep.role): sweep for sweep in _shown(made, tmp_path).sweeps}
    own = sweeps["a", "load", "its own"]
    assert [(point.value, point.ratio.median) for point in own.points] == [
        (0.3, IS(0.95)),
        (0.6, IS(0.8)),
        (1, IS(0.5)),
    ]
    assert sweeps["b", "load", "the neighbour's"].spread == IS(0.2)
    cap = sweeps["a", "cap_percent", "the neighbour's"]
    assert [(point.words, point.ratio.median) for point in cap.points] == [("50", IS(0.99)), ("no cap", IS(0.95))]
    assert cap.points[0].reached == IS(990)
    assert set(sweeps) == {
        ("a", "load", "its own"), ("b", "load", "the neighbour's"), ("a", "cap_percent", "the neighbour's"),
        ("b", "cap_percent", "its own"),
    }  # fmt: skip


def test_a_weight_that_is_not_set_is_the_default_one(tmp_path: Path) -> None:
    made = _rounds((0.5, 0.5))
    made.add("same", ("a.weight512", "b"), (0.7, 0.3), settings=({"weight": 512}, {}))
    sweep = next(sweep for sweep in _shown(made, tmp_path).sweeps if sweep.victim == "a")
    assert [(point.words, point.ratio.median) for point in sweep.points] == [("256", IS(0.5)), ("512", IS(0.7))]


def test_modes_are_compared_beside_the_same_neighbours(tmp_path: Path) -> None:
    made = Made()
    for mode, jitter in (("shared", 9.0), ("dedicated", 0.5)):
        both = {"mode": mode, "rate": 100}
        further = {"jitter_ms": (0.3, jitter), "timeouts_percent": (0.0, jitter)}
        for repeat in (1, 2):
            made.add(
                "same", (f"game.{mode}", f"bulk.{mode}"), (0.9, 0.9), repeat, settings=(both, both), further=further
            )
    made.add("same", ("game", "bulk"), (0.9, 0.9))
    made.add("same", ("game", "cpu"), (0.9, 0.9))
    of_workloads = _shown(made, tmp_path).modes
    assert [(modes.victim, modes.neighbours) for modes in of_workloads] == [("bulk", ("game",)), ("game", ("bulk",))]
    modes = {mode.mode: mode for mode in of_workloads[1].modes}
    assert list(modes) == ["none", "shared 100 Mbit/s", "dedicated 100 Mbit/s"]
    assert modes["shared 100 Mbit/s"].outcomes["jitter_ms"].median == 9.0
    assert modes["dedicated 100 Mbit/s"].ratios["jitter_ms"].median == IS(0.5 / 0.3)
    assert "timeouts_percent" not in modes["shared 100 Mbit/s"].ratios  # nothing is a multiple of none


@settings(max_examples=examples(20))
@given(rounds=st.lists(st.floats(0.3, 1.1), min_size=2, max_size=7))
def test_more_results_are_within_a_wider_limit(tmp_path_factory: pytest.TempPathFactory, rounds: list[float]) -> None:
    made = _rounds(*((ratio, 1.0) for ratio in rounds))
    made.add("same", ("a", "c"), (0.5, 0.5))
    counts = _shown(made, tmp_path_factory.mktemp("made")).narrow
    assert [count.within for count in counts] == list(WIDTHS)
    assert all(few.count <= many.count for few, many in pairwise(counts))
    assert {(count.results, count.unknown) for count in counts} == {(4, 2)}
    assert counts[0].count >= 1  # b beside a is the same every time


def test_noise_is_the_variation_of_solo_throughput(tmp_path: Path) -> None:
    made = Made()
    for repeat, solo in ((1, 900.0), (2, 1100.0)):
        made.add("same", ("a", "b"), (0.5, 0.5), repeat, solo=solo)
    noise = _shown(made, tmp_path).noise["a"]["same 0:0"]
    assert (noise.median, noise.cv) == (1000, IS(141.42 / 1000, rel=1e-3))


def test_marked_runs_are_counted_and_their_effect_reported(tmp_path: Path) -> None:
    made = Made()
    for repeat, ratio in ((1, 0.5), (2, 0.5), (3, 0.2)):
        made.add("same", ("a", "b"), (ratio, 0.9), repeat, disturbed=repeat == 3, unsteady=repeat == 1)
    shown = _shown(made, tmp_path)
    disturbed, unsteady = shown.marks
    assert (shown.disturbed, disturbed.by_kind) == (1, {"group": (1, 3), "solo": (0, 6)})
    change = next(known for known in disturbed.changes if known.name == "a beside b")
    assert (change.marked, change.rounds, change.every, change.without) == (1, 3, IS(0.5), IS(0.5))
    assert next(known for known in unsteady.changes if known.name == "a beside b").change == IS(0.5 - 0.35)
    assert [(run.repeat, run.disturbed, run.unsteady) for run in shown.marked] == [(1, False, True), (3, True, False)]


def test_a_disturbed_solo_run_marks_what_is_compared_with_it(tmp_path: Path) -> None:
    made = _rounds((0.5, 0.9), (0.5, 0.9))
    made.rows["runs"] = [(*row[:8], 1, *row[9:]) if row[:2] == ("solo:a:0", 2) else row for row in made.rows["runs"]]
    disturbed = _shown(made, tmp_path).marks[0]
    assert [(change.name, change.marked) for change in disturbed.changes] == [("a beside b", 1)]


def test_groups_whose_cpus_had_another_speed_than_alone_are_counted(tmp_path: Path) -> None:
    made = _rounds((0.5, 0.9), (0.5, 0.9), (0.5, 0.9))
    assert [marks.mark for marks in _shown(made, tmp_path / "without").marks] == ["disturbed", "unsteady"]
    speed = {("same:a:b", 1): 1.05, ("same:a:b", 2): 0.85, ("same:a:b", 3): 1.0}
    made.rows["runs"] = [(*row, speed.get((str(row[0]), int(str(row[1]))), 1.0)) for row in made.rows["runs"]]
    assert _shown(made, tmp_path / "with").marks[2].by_kind == {"group": (1, 3), "solo": (0, 6)}


def test_courses_follow_the_clock_and_need_three_rounds(tmp_path: Path) -> None:
    made = Made()
    for repeat, ratio in ((1, 0.5), (2, 0.7), (3, 0.6)):
        made.clock = START + timedelta(hours=repeat)
        made.add("same", ("a", "b"), (ratio, 0.9), repeat)
        if repeat < 3:
            made.add("same", ("a", "c"), (0.1 * repeat, 0.9), repeat)
    courses = _shown(made, tmp_path).courses["T/B of pairs"]
    assert courses.known == 2
    first = courses.of[0]
    assert first.name == "a beside b (same)"
    assert [((when - START).total_seconds() / 3600, value) for when, value in first.points] == [
        (1, IS(0.5)), (2, IS(0.7)), (3, IS(0.6)),
    ]  # fmt: skip
