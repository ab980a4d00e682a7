"""`cotenant models`: what is printed of models, verdicts and history, and how a refusal looks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import Result

from api.cli.registry import print_model
from api.schemas.quality import ModelOut
from tests.api import cli_runs
from tests.models import made_models


@pytest.fixture(scope="module")
def trained() -> Path:
    return made_models.fitted()


@pytest.fixture(autouse=True)
def _three_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Path) -> Iterator[None]:
    """In the state folder, none of them registered."""
    monkeypatch.chdir(tmp_path)
    for version, off in (("m-good", 0.02), ("m-fair", 0.06), ("m-bad", 0.2)):
        made_models.make(trained, Path("var/models"), version, off)
    yield


def run(*arguments: str) -> Result:
    return cli_runs.run("models", *arguments)


def test_what_the_gate_refuses_is_reported_in_one_line_with_the_option_that_overrules_it() -> None:
    result = run("activate", "m-bad")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "cotenant: model m-bad is refused by the gate (throughput, unseen_pair: worse than the analytic model"
    )
    assert line.endswith("; train on more, or activate it with --force")
    assert run("activate", "m-bad", "--force").stdout == "Model m-bad is active now.\n"


def test_the_list_shows_status_and_verdict() -> None:
    run("activate", "m-good")
    run("activate", "m-bad")
    rows = [line.split() for line in run("list").stdout.splitlines()]
    assert rows[0][:3] == ["version", "status", "gate"]
    assert {tuple(row[:3]) for row in rows[1:3]} == {("m-good", "active", "passed"), ("m-bad", "candidate", "refused")}
    assert rows[3] == ["analytic", "candidate", "built", "in", "analytic"]


def test_the_gate_can_be_asked_and_says_by_its_exit_code_what_it_found() -> None:
    run("activate", "m-good")
    run("activate", "m-fair")  # refused, but registered
    refused = run("gate", "m-fair")
    assert refused.exit_code == 1
    lines = refused.stdout.splitlines()
    assert lines[0] == "The gate refuses it, compared with the analytic model and m-good:"
    assert lines[1].startswith("  throughput, unseen_pair: worse than the active model, mean error 0.06")
    assert run("gate", "m-good").exit_code == 0
    found = json.loads(run("gate", "m-fair", "--json").stdout)
    assert found["verdict"]["figures"][0]["active"]["difference"] == pytest.approx(0.04, abs=0.003)
    assert "needs no gate" in run("gate", "analytic").stdout


def test_rollback_and_history_tell_who_answered() -> None:
    assert run("rollback").exit_code == 1
    assert run("history").stdout == "No learned model has ever been activated here.\n"
    run("activate", "m-fair")
    run("activate", "m-good")
    assert run("rollback").stdout == "Model m-fair is active now.\n"
    rows = [line.split()[2:] for line in run("history").stdout.splitlines()[1:]]
    assert rows == [
        ["analytic", "m-fair", "activate"],
        ["m-fair", "m-good", "activate"],
        ["m-good", "m-fair", "rollback"],
    ]
    history = json.loads(run("history", "--json").stdout)
    assert [one["cause"] for one in history] == ["activate", "activate", "rollback"]
    assert json.loads(run("rollback", "--json").stdout)["version"] == "analytic"


def test_a_model_is_scored_beside_the_active_one_until_the_prior_is() -> None:
    run("activate", "m-good")
    run("activate", "m-fair")
    assert run("shadow", "m-fair").stdout == "Model m-fair is scored beside the active one from now on.\n"
    assert json.loads(run("show", "m-fair", "--json").stdout)["status"] == "shadow"
    assert run("shadow", "analytic").stdout == "No learned model is scored beside the active one from now on.\n"
    assert json.loads(run("shadow", "m-fair", "--json").stdout)["status"] == "shadow"
    assert run("shadow", "m-good").exit_code == 1


def test_a_model_is_shown_with_training_data_figures_verdict_libraries_and_history() -> None:
    run("activate", "m-good")
    shown = run("show", "m-good").stdout
    card = json.loads(Path("var/models/m-good/card.json").read_text(encoding="utf-8"))
    for words in (
        "rows by origin",
        "simulated 100 %",
        "trained on:",
        card["datasets"][0]["sha256"][:12],
        "held out, as judged at the training:",
        "unseen_workload",
        "The gate passes it, compared with the analytic model:",
        "throughput, unseen_pair: mean error 0.02",
        "libraries: lightgbm ",
        "activate",
    ):
        assert words in shown, words
    assert card["datasets"][0]["sha256"] not in shown


def test_a_card_of_another_shape_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Cards come from files; what a table does not fit is printed plainly, and control characters are not obeyed."""
    odd = {
        "datasets": "none",
        "figures": {"a": 1},
        "libraries": ["x"],
        "metrics": ["cpu", "wait\x1b[2J"],
        "deep": {"x": 1.23456},
    }
    model = ModelOut(version="m", status="candidate", created_at=datetime(2026, 1, 1, tzinfo=UTC), origin="?", card=odd)
    print_model(model)
    shown = capsys.readouterr().out
    for words in ("datasets", "none", "figures.a", "libraries", "deep.x", "1.235"):
        assert words in shown, words
    assert "\x1b" not in shown
