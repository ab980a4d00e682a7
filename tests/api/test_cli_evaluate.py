"""`cotenant evaluate`: what is asked of the service, and how figures, curves and refusals are shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from tests.api import cli_runs

pytestmark = pytest.mark.usefixtures("_empty_folder")

ERRORS = {
    "mape": 0.0412345, "mae": 0.02, "mape_slowdown": 0.05, "mape_interfering": 0.12, "coverage": 0.9,
    "intervals": {"mae": [0.01, 0.03]}, "rank": 1.0,
}  # fmt: skip
EVALUATION: dict[str, Any] = {
    "dataset": "lab",
    "origin": "measured",
    "rows": 12,
    "workloads": 3,
    "platforms": 1,
    "columns": 8,
    "limits": {},
    "average_rank": {"cotenant": 1.0},
    "protocols": {
        "unseen_pair": {
            "models": {"cotenant": ERRORS, "ones": {"mape": 0.3, "coverage": None}},
            "noise": {"mae": 0.015, "mape": 0.02, "rows": 10},
            "difference": {"mae": {"baseline": "ones", "value": -0.28, "interval": [-0.3, -0.26]}},
        },
        "pairs_to_n": {"skipped": "the dataset has no run of three or more instances", "models": {}},
    },
}


def run(*arguments: str) -> Result:
    return cli_runs.run("evaluate", *arguments)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the service was asked; it answers with EVALUATION."""
    found: dict[str, Any] = {}

    def answer(datasets: list[Path], **given: Any) -> dict[str, Any]:
        found.update(given, datasets=datasets)
        return EVALUATION if len(datasets) == 1 else {"datasets": [EVALUATION] * 2, "average_rank": {"cotenant": 1.5}}

    monkeypatch.setattr("api.cli.learn.offline.evaluate", answer)
    return found


def test_a_table_is_shown_for_each_protocol(asked: dict[str, Any]) -> None:
    lines = run("--dataset", "lab").stdout.splitlines()
    assert asked["protocols"] == ("unseen_pair", "unseen_workload")
    assert lines[0] == "lab: 12 rows"
    assert lines[2] == "unseen_pair"
    assert lines[4].split() == ["cotenant", "0.04123", "0.02", "0.01", "to", "0.03", "0.05", "0.12", "0.9", "1"]
    assert lines[5].split() == ["ones", "0.3"]
    assert lines[6] == "noise of repeats: mae 0.015, mape 0.02 (10 rows)"
    assert lines[7] == "mae: cotenant minus ones is −0.28 -0.3 to -0.26"
    assert lines[9] == "pairs_to_n: skipped, the dataset has no run of three or more instances"


def test_json_has_everything_in_the_shape_of_the_contract(asked: dict[str, Any]) -> None:
    assert json.loads(run("--dataset", "lab", "--json").stdout) == EVALUATION


def test_several_datasets_are_shown_with_the_mean_rank_over_all(asked: dict[str, Any]) -> None:
    lines = run("--dataset", "a", "--dataset", "b").stdout.splitlines()
    assert asked["datasets"] == [Path("a"), Path("b")]
    assert lines.count("lab: 12 rows") == 2
    assert lines[-3:] == ["Mean rank over all of these (1 = best)", "model     rank", "cotenant   1.5"]


def test_options_reach_the_service(asked: dict[str, Any]) -> None:
    result = run("--dataset", "lab", "--protocol", "unseen_pair", "--models", "cotenant, mean", "--report", "o.html")
    assert asked["protocols"] == ["unseen_pair"]
    assert asked["models"] == ["cotenant", "mean"]
    assert asked["together"] is False
    assert asked["report"] == Path("o.html")
    assert result.stdout.splitlines()[-1] == "The report is in o.html."
    run("--dataset", "a", "--dataset", "b", "--together")
    assert asked["together"] is True


def test_a_dataset_that_is_not_there_is_refused() -> None:
    result = run("--dataset", "nope")
    assert result.exit_code == 2
    assert "nope" in result.stderr.splitlines()[-1]


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_read() -> None:
    result = run("--dataset", "nope", "--report", "no/such/folder.html")
    assert result.exit_code == 2
    assert "the report cannot be written: folder" in result.stderr
    assert "does not exist" in result.stderr
