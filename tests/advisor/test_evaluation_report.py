"""The report of an evaluation: words that say what the figures say, pictures, and a file that needs no other."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor import reports
from advisor.errors import InvalidInput
from advisor.reports import evaluation as words
from advisor.reports.evaluation import evaluation_report
from advisor.reports.files import page as page_of
from advisor.reports.parts import NBSP
from models.evaluation.run import Evaluation, ScatterPoints
from tests.api import cli_runs

FIGURES: dict[str, Any] = {
    "mape": 0.034, "mae": 0.021, "p90_abs_error": 0.049, "spearman": 0.9, "pair_ranking_accuracy": 0.934,
    "mape_slowdown": 0.03, "mape_interfering": 0.05, "coverage": 0.9123, "interval_width": 0.1,
    "error_over_noise": {"mae": 1.21, "mape": 1.3}, "seconds": 1.0, "rank": 1.0,
    "intervals": {"mae": [0.019, 0.024], "mape": [0.03, 0.04], "coverage": [0.89, 0.93]},
}  # fmt: skip
PLAIN = {**FIGURES, "mae": 0.03, "coverage": None, "interval_width": None, "error_over_noise": None, "rank": 2.0}
PLAIN["intervals"] = {"mae": None, "mape": None, "coverage": None}
LABELS = [{"label": f"lab/p<{at}>", "rows": 9, "mae": 0.02, "mape": 0.03, "prior_mae": 0.05, "coverage": 0.9}
          for at in range(2)]  # fmt: skip
PROTOCOL: dict[str, Any] = {
    "rows": 100, "folds": 10, "noise": {"mae": 0.0175, "mape": 0.02, "rows": 90},
    "best_baseline": {"mae": "knn", "mape": "knn"},
    "difference": {"mae": {"baseline": "knn", "value": -0.009, "interval": [-0.011, -0.005]}},
    "models": {"cotenant": FIGURES, "knn": PLAIN},
    "by_platform": LABELS, "by_resource": LABELS,
    "by_predicted": [{"predicted": at / 4, "measured": at / 4, "rows": 25, "coverage": 0.9} for at in (1, 2, 3)],
}  # fmt: skip


def as_html(evaluations: list[Evaluation]) -> str:
    return page_of(evaluation_report(evaluations), beside=False)


def evaluation(**protocols: Any) -> Evaluation:
    """An evaluation with these protocols, unseen_pair if none is named."""
    found = protocols or {"unseen_pair": PROTOCOL}
    figures = {
        "dataset": "a<b>", "origin": "measured", "rows": 100, "workloads": 9, "platforms": 1, "columns": 30,
        "limits": {"knn": "at most 10 rows"}, "average_rank": {}, "protocols": found,
    }  # fmt: skip
    points = ScatterPoints(np.array([0.5, 1.0]), np.array([0.6, 0.9]), np.array([True, False]))
    return Evaluation(figures, {name: points for name, one in found.items() if one["models"]})


def test_the_summary_says_what_the_figures_say() -> None:
    said = words.summary("unseen_pair", PROTOCOL)
    assert said[0].startswith("Unseen pairs: off by 2.1 percentage points of the throughput alone on average (95")
    assert "1.9–2.4" in said[0]
    assert said[1] == "Compared with the best baseline, knn, it is better by 0.9 (difference −1.1 to −0.5)."
    assert said[2] == f"Its 90{NBSP}% intervals held 91.2{NBSP}% of the rows."
    assert "1.21 times" in said[3]
    assert "93.4" in said[4]


def test_what_is_worse_or_cannot_be_distinguished_is_called_so() -> None:
    found = deepcopy(PROTOCOL)
    found["difference"]["mae"] |= {"value": 0.009, "interval": [0.005, 0.011]}
    found["models"]["cotenant"]["coverage"] = 0.8
    said = " ".join(words.summary("unseen_pair", found))
    assert "it is worse by 0.9" in said
    assert "of the rows, not as claimed." in said
    found["difference"]["mae"] |= {"interval": [-0.005, 0.011]}
    assert "not significantly different" in " ".join(words.summary("unseen_pair", found))


@pytest.mark.usefixtures("undrawn")
def test_a_protocol_that_was_skipped_says_why_and_has_no_section() -> None:
    page = as_html([evaluation(pairs_to_n={"skipped": "no run of three", "models": {}})])
    assert "From pairs to more: skipped, no run of three." in page
    assert "<h2>From pairs to more" not in page


def test_the_page_needs_no_other_file_escapes_names_and_is_the_same_for_the_same_evaluation() -> None:
    page = as_html([evaluation()])
    assert page == as_html([evaluation()])
    assert "a&lt;b&gt;" in page
    assert "<b>" not in page
    assert not re.search(r"(src|href)=\"(?!#)", page)
    assert "http" not in page
    assert page.count("<svg ") == 5
    assert not re.search(r"#0a00[01]\d", page)  # every colour is the page's own


@pytest.mark.usefixtures("undrawn")
def test_compositions_stand_in_the_same_table() -> None:
    page = as_html([evaluation(pairs_to_n={**PROTOCOL, "compositions": {"compose_max": PLAIN}})])
    table = page[page.index("<caption>Every model") :]
    assert ">compose_max</th>" in table[: table.index("</table>")]


@pytest.mark.usefixtures("undrawn")
def test_several_datasets_have_a_mean_rank_over_all() -> None:
    other = evaluation(unseen_pair={**PROTOCOL, "models": {**PROTOCOL["models"], "cotenant": {**FIGURES, "rank": 3.0}}})
    page = as_html([evaluation(), other])
    assert "Mean rank over all datasets" in page
    assert re.search(r"<th scope=\"row\" class=\"name[^\"]*\">cotenant</th>\s*<td class=\"number\">2</td>", page)


@pytest.mark.usefixtures("undrawn")
def test_an_evaluation_without_our_own_method_is_shown_too() -> None:
    found = {"models": {"knn": PLAIN}, "rows": 10, "folds": 1, "noise": None, "difference": None}
    page = as_html([Evaluation(evaluation(unseen_pair=found).figures, {})])
    assert "no figure of the model itself" in page


@pytest.mark.usefixtures("undrawn")
def test_what_the_pictures_show_stands_in_the_data(tmp_path: Path) -> None:
    reports.write_evaluation_report([evaluation()], tmp_path / "out")
    reported = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["tables"]
    ours = reported["d0-unseen_pair"][0]
    assert (ours["model"], ours["mae"], ours["mae_lower"], ours["mae_upper"]) == ("cotenant", 0.021, 0.019, 0.024)
    assert [row["coverage"] for row in reported["d0-unseen_pair-predicted"]] == [0.9] * 3
    assert len(reported["d0-unseen_pair-platform"]) == len(reported["d0-unseen_pair-resource"]) == 2
    assert reported["d0-unseen_pair-points"] == [
        {"measured": 0.5, "predicted": 0.6, "held": "yes"},
        {"measured": 1.0, "predicted": 0.9, "held": "no"},
    ]


@pytest.mark.usefixtures("undrawn")
def test_a_folder_with_a_former_report_is_replaced_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports.write_evaluation_report([evaluation()], tmp_path / "out")
    (tmp_path / "out" / "former.csv").write_text("")
    monkeypatch.setattr("advisor.lifecycle.training.evaluate", lambda *_, **__: (evaluation(),))
    answer = cli_runs.run("evaluate", "--dataset", str(tmp_path), "--report", str(tmp_path / "out"))
    assert answer.exit_code == 0, answer.output
    assert not (tmp_path / "out" / "former.csv").exists()


@pytest.mark.usefixtures("undrawn")
def test_the_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    reports.write_evaluation_report([evaluation()], path)
    whole = path.read_text(encoding="utf-8")
    assert whole.rstrip().endswith("</html>")
    with pytest.raises(InvalidInput, match="does not exist"):
        reports.write_evaluation_report([evaluation()], tmp_path / "none" / "out.html")
    assert [one.name for one in tmp_path.iterdir()] == ["out.html"]
