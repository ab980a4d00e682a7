"""Campaigns for real over many rounds: further ones, time grids, limits of time, killed ones, and dry runs."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from tests.lab.container_run import left_of
from tests.lab.lab_commands import (
    TINY,
    Started,
    command,
    environment,
    finished,
    lab,
    measure,
    table,
    wait_for_runs,
    write_campaign,
)
from tests.servers.running import own_folder

pytestmark = pytest.mark.lab
UNPRIVILEGED = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@pytest.mark.usefixtures("bystanders")
def test_kill_9_within_a_further_round_loses_no_finished_run_and_the_same_round_goes_on(
    tmp_path: Path, state: Path
) -> None:
    out = tmp_path / "data"
    never = {"rounds": 2, "most_rounds": 3, "narrow": 1e-6}  # no interval is that narrow, so there is a further round
    campaign = write_campaign(tmp_path / "c.yaml", warmup_s=0, pairs=[["cpu", "cpu"]], **never)
    started = Started(campaign, out, state)
    started.wait_until_it_works()
    wait_for_runs(out, 5)  # two rounds of two, and the first run of the further round
    started.end(signal.SIGKILL)
    killed = finished(out)
    assert 5 <= len(killed) <= 6
    summary = measure(campaign, out, state)
    assert (summary["finished"], summary["total"], summary["rounds"], summary["ending"]) == (6, 6, 3, "finished")
    assert summary["wide"] == 1
    assert finished(out)[: len(killed)] == killed
    assert left_of(started.run, "cmdline") == []


@pytest.mark.measured
def test_no_run_begins_when_the_minutes_are_over_and_more_minutes_go_on(tmp_path: Path, state: Path) -> None:
    campaign = write_campaign(tmp_path / "c.yaml", warmup_s=0, pairs=[["cpu", "cpu"]])
    common: list[str | Path] = ["run", campaign, "--dataset", tmp_path / "data", "--state", state]
    common += ["--json", "--rounds", "2"]
    short = json.loads(lab(*common, "--most-minutes", "0.01").stdout)
    assert (short["finished"], short["total"], short["ending"]) == (1, 4, "out of time")
    rest = json.loads(lab(*common, "--most-minutes", "5").stdout)
    assert (rest["finished"], rest["measured_now"], rest["ending"]) == (4, 3, "finished")


@pytest.mark.measured
def test_a_time_grid_starts_its_rounds_on_time_and_circumstances_are_kept(tmp_path: Path, state: Path) -> None:
    grid = {"every_min": 4 / 60, "hours": 8 / 3600}
    campaign = write_campaign(tmp_path / "c.yaml", warmup_s=0, pairs=[["cpu", "cpu"]], temporal=grid)
    assert measure(campaign, tmp_path / "data", state)["rounds"] == 2
    runs = table(tmp_path / "data", "runs")
    starts = {row["repeat"]: datetime.fromisoformat(row["round_started"]) for row in runs}
    assert (starts["2"] - starts["1"]).total_seconds() == pytest.approx(4, abs=0.4)
    circumstances = yaml.safe_load((tmp_path / "data" / "dataset.yaml").read_text())["circumstances"]
    assert circumstances["host_qdiscs_after"] == "the same"
    assert {"sysbench", "ip"} <= set(circumstances["tools"])
    assert {"load_before", "load_after", "time_grid"} <= set(circumstances)


@pytest.fixture
def of_no_instance() -> Iterator[Path]:
    """A folder of a user without rights; pytest closes its own to all others, whenever one starts."""
    folder = own_folder("ghost")
    yield folder
    shutil.rmtree(folder)


def test_a_dry_run_needs_no_root_and_makes_nothing(of_no_instance: Path) -> None:
    out, state = of_no_instance / "data", of_no_instance / "state"
    words = command("run", TINY, "--dataset", out, "--state", state, "--dry-run", "--rounds", "4")
    done = _as_no_instance(of_no_instance, words)
    assert done.returncode == 0, done.stderr
    assert "3 groups (3 of 2 members; by pinning: 3 same)" in done.stdout
    assert "each round: 5 runs, 2 of them solo" in done.stdout
    assert "20 runs, 0 of them finished" in done.stdout
    assert not out.exists()
    assert not state.exists()


def test_a_dry_run_counts_what_is_finished_and_changes_nothing(tmp_path: Path, state: Path) -> None:
    campaign, out = write_campaign(tmp_path / "c.yaml", warmup_s=0, pairs=[["cpu", "cpu"]]), tmp_path / "data"
    measure(campaign, out, state)
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    done = lab("run", campaign, "--dataset", out, "--dry-run", "--json", "--rounds", "3")
    estimate = json.loads(done.stdout)
    assert (estimate["runs"], estimate["finished"]) == (6, 2)
    assert 1.0 < estimate["run_s"] < 10.0
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def _as_no_instance(directory: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    importing = _run([*UNPRIVILEGED, words[0], "-c", "import profiler.cli, yaml, rich"], directory)
    if importing.returncode != 0:
        pytest.skip(f"an ordinary user cannot read this installation: {importing.stderr[-200:]}")
    return _run([*UNPRIVILEGED, *words], directory)


def _run(words: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, timeout=60, check=False, env=environment(), cwd=directory
    )
