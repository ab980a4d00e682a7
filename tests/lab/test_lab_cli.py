"""The lab's command line: exit codes and errors of one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli import main


def test_show_of_nothing_fails_with_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "none")]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "name a directory that lab run wrote" in errors


def test_a_wrong_campaign_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("name: x\n")
    assert main(["run", str(path), "--dataset", str(tmp_path / "out")]) == 2
    assert "workloads" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_into_a_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").touch()
    tiny = Path(__file__).with_name("tiny.yaml")
    assert main(["run", str(tiny), "--dataset", str(tmp_path / "out"), "--dry-run"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "journal.jsonl cannot be read" in errors


def test_rounds_cannot_be_asked_for_beside_a_time_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny, path = Path(__file__).with_name("tiny.yaml"), tmp_path / "grid.yaml"
    path.write_text(tiny.read_text(encoding="utf-8") + "temporal: {every_min: 1, hours: 1}\n", encoding="utf-8")
    assert main(["run", str(path), "--dataset", str(tmp_path / "out"), "--dry-run", "--rounds", "2"]) == 2
    assert "leave out --rounds" in capsys.readouterr().err
    assert main(["run", str(path), "--dataset", str(tmp_path / "out"), "--dry-run"]) == 0


def test_a_campaign_may_be_measured_on_another_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = str(Path(__file__).with_name("tiny.yaml"))
    assert main(["run", tiny, "--dataset", str(tmp_path / "out"), "--dry-run", "--platform", "xeon"]) == 0
    assert "-xeon: " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", tiny, "--dry-run", "--platform", "two words"])
    assert "platform 'two words'" in capsys.readouterr().err


def test_a_folder_is_no_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path)]) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "cannot be read: Is a directory" in errors


def test_without_root_the_lab_says_so_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    tiny = Path(__file__).with_name("tiny.yaml")
    assert main(["run", str(tiny), "--dataset", str(tmp_path / "out"), "--state", str(tmp_path / "state")]) == 1
    assert "run it as root" in capsys.readouterr().err
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_clean_with_nothing_to_do_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clean", "--state", str(tmp_path / "none"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": []}


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["run"]])
def test_wrong_usage_exits_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err
