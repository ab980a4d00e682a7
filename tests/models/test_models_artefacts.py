"""Ratios that the lab's on/off runs got wrong are held at what was asked, or set aside, and nothing else changes."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.data.dataset import load_dataset, throughput_ratio
from models.data.dataset_rules import without_artefacts
from models.features.examples import measured
from profiler.observed import Colocation, Instance, Outcome

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
ANSWERED = "answers per question"
POSITIVE = st.floats(0.01, 10.0)


def pair(run: str, *outcomes: tuple[str, str, float, float, float | None]) -> Colocation:
    """A run of instances, each with its workload, unit, value alone and together, and the error of their ratio."""
    rows = tuple(
        Outcome(Instance(f"{workload}.{at}", workload=workload), "throughput", solo, together, unit, error)
        for at, (workload, unit, solo, together, error) in enumerate(outcomes, 1)
    )
    return Colocation(run, "p", "1", rows)


def ratios(colocations: tuple[Colocation, ...]) -> list[float | None]:
    return [throughput_ratio(outcome) for one in colocations for outcome in one.outcomes]


@pytest.mark.parametrize(
    ("together", "error", "kept"),
    [(0.5, 0.02, True), (1.05, 0.02, True), (1.07, 0.02, False), (0.5, 0.3, False), (2.0, 0.25, False)],
)
def test_a_ratio_above_1_and_three_errors_or_with_a_wide_error_is_set_aside(
    together: float, error: float, kept: bool
) -> None:
    (one,), counts = without_artefacts(
        [pair("same:a:b", ("a", "MB/s", 1.0, together, error), ("b", "x", 1, 0.9, 0.01))]
    )
    assert measured(one, "throughput") == ({"a.1": together} if kept else {}) | {"b.2": 0.9}
    assert (counts.rows, counts.set_aside) == (2, int(not kept))
    assert [outcome.instance.id for outcome in one.outcomes] == ["a.1", "b.2"]


@given(st.lists(st.tuples(POSITIVE, POSITIVE, st.floats(0.0, 9.0)), min_size=1, max_size=8))
def test_an_open_loop_is_relative_to_its_usual_value_alone_and_reaches_at_most_that(
    rows: list[tuple[float, float, float]],
) -> None:
    runs = [pair(f"same:w:x/{at}", ("w", ANSWERED, *row)) for at, row in enumerate(rows)]
    changed, counts = without_artefacts(runs)
    usual = median(row[0] for row in rows)
    assert ratios(changed) == pytest.approx([min(row[1] / usual, 1.0) for row in rows])
    assert counts.open_loops == len(rows)
    assert counts.at_most_asked == sum(row[1] > usual for row in rows)
    assert counts.set_aside == 0


def test_open_loops_of_other_pinning_forms_loads_and_workloads_have_another_usual_value() -> None:
    low = pair("different:w:x", ("w", ANSWERED, 0.5, 0.4, 0.1))
    high = pair("same:w:x", ("w", ANSWERED, 1.0, 0.8, 0.1))
    other = pair("same:v:x", ("v", ANSWERED, 2.0, 1.0, 0.1))
    assert ratios(without_artefacts([low, high, other])[0]) == pytest.approx([0.8, 0.8, 0.5])
    (half,) = high.outcomes
    part = replace(high, outcomes=(replace(half, instance=replace(half.instance, load=0.5), solo=0.4),))
    assert ratios(without_artefacts([high, part])[0]) == pytest.approx([0.8, 1.0])


@given(st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=5), st.sampled_from([ANSWERED, "MB/s"]))
def test_rows_without_a_standard_error_stay_as_they_are(rows: list[tuple[float, float]], unit: str) -> None:
    runs = tuple(pair(f"same:w:x/{at}", ("w", unit, *row, None)) for at, row in enumerate(rows))
    changed, counts = without_artefacts(runs)
    assert changed == runs
    assert counts.rows == 0


def test_latency_may_rise_beside_a_neighbour_by_any_factor() -> None:
    run = pair("same:w:x", ("w", "ms", 1.0, 9.0, 0.01))
    latency = replace(run, outcomes=tuple(replace(one, outcome="latency_mean_ms") for one in run.outcomes))
    assert without_artefacts([latency])[0] == (latency,)


@pytest.mark.parametrize("name", ["lab-pairs", "lab-pairs-disk-xeon-2cpu-disk60", "lab-xen"])
def test_shipped_tables_are_changed_in_as_many_rows_as_their_text_says(name: str) -> None:
    with (DATASETS / name / "colocations.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["outcome"] == "throughput" and row["ratio_se"]]
    closed = [
        (float(row["colocated"]) / float(row["solo"]), float(row["ratio_se"]))
        for row in rows
        if row["unit"] != ANSWERED
    ]
    counts = load_dataset(DATASETS / name).artefacts
    assert counts.rows == len(rows)
    assert counts.open_loops == len(rows) - len(closed)
    assert counts.unsure == sum(error > 0.25 for _, error in closed)
    assert counts.above_alone == sum(error <= 0.25 and ratio > 1 + 3 * error for ratio, error in closed)
    assert counts.set_aside > 0


def test_no_pair_that_models_learn_from_is_far_faster_than_alone() -> None:
    data = load_dataset(DATASETS / "lab-pairs")
    assert max(ratio for one in data.colocations for ratio in measured(one, "throughput").values()) < 1.5
