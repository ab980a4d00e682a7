"""The first prediction of an artifact: whatever it does, the process that asked lives on and says what happened."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.learning import artifact as smoke_test
from models.learning.artifact import LIMIT_S, STALLED_S, ProcessProgress, SmokeTestError
from tests.models.made_models import fitted, seal


@pytest.fixture(scope="module")
def artifact() -> Path:
    return fitted()


@pytest.fixture(autouse=True)
def _not_tried_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoke_test, "_passed", set())


def test_a_good_artifact_predicts_and_is_tried_once(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smoke_test.run(artifact)
    monkeypatch.setattr(subprocess, "Popen", pytest.fail)
    smoke_test.run(artifact)


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV"),
        ("import time; time.sleep(600)", "did nothing for"),
        ("while True: pass", "of CPU time"),
        ("raise RuntimeError('no such library')", "no such library"),
    ],
)
def test_a_library_that_dies_or_hangs_stops_nothing_else(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str, says: str
) -> None:
    (tmp_path / "numpy.py").write_text(does + "\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))  # the other process looks there, too
    monkeypatch.setattr(smoke_test, "STALLED_S", 1.0 if "sleep" in does else 600.0)
    monkeypatch.setattr(smoke_test, "LIMIT_S", 0.5 if "while" in does else 600.0)
    with pytest.raises(SmokeTestError, match=says):
        smoke_test.run(artifact)


def test_a_crowded_machine_may_take_as_long_as_it_likes() -> None:
    progress = ProcessProgress(changed_s=1000.0)
    hours = [progress.why_not(used_s, 1000.0 + 100.0 * used_s) for used_s in range(60)]  # a hundredth of a CPU
    assert set(hours) == {""}
    assert "CPU time" in progress.why_not(LIMIT_S + 0.01, 7000.0)
    assert "did nothing" in ProcessProgress(5.0, 1000.0).why_not(5.0, 1000.1 + STALLED_S)


def test_what_is_wrong_with_an_artifact_is_the_last_word_of_the_other_process(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / artifact.name
    shutil.copytree(artifact, broken)
    reference = json.loads((broken / "reference.json").read_text(encoding="utf-8"))
    name = next(iter(reference))
    (broken / "reference.json").write_text(json.dumps({**reference, name: ["x"]}), encoding="utf-8")
    seal(broken)
    monkeypatch.setattr(sys, "argv", ["smoke_test", str(broken)])
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)  # would be that of all tests
    with pytest.raises(SystemExit, match="reference"):
        smoke_test.main()


def test_no_secret_of_the_service_reaches_the_other_process(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {}

    def begin(*_: object, env: dict[str, str], **__: object) -> None:
        given.update(env)
        raise SmokeTestError("not begun")

    monkeypatch.setenv("COTENANT_DATABASE", "postgresql://u:secret@h/d")
    monkeypatch.setattr(subprocess, "Popen", begin)
    with pytest.raises(SmokeTestError):
        smoke_test.run(artifact)
    assert "PATH" in given
    assert "secret" not in str(given.get("COTENANT_DATABASE"))
