"""The lab's command line: exit codes and errors of one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli import main
from tests.lab.lab_commands import TINY

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["show", "none"], 1, "name a directory that lab run wrote"),
        (["run", str(TINY), "--dataset", "file", "--dry-run"], 1, "journal.jsonl cannot be read"),
        (["run", "."], 2, "cannot be read: Is a directory"),
    ],
)
def test_a_failure_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str], code: int, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert main(arguments) == code
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert complaint in errors


def test_a_wrong_campaign_is_wrong_usage(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: x\n")
    assert main(["run", str(path), "--dataset", str(tmp_path / "out")]) == 2
    assert "workloads" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rounds_cannot_be_asked_for_beside_a_time_grid(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(TINY.read_text(encoding="utf-8") + "temporal: {every_min: 1, hours: 1}\n", encoding="utf-8")
    assert main(["run", str(path), "--dataset", str(tmp_path / "out"), "--dry-run", "--rounds", "2"]) == 2
    assert "leave out --rounds" in capsys.readouterr().err
    assert main(["run", str(path), "--dataset", str(tmp_path / "out"), "--dry-run"]) == 0


def test_a_campaign_may_be_measured_on_another_host(tmp_path: Path, capsys: Captured) -> None:
    assert main(["run", str(TINY), "--dataset", str(tmp_path / "out"), "--dry-run", "--platform", "xeon"]) == 0
    assert "-xeon: " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", str(TINY), "--dry-run", "--platform", "two words"])
    assert "platform 'two words'" in capsys.readouterr().err


def test_without_root_the_lab_says_so_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["run", str(TINY), "--dataset", str(tmp_path / "out"), "--state", str(tmp_path / "state")]) == 1
    assert "run it as root" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_clean_with_nothing_to_do_is_done(tmp_path: Path, capsys: Captured) -> None:
    assert main(["clean", "--state", str(tmp_path / "none"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": []}


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run"]])
def test_wrong_usage_exits_2(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
