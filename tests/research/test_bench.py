"""`cotenant-research bench`: what is compared, which verdict an interval gives, and how the table is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from api.cli.lazy import WRONG_USAGE
from models.data.dataset import load_dataset
from models.executor import Here
from models.physics.prior import PriorPredictor
from research.arena.balancers import proxmox
from research.arena.clusters import NewVmCluster
from research.arena.contest import rules
from research.arena.rebalances import STAY
from research.bench import comparisons
from research.bench.comparisons import Comparison, Extent, Question, Verdict, compared, verdict
from research.bench.report import cells, headline
from research.benchmarks.newcomers import BUSY
from research.cli import app
from research.prediction_by_mechanism import rows_of
from tests.models.made_models import fitted, limit_trees
from tests.models.synthetic import World


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def unheard(_part: float) -> None:
    """Progress that nothing shows."""


@pytest.fixture
def datasets(tmp_path: Path) -> Path:
    """Three campaigns of one made-up cloud each."""
    for seed in range(3):
        World(4, seed=seed, repeats=1).write(tmp_path / f"d{seed}")
    return tmp_path


def one(question: Question, baseline: str, less: float, how: Verdict, note: str = "") -> Comparison:
    return Comparison(question, "figure", "simulated", "two", 1.0, baseline, 1 + less, less, less, less, how, note)


def test_each_campaign_is_left_out_and_the_analytic_model_errs_as_it_does_alone(
    datasets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_trees(monkeypatch, 5, boosters=1)
    heard: list[float] = []
    found = {row.baseline: row for row in comparisons.prediction(Extent(), datasets, Here(), heard.append)}
    errors = [
        np.mean([abs(row.expected - row.measured) for row in rows_of(load_dataset(datasets / name), PriorPredictor())])
        for name in ("d0", "d1", "d2")
    ]
    assert set(found) == {"analytic model", "LightGBM of the correction", "ridge regression"}
    analytic = found["analytic model"]
    assert analytic.of_baseline == pytest.approx(float(np.mean(errors)), abs=1e-6)
    assert analytic.less == pytest.approx(analytic.of_baseline - analytic.cotenant)
    assert {row.cases for row in found.values()} == {"3 campaigns, each left out"}
    assert heard == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_rules_place_the_same_new_vms_in_the_same_cloud() -> None:
    found = comparisons.placement(Extent(clouds=1, new_vms=3), fitted(), Here(), unheard)
    cloud = NewVmCluster.draw(1, BUSY, 3, kinds=False, never_known=False)
    by_nova = cloud.judged(rules(NewVmCluster.columns)["Nova's weighers"](cloud))["simulated short, %"]
    assert [row.baseline for row in found] == ["analytic model", "Nova's weighers", "least loaded", "random"]
    assert found[1].of_baseline == pytest.approx(by_nova)
    assert {(row.data, row.cases) for row in found} == {("simulated", "clouds 1 to 1")}


def test_a_balancer_stands_beside_a_plan_of_no_more_moves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def packed(_: object) -> NoReturn:
        raise AssertionError("who empties hosts is asked")

    asked = {"Proxmox VE 9.2's rule": proxmox, "OneDRS' rule, pack": packed}
    monkeypatch.setattr("research.benchmarks.peers.__main__.BALANCERS", asked)
    found = comparisons.planning(Extent(plans=1), tmp_path, Here(), unheard)
    stay, rule = found
    assert (stay.baseline, rule.baseline) == (STAY, "Proxmox VE 9.2's rule")
    assert stay.note.startswith("0.0 moves, 0.0 rules broken, 0.0 moves impossible")
    theirs, ours = (float(part.split(" moves")[0].split()[-1]) for part in rule.note.split(";"))
    assert ours <= theirs
    assert (stay.lower, stay.upper, stay.verdict) == (None, None, "within noise")  # one cloud says nothing of chance


def test_a_question_is_timed_beside_the_analytic_model_and_nova() -> None:
    found = comparisons.speed(Extent(hosts=20), fitted())
    assert [row.baseline for row in found] == ["analytic model", "Nova's weighers, choice alone"]
    assert all(row.cotenant > 0 and row.of_baseline > 0 for row in found)
    assert {row.cases for row in found} == {"9 questions to 20 hosts"}


def test_questions_are_answered_in_one_order_and_all_of_the_work_is_heard_of(
    datasets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparisons, "executor", Here)
    monkeypatch.setattr(comparisons, "planning", lambda *_: [one("planning", "a", 1.0, "better")])
    monkeypatch.setattr(comparisons, "prediction", lambda *_: [one("prediction", "b", 1.0, "better")])
    heard: list[tuple[str, float]] = []
    found = list(compared(["planning", "prediction"], Extent(), datasets, datasets, lambda *it: heard.append(it)))
    assert [row.question for row in found] == ["prediction", "planning"]
    assert [what for what, _ in heard] == ["prediction", "planning", "done"]
    assert [part for _, part in heard] == pytest.approx([0.0, 0.55 / 0.70, 1.0])


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((0.1, 0.2), "better"), ((-0.2, -0.1), "worse"), ((-0.1, 0.2), "within noise"), (None, "within noise")],
)
def test_less_of_a_figure_beyond_noise_is_better(ends: tuple[float, float] | None, expected: Verdict) -> None:
    assert verdict(ends) == expected


def test_the_headline_names_every_baseline_that_wins() -> None:
    rows = [one("prediction", "ridge", 0.1, "better"), one("speed", "Nova", -9.0, "worse")]
    assert headline(rows) == "Cotenant is better beyond noise in 1 of 2 comparisons, worse in 1: Nova (speed)."
    assert headline(rows[:1]) == "Cotenant is better beyond noise in 1 of 1 comparisons, worse in 0."


def test_cells_have_the_digits_of_their_question() -> None:
    row = one("planning", "Incus", 0.256, "better", "9 moves")
    assert cells(row)[2:7] == ["1.00", "Incus (9 moves)", "1.26", "0.26 (0.26 to 0.26)", "better"]


def test_the_table_is_printed_as_columns_as_json_and_as_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [one("prediction", "ridge", 0.1, "better"), one("speed", "Nova", -9.0, "worse")]
    monkeypatch.setattr("research.bench.command.compared", lambda *_: iter(rows))
    page = tmp_path / "bench.html"
    lines = run("bench", "--quick", "--report", str(page)).stdout.splitlines()
    assert lines[1].split()[:5] == ["prediction", "figure", "1.000", "ridge", "1.100"]
    assert "worse in 1: Nova (speed)." in lines[4]
    assert "Nova" in page.read_text(encoding="utf-8")
    result = json.loads(run("bench", "--quick", "--json").stdout)
    assert result["quick"] is True
    assert [(row["baseline"], row["verdict"]) for row in result["comparisons"]] == [
        ("ridge", "better"),
        ("Nova", "worse"),
    ]


def test_a_question_that_does_not_exist_is_refused_with_those_that_do() -> None:
    result = run("bench", "--only", "beauty")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        WRONG_USAGE,
        "cotenant-research: --only beauty is no question: write one of prediction, placement, planning, speed",
    )


def test_a_folder_without_campaigns_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_DATASETS_DIR", str(tmp_path))
    result = run("bench", "--only", "prediction")
    assert result.exit_code == WRONG_USAGE
    assert result.stderr.splitlines()[-1].startswith(f"cotenant-research: {tmp_path} holds no two campaigns")
