"""A tuning of containers from the command to their control groups and back, as an operator types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.advisor.changes.hierarchy import FILES
from tests.api.cli_runs import run

CLOUD = """
hosts: [{id: box, kind: lxc, pcpus: 1, memory_mb: 8192, labels: {cgroup_version: "1"}}]
workloads: [{name: batch, metrics: {cpu: 100}, origin: measured}]
instances:
  - {id: shop, host: box, memory_mb: 64, workload: batch, load: 0.6, min_throughput_ratio: 0.95}
  - {id: a, host: box, memory_mb: 64, workload: batch}
  - {id: b, host: box, memory_mb: 64, workload: batch}
"""
NAMES = ("shop", "a", "b")


@pytest.fixture(autouse=True)
def groups(_empty_folder: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path("groups").resolve()
    for controller, files in FILES[1].items():
        for name in NAMES:
            group = folder / controller / f"lxc.payload.{name}"
            group.mkdir(parents=True)
            for file, text in files.items():
                (group / file).write_text(text)
    mounts = {controller: str(folder / controller) for controller in FILES[1]}
    monkeypatch.setattr("profiler.acting.group_files.find_mounts", lambda source: mounts)
    monkeypatch.setenv("COTENANT_APPLY_MODE", "ask")
    monkeypatch.setenv("COTENANT_APPLY_CANARY", "no")
    Path("cloud.yaml").write_text(CLOUD)
    Path("var").mkdir()
    assert run("sync", "cloud.yaml").exit_code == 0
    tuned = run("tune", "cloud.yaml", "box", "--objective", "worst", "--json")
    assert json.loads(tuned.stdout)["steps"], "there is something to carry out"
    Path("plan.json").write_text(tuned.stdout)
    return folder


def state(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_a_tuning_is_previewed_carried_out_shown_and_taken_back(groups: Path) -> None:
    before = state(groups)
    preview = json.loads(run("apply", "plan.json", "--here", "box", "--preview", "--json").stdout)
    assert preview["refused"] == []
    assert preview["now"][0] == {name: preview["rollout"]["steps"][0]["before"][name] for name in preview["now"][0]}
    assert state(groups) == before
    done = run("apply", "plan.json", "--here", "box", "--yes", "--json")
    assert done.exit_code == 0, done.output
    rollout = json.loads(done.stdout)
    assert (rollout["state"], rollout["verdict"]) == ("carried_out", "unknown")
    assert {step["state"] for step in rollout["steps"]} == {"applied"}
    for step in rollout["steps"]:
        for name, text in step["after"].items():
            controller = name.partition(".")[0]
            assert (groups / controller / step["target"] / name).read_text().strip() == text
    assert state(groups) != before
    assert [one["id"] for one in json.loads(run("changes", "list", "--json").stdout)] == [rollout["id"]]
    shown = json.loads(run("changes", "show", rollout["id"], "--json").stdout)
    assert [line["event"] for line in shown["lines"]][:4] == ["planned", "approved", "applying", "applied"]
    undone = run("apply", rollout["id"], "--here", "box", "--undo", "--json")
    assert (undone.exit_code, json.loads(undone.stdout)["state"]) == (0, "taken_back")
    assert state(groups) == before


def test_words_say_the_same(groups: Path) -> None:
    done = run("apply", "plan.json", "--here", "box", "--yes")
    assert done.exit_code == 0, done.output
    assert "predicted" in done.stdout
    assert ": carried out." in done.stdout
    rollout = done.stdout.split("Rollout ")[1].split()[0]
    assert "applying" in run("changes", "show", rollout).stdout
    assert run("apply", rollout, "--here", "box", "--undo").exit_code == 0


@pytest.mark.usefixtures("groups")
def test_what_is_refused_changes_nothing_and_says_why(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(groups)
    assert run("freeze", "release week", "--json").exit_code == 0
    frozen = run("apply", "plan.json", "--here", "box", "--yes")
    assert (frozen.exit_code, "release week" in frozen.output) == (1, True)
    assert json.loads(run("freeze", "--off", "--json").stdout)["frozen"] is False
    elsewhere = run("apply", "plan.json", "--here", "other", "--yes")
    assert (elsewhere.exit_code, "--here box" in elsewhere.output) == (2, True)
    monkeypatch.setenv("COTENANT_APPLY_MODE", "advise")
    advised = run("apply", "plan.json", "--here", "box", "--yes", "--json")
    assert advised.exit_code == 1
    assert "COTENANT_APPLY_MODE" in json.loads(advised.stdout)["refused"][0]
    for wrong in (("absent",), ("absent.json",), ("cloud.yaml",), ("plan.json", "--undo", "--yes")):
        result = run("apply", *wrong, "--here", "box")
        assert result.exit_code in (1, 2)
        assert "Traceback" not in result.output
    assert run("changes", "approve", "absent", "--json").exit_code == 1
    assert state(groups) == before
