"""The quality report: groups, sentences that say what to do, and models side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from models.evaluation.prediction_checks import WINDOW, CheckedPrediction, figures
from models.evaluation.quality import assess, compare
from tests.models.checked_rows import honest, one, series


def test_nothing_observed_says_how_to_observe() -> None:
    quality = assess("m-1", [], [])
    assert (quality.status, quality.groups, quality.beside) == ("no_data", (), ())
    assert "POST /v1/colocations" in quality.verdict[0]


def test_a_few_scenes_are_too_few_for_a_verdict() -> None:
    quality = assess("m-1", series([9.0] * 5), [])
    assert quality.status == "too_few"
    assert quality.verdict == ("5 scenes were observed, 20 are needed before anything is said about m-1.",)


def test_there_is_a_group_for_all_each_platform_and_each_workload_of_each_role_and_target() -> None:
    rows = [
        one(0, platform="I", workload="web"),
        one(1, platform="II", workload="db"),
        one(2, platform="II", workload="db", role="shadow", target="latency"),
    ]
    groups = [(group.role, group.target, group.scope, group.name) for group in assess("m-1", rows, []).groups]
    assert groups == [
        ("active", "throughput", "all", ""),
        ("active", "throughput", "platform", "I"),
        ("active", "throughput", "platform", "II"),
        ("active", "throughput", "workload", "db"),
        ("active", "throughput", "workload", "web"),
        ("shadow", "latency", "all", ""),
        ("shadow", "latency", "platform", "II"),
        ("shadow", "latency", "workload", "db"),
    ]


def test_a_group_looks_at_its_own_last_rows_only() -> None:
    rows = [*series(np.full(50, 3.0)), *(replace(row, source="n" + row.source) for row in series(honest(30, 1)))]
    quality = assess("m-1", rows, [], window=30)
    assert quality.groups[0].figures == figures(rows[-30:])


def test_drift_is_named_with_group_time_size_and_advice() -> None:
    offs = honest(WINDOW, 2)
    offs[100:] -= 1.5
    rows = [*series(honest(WINDOW, 1), platform="I", workload="web"), *series(offs, platform="II", workload="db")]
    rows = [replace(row, source=f"{row.source}{row.platform}") for row in rows]
    quality = assess("m-1", sorted(rows, key=lambda row: (row.time, row.platform)), [])
    assert quality.status == "drift"
    on_ii = [text for text in quality.verdict if text.startswith("On platform II: ")]
    assert any(
        "throughput has been 1" in text and "% below what m-1 expects since 2026-01-01" in text for text in on_ii
    )
    assert all("`cotenant probe-plan`" in text and "train" in text for text in quality.verdict)
    assert not any("On platform I:" in text or "workload web" in text for text in quality.verdict)
    widenings = {group.name: group.widening for group in quality.groups if group.scope == "platform"}
    assert widenings["I"] == 1.0
    assert (widenings["II"] or 0) > 1.2


def test_a_drift_outside_the_training_data_says_so() -> None:
    quality = assess("m-1", series(np.full(60, 3.0), outside=True), [])
    assert all("outside the training data" in text for text in quality.verdict)


def other(rows: list[CheckedPrediction], version: str, seed: int, spread: float) -> list[CheckedPrediction]:
    """Another model's rows of the same measurements, which errs by `spread` half widths more or less."""
    errors = np.random.default_rng(seed).normal(size=len(rows)) * spread * 0.1
    return [
        replace(row, version=version, role="shadow", expected=row.observed * np.exp(error))
        for row, error in zip(rows, errors, strict=True)
    ]


def test_the_better_of_two_models_is_surely_better_on_enough_measurements() -> None:
    rows = series(honest(100, 1))
    (found,) = compare(rows, other(rows, "m-2", 2, 0.1))
    assert (found.other, found.role, found.rows, found.scenes) == ("m-2", "shadow", 100, 100)
    assert found.lower is not None
    assert 0 < found.lower < found.difference
    assert found.text.endswith("it is worse beyond the uncertainty.")
    assert "m-1 errs by" in found.text
    assert "more than m-2" in found.text


def test_equal_models_differ_by_chance() -> None:
    rows = series(honest(100, 1))
    (found,) = compare(rows, other(rows, "m-2", 2, 1 / 1.6449))
    assert found.text.endswith("that may be chance.")


def test_only_shared_measurements_are_compared_target_by_target() -> None:
    rows = [*series([0.1] * 4), *series([0.1] * 4, target="latency")]
    theirs = [*other(rows[:2], "m-2", 1, 1), *other(rows[4:], "m-2", 1, 1), one(99, version="m-2")]
    found = compare(rows, theirs)
    assert [(one.target, one.rows) for one in found] == [("throughput", 2), ("latency", 4)]


def test_one_scene_proves_nothing_however_many_instances_it_has() -> None:
    rows = [one(0, off=1.0, instance=str(number)) for number in range(50)]
    (found,) = compare(rows, other(rows, "m-2", 1, 0.0))
    assert (found.lower, found.upper) == (None, None)
    assert found.text.endswith("nothing follows.")


def test_instances_of_one_scene_are_drawn_together() -> None:
    """50 scenes of 10 equal rows are as uncertain as 50 rows."""
    single = series(honest(50, 1))
    tenfold = [replace(row, instance=str(number)) for row in single for number in range(10)]
    theirs = other(single, "m-2", 2, 0.3)
    (few,) = compare(single, theirs, window=1000)
    many_theirs = [replace(row, instance=str(number)) for row in theirs for number in range(10)]
    (many,) = compare(tenfold, many_theirs, window=1000)
    assert few.lower is not None
    assert many.lower is not None
    assert abs(few.lower - many.lower) < 1e-9
