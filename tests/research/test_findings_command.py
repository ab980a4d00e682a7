"""`cotenant-research findings`: papers, measurements and predictions side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli.lazy import WRONG_USAGE
from research.cli import app
from research.findings.command import FindingOut
from research.findings.paper_statements import row


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_findings_stand_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: dict[str, Any] = {"title": "t", "measured": "x", "measured_verdict": "disagrees", "source": "lab"}
    reported |= {
        "predicted_verdict": "agrees",
        "left_out": 1.2,
        "left_out_verdict": "disagrees",
        "remark": "It differs.",
    }
    rows = [{**row("N3", "s", "q", 1.58, 1.512345), **reported, "basis": "fitted: a constant"}]
    rows += [{**row("E1", "s", "q", "> 1 ms", None), **reported, "kind": "statement"} for _ in range(6)]
    monkeypatch.setattr("research.findings.findings", lambda *_, **__: rows)
    lines = run("findings").stdout.splitlines()
    assert lines[0].split() == ["N3", "t"]
    assert [word for word in lines[1].split() if word != "measured"][:2] == ["situation", "paper"]
    assert lines[2].split() == ["s", "1.58", "x", "disagrees", "lab", "1.512", "(fitted)", "agrees", "1.2", "disagrees"]
    assert "   and 2 more printed figures: --json" in lines
    assert "   It differs." in lines
    assert (
        "Measured, of 6 printed statements: none, 0 shown and not judged, 6 not measured; "
        "0 more say how the papers measured." in lines
    )
    assert "Fitted, so that agreement proves nothing: 1 agree; mean error 0.068 of 1 figures." in lines
    assert "The same without their finding: 1 disagree; mean error 0.380 of 1 figures." in lines
    assert json.loads(run("findings", "--json").stdout) == rows
    assert set(rows[0]) == set(FindingOut.model_fields)


def test_datasets_that_are_not_there_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_DATASETS_DIR", str(tmp_path))
    result = run("findings")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        WRONG_USAGE, f"cotenant-research: {tmp_path} holds no dataset named papers",
    )  # fmt: skip
