"""The papers' findings as the model sees them, with the paper's own rows left out of training."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.errors import InvalidInput
from advisor.settings import Settings
from research.findings import findings
from research.findings.command import FindingOut
from research.findings.tally import tally
from tests.models.made_models import limit_trees

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reported() -> list[tuple[str, float]]:
    """What was said while the rows were made, and how much was done by then."""
    return []


@pytest.fixture(scope="module", params=["few datasets", pytest.param("all datasets", marks=pytest.mark.measured)])
def rows(
    request: pytest.FixtureRequest, reported: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """With the largest datasets, of which no finding speaks, and all boosters and folds it takes ten times as long."""
    folder = tmp_path_factory.mktemp("datasets")
    all_of_it = request.param == "all datasets"
    for dataset in (ROOT / "datasets").iterdir():
        if all_of_it or not dataset.name.startswith(("lab-pairs", "lab-colocations", "lab-neighbours")):
            (folder / dataset.name).symlink_to(dataset)
    if not all_of_it:  # one small table to learn from beside the papers
        small = Path(shutil.copytree(ROOT / "datasets" / "lab-neighbours", folder / "lab-neighbours"))
        about = yaml.safe_load((small / "dataset.yaml").read_text(encoding="utf-8"))
        kept = {name: value for name, value in about.items() if name not in {"status", "superseded_by"}}
        (small / "dataset.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    reported.clear()
    with pytest.MonkeyPatch.context() as patch:
        if not all_of_it:
            limit_trees(patch, trees=None, boosters=1, folds=3)
        return findings(Settings(datasets_dir=folder), None, lambda what, done: reported.append((what, done)))


def _of(rows: list[dict[str, Any]], finding: str, situation: str) -> dict[str, Any]:
    return next(row for row in rows if row["finding"] == finding and row["situation"].startswith(situation))


def test_every_finding_has_a_row_with_a_paper_figure(rows: list[dict[str, Any]]) -> None:
    expected = {f"N{n}" for n in range(1, 16)} | {f"E{n}" for n in range(1, 7)}
    expected |= {f"L{n}" for n in range(1, 11)} | {f"C{n}" for n in range(1, 6)}
    assert {row["finding"] for row in rows if row["paper"] is not None} == expected


@pytest.mark.usefixtures("rows")
def test_progress_says_how_far_the_training_without_the_papers_and_each_paper_is(
    reported: list[tuple[str, float]],
) -> None:
    done = [share for _what, share in reported]
    assert done == sorted(done) and done[0] >= 0 and done[-1] <= 1
    assert sum(what.startswith("without the papers, ") for what, _done in reported) >= 10
    for paper in ("latency-sensitive-cloud-2010", "who-is-your-neighbor-2012"):
        assert f"predicting {paper}" in [what for what, _done in reported]


def test_the_rows_are_as_the_schema_of_the_command_says(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert set(row) == set(FindingOut.model_fields)
        FindingOut.model_validate(row)


def test_best_and_worst_pairs_of_n3_are_ordered_as_printed(rows: list[dict[str, Any]]) -> None:
    order = _of(rows, "N3", "order of pairs")
    assert order["predicted"].startswith("1k+100k")
    assert order["predicted_verdict"] == "agrees"


@pytest.mark.parametrize(
    "situation", ["1k-best-and-worst", "guest-cpus-order-dom0-1", "guest-cpus-order-dom0-2", "CPUs of Dom0"]
)
def test_fitted_pinning_directions_of_n11_are_as_printed(rows: list[dict[str, Any]], situation: str) -> None:
    assert _of(rows, "N11", situation)["predicted_verdict"] == "agrees"


@pytest.mark.parametrize("situation", ["which pair contends least", "dom0-cpus", "net-cpu-assignment"])
def test_fitted_key_findings_of_n15_are_as_printed(rows: list[dict[str, Any]], situation: str) -> None:
    assert _of(rows, "N15", situation)["predicted_verdict"] == "agrees"


def test_caps_act_linearly_as_in_l5(rows: list[dict[str, Any]]) -> None:
    for cap in (10, 90):
        row = _of(rows, "L5", f"latency-cpu-cap-{cap}-competitor")
        assert row["paper"] == pytest.approx(cap / 100)
        assert row["predicted"] == pytest.approx(cap / 100, abs=0.05)


def test_what_this_host_can_show_was_measured_with_an_interval_and_every_finding_has_its_sentence(
    rows: list[dict[str, Any]],
) -> None:
    shown = {f"N{n}" for n in (*range(1, 14), 15)} | {f"E{n}" for n in range(1, 6)}
    shown |= {f"L{n}" for n in range(1, 11)} | {"C1", "C2", "C3"}
    repeats = {finding: [row["rounds"] for row in rows if row["finding"] == finding] for finding in shown}
    assert [finding for finding, counts in repeats.items() if max(counts) < 2] == []
    assert [row["finding"] for row in rows if not row["remark"]] == []
    # verdicts are the columns': a sentence that judges once more would stay when they change
    assert [row["remark"] for row in rows if row["remark"].lower().startswith(("agrees", "disagrees"))] == []


def test_measured_pairs_say_where_they_were_measured(rows: list[dict[str, Any]]) -> None:
    assert "lab-" in _of(rows, "N3", "1k+100k")["source"]


def test_every_prediction_says_what_it_rests_on_and_has_a_verdict_where_a_figure_is_printed(
    rows: list[dict[str, Any]],
) -> None:
    predictions = [row for row in rows if row["kind"] == "prediction"]
    for row in predictions:
        assert row["basis"] == "predicted" or row["basis"].startswith("fitted: ")
        assert (row["predicted_verdict"] is None) == (row["paper"] is None), row["situation"]
        assert (row["left_out_verdict"] is None) == (row["paper"] is None), row["situation"]
    weights = next(row for row in predictions if row["situation"] == "latency-cpu-weight-ratio-10: cpu")
    assert (weights["predicted_verdict"], weights["left_out_verdict"]) == ("agrees", "disagrees")
    assert weights["left_out"] == pytest.approx(10 / 11, abs=1e-3)
    assert [line for line in tally(rows) if line.startswith("Fitted") and "mean error" in line]


def test_a_folder_without_the_papers_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no dataset named papers"):
        findings(Settings(datasets_dir=tmp_path), None)
