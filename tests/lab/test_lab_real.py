"""The lab for real: instances that run, and nothing left of them however a run ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from lab.processes import wait_until
from lab.resource_registry import ResourceRegistry, clean
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from tests.lab.container_run import left_of, programs_of
from tests.lab.lab_commands import TINY, Started, finished, lab, measure, table, wait_for_runs, write_campaign

pytestmark = pytest.mark.lab
STOP_WITHIN_S = 5.0


@pytest.mark.usefixtures("bystanders")
@pytest.mark.measured
def test_a_campaign_makes_a_whole_dataset_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    summary = measure(TINY, out, state)
    assert (summary["finished"], summary["rounds"], summary["interrupted"]) == (5, 1, False)
    rows = [row for row in table(out, "colocations") if row["outcome"] == "throughput"]
    assert len(rows) == 6
    assert all(float(row["solo"]) > 0 and float(row["colocated"]) > 0 for row in rows)
    assert all(float(row["cpu_speed"]) > 0 for row in table(out, "runs"))
    halves = [float(row["colocated"]) / float(row["solo"]) for row in rows if row["run"] == "same:cpu:cpu"]
    assert sum(halves) < 1.8  # two CPU tasks on one CPU; wide, for the test's host may be busy
    values = table(out, "profiles")
    profiles = {(row["workload"], row["scope"], row["metric"]): float(row["value"]) for row in values}
    eight = {"pages_exchanged", "execution", "pages_per_execution", "cpu", "waiting", "block"}
    assert {("web-1k", "instance", metric) for metric in eight} <= set(profiles)
    assert {("cpu", "host", "event"), ("cpu", "host", "switch")} <= set(profiles)
    assert profiles["web-1k", "instance", "pages_exchanged"] > 100 * profiles["cpu", "instance", "pages_exchanged"]
    assert profiles["web-1k", "instance", "net_mbit"] < 150  # HTB at 100 Mbit/s on the way out, requests on the way in
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert [path.name for path in state.iterdir()] == ["lock"]
    assert lab("show", out, "--json").returncode == 0


@pytest.mark.usefixtures("bystanders")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.measured
def test_stopping_removes_everything_within_seconds_and_says_how_to_go_on(
    tmp_path: Path, state: Path, number: signal.Signals
) -> None:
    campaign = write_campaign(tmp_path / "c.yaml", seconds=30)
    started = Started(campaign, tmp_path / "data", state)
    started.wait_until_it_works()
    code, errors, took_s = started.end(number)
    assert code == 1
    assert took_s < STOP_WITHIN_S
    assert "go on with: cotenant-lab run" in errors
    assert left_of(started.run, "cmdline") == []
    assert not list((tmp_path / "data").glob(".cotenant*"))


@pytest.mark.usefixtures("bystanders")
@pytest.mark.measured
def test_after_kill_9_nothing_runs_on_and_the_next_run_cleans_up_and_resumes(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    campaign = write_campaign(tmp_path / "c.yaml", rounds=2, pairs=[["cpu", "cpu"]])
    started = Started(campaign, out, state)
    started.wait_until_it_works()
    wait_for_runs(out, 1)
    started.wait_until_it_works()  # the next run, in the middle of which it is killed
    started.end(signal.SIGKILL)
    # sooner than the second is over that they would work for
    assert wait_until(lambda: programs_of(started.run, "cmdline") == [], 0.5)
    before = finished(out)
    assert before
    again = lab("run", campaign, "--dataset", out, "--state", state)
    assert again.returncode == 0, again.stderr
    assert "left behind" in again.stderr
    assert left_of(started.run, "cmdline") == []
    lines = finished(out)
    assert lines[: len(before)] == before
    assert len(lines) == 4
    assert not list(out.glob(".cotenant*"))


def test_clean_removes_only_what_dead_runs_made(state: Path) -> None:
    alive = ResourceRegistry(state)
    group = alive.group("x")
    path = Path(find_mounts(LiveSource()).get("cpuacct") or find_mounts(LiveSource())["unified"]) / group
    alive.made("group", group)
    path.mkdir()
    try:
        assert clean(state) == []
        assert path.is_dir()
        forged = state / "abcdef.jsonl"  # a list cannot name objects of anybody else
        forged.write_text('{"kind": "group", "name": "' + group + '"}\n{"kind": "directory", "name": "/etc"}\n{"ki')
        clean(state)
        assert path.is_dir()
        assert Path("/etc").is_dir()
    finally:
        alive.close()
    assert not path.exists()


def test_a_second_lab_on_the_same_host_is_refused(tmp_path: Path, state: Path) -> None:
    first = ResourceRegistry(state)
    try:
        done = lab("run", TINY, "--dataset", tmp_path / "data", "--state", state)
        assert done.returncode == 1
        assert "another lab run is under way" in done.stderr
    finally:
        first.close()


def test_a_full_disk_keeps_earlier_rounds_and_goes_on_when_there_is_room(tmp_path: Path, state: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", small], check=True)
    try:
        campaign = write_campaign(tmp_path / "c.yaml", rounds=1, pairs=[["cpu", "cpu"]])
        out = small / "data"
        measure(campaign, out, state)
        tables = (out / "colocations.csv").read_bytes()
        journal = (out / "journal.jsonl").read_bytes()
        started = Started(write_campaign(campaign, rounds=3, pairs=[["cpu", "cpu"]]), out, state)
        started.wait_until_it_works()
        filler = small / "filler"
        with filler.open("wb") as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 65_536)
                file.flush()
        _, errors = started.process.communicate(timeout=40)
        assert started.process.returncode == 1
        assert "no space is left" in errors
        assert "Traceback" not in errors
        assert (out / "colocations.csv").read_bytes() == tables
        assert (out / "journal.jsonl").read_bytes().startswith(journal)
        assert left_of(started.run, "cmdline") == []
        filler.unlink()
        assert measure(campaign, out, state)["rounds"] == 3
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"workloads": {"disk": {"kind": "disk", "file_mb": 900_000}}, "pairs": [["disk", "disk"]]},
            "MB free|fio is not installed",
        ),
        ({"pinnings": {"far": {"cpus": ["900"], "clients": "0"}}}, "uses CPU 900, this host has"),
    ],
    ids=["too little room", "a CPU that is not there"],
)
def test_what_this_host_lacks_is_said_before_anything_starts(
    tmp_path: Path, state: Path, changes: dict[str, object], complaint: str
) -> None:
    campaign = write_campaign(tmp_path / "c.yaml", **changes)
    done = lab("run", campaign, "--dataset", tmp_path / "data", "--state", state)
    assert done.returncode == 1
    assert re.search(complaint, done.stderr)
    assert not (tmp_path / "data").exists()


def test_without_a_tool_the_lab_names_it_and_its_package(tmp_path: Path, state: Path) -> None:
    done = lab("run", TINY, "--dataset", tmp_path / "data", "--state", state, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "ip, nginx, sysbench, tc, wrk are not installed: apt-get install iproute2 nginx sysbench wrk" in done.stderr


def _with_sysbench(folder: Path, script: str) -> str:
    """A PATH on which sysbench is this shell script."""
    tool = folder / "bin" / "sysbench"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}")
    tool.chmod(0o755)
    return f"{tool.parent}:{os.environ['PATH']}"


def test_a_run_that_fails_is_left_out_of_its_round_and_tried_again_by_the_same_command(
    tmp_path: Path, state: Path
) -> None:
    real = shutil.which("sysbench")
    path = _with_sysbench(tmp_path, f'case "$*" in *prime=777*) exit 3;; esac\nexec {real} "$@"\n')
    workloads = {"cpu": {"kind": "cpu"}, "odd": {"kind": "cpu", "max_prime": 777}}
    together = [["cpu", "cpu"], ["cpu", "odd"]]
    campaign = write_campaign(tmp_path / "c.yaml", workloads=workloads, pairs=together, groups=None, seed=1)
    command = ("run", campaign, "--dataset", tmp_path / "data", "--state", state)
    done = lab(*command, PATH=path)
    assert done.returncode == 1
    assert "these failed and are tried again by the same command: " in done.stderr
    assert ":odd" in done.stderr
    kept = (tmp_path / "data" / "runs.csv").read_text()
    assert ":cpu:cpu," in kept
    assert lab(*command).returncode == 0
    assert ":cpu:odd," in (tmp_path / "data" / "runs.csv").read_text()
    assert (tmp_path / "data" / "runs.csv").read_text().startswith(kept.split("\n", 1)[0])


def test_a_program_that_fails_stops_the_campaign_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    path = _with_sysbench(tmp_path, "echo out of luck >&2\nexit 3\n")
    campaign = write_campaign(tmp_path / "c.yaml", pairs=[["cpu", "cpu"]])
    done = lab("run", campaign, "--dataset", tmp_path / "data", "--state", state, PATH=path)
    assert done.returncode == 1
    assert "failed 2 times" in done.stderr
    assert "sysbench ended with status 3 in the warm-up: out of luck" in done.stderr
    assert [path.name for path in state.iterdir()] == ["lock"]
