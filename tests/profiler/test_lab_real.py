"""The lab for real: instances that run, and nothing left of them however a run ends."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from profiler.backends.lxc.groups import find_mounts
from profiler.backends.source import LiveSource
from profiler.lab.registry import Registry, clean

pytestmark = pytest.mark.lab
TINY = Path(__file__).with_name("tiny.yaml")
REPOSITORY = Path(__file__).parents[2]
STOP_WITHIN_S = 5.0


def _command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "profiler.cli", "lab", *map(str, arguments)]


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


def _lab(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments), capture_output=True, text=True, timeout=60, check=False, env=_environment(**more)
    )


def _campaign(path: Path, **changes: object) -> Path:
    document = {**yaml.safe_load(TINY.read_text(encoding="utf-8")), **changes}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def _left_of(run: str) -> list[str]:
    """Everything on this host whose name carries this run's id: groups, namespaces, interfaces, processes."""
    roots = set(find_mounts(LiveSource()).values())
    found = [str(path) for root in roots for path in Path(root).glob(f"*{run}*")]
    found += [str(path) for path in Path("/run/netns").glob(f"*{run}*")]
    found += [str(path) for path in Path("/sys/class/net").glob(f"*{run}*")]
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if run in cmdline.read_text(errors="replace"):
                found.append(str(cmdline))
        except OSError:
            continue
    return found


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where these tests' labs list what they made; apart from anybody else's."""
    return tmp_path / "state"


@pytest.fixture
def bystanders() -> Iterator[None]:
    """Somebody else's group, namespace and qdisc, which must be there, unchanged, afterwards."""
    name = f"zz-other-{os.getpid()}"
    group = Path(find_mounts(LiveSource()).get("cpuacct", "/sys/fs/cgroup")) / name
    group.mkdir()
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "handle", "7:", "htb"], check=True)
    before = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
    try:
        yield
        assert group.is_dir()
        theirs = subprocess.run(
            ["tc", "-n", name, "qdisc", "show", "dev", "lo"], capture_output=True, text=True, check=True
        )
        assert "htb 7:" in theirs.stdout
        mine = [line for line in before.splitlines() if " dev lo " in line or " dev eth" in line]
        after = subprocess.run(["tc", "qdisc", "show"], capture_output=True, text=True, check=True).stdout
        assert all(line in after for line in mine)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
        group.rmdir()


class _Started:
    """A lab run in the background; `run` is its id once it measures."""

    def __init__(self, campaign: Path, out: Path, state: Path) -> None:
        command = _command("run", campaign, "--out", out, "--state", state)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment()
        )
        self._state = state
        self.run = ""

    def wait_until_it_works(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            for path in self._state.glob("*.jsonl"):
                self.run = path.stem
                if any("wrk" in entry or "sysbench" in entry for entry in self._programs()):
                    return
            time.sleep(0.05)
        raise AssertionError(f"the lab did not start: {self.process.communicate()}")

    def _programs(self) -> list[str]:
        root = find_mounts(LiveSource()).get("cpuacct") or find_mounts(LiveSource())["unified"]
        names: list[str] = []
        for procs in Path(root).glob(f"*{self.run}*/cgroup.procs"):
            try:
                names += [Path(f"/proc/{pid}/comm").read_text() for pid in procs.read_text().split()]
            except OSError:
                continue
        return names

    def end(self, number: signal.Signals) -> tuple[int, str, float]:
        begin = time.monotonic()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors, time.monotonic() - begin


@pytest.mark.usefixtures("bystanders")
def test_a_campaign_makes_a_whole_dataset_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    done = _lab("run", TINY, "--out", out, "--state", state, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["finished"], summary["rounds"], summary["interrupted"]) == (5, 1, False)
    with (out / "colocations.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["outcome"] == "throughput"]
    assert len(rows) == 6
    assert all(float(row["solo"]) > 0 and float(row["colocated"]) > 0 for row in rows)
    halves = [float(row["colocated"]) / float(row["solo"]) for row in rows if row["run"] == "same:cpu:cpu"]
    assert sum(halves) < 1.6  # two CPU tasks on one CPU; wide, for the test's host may be busy
    with (out / "profiles.csv").open(newline="") as file:
        profiles = {(row["workload"], row["scope"], row["metric"]): float(row["value"]) for row in csv.DictReader(file)}
    eight = {"pages_exchanged", "execution", "pages_per_execution", "cpu", "waiting", "block"}
    assert {("web-1k", "instance", metric) for metric in eight} <= set(profiles)
    assert {("cpu", "host", "event"), ("cpu", "host", "switch")} <= set(profiles)
    assert profiles["web-1k", "instance", "pages_exchanged"] > 100 * profiles["cpu", "instance", "pages_exchanged"]
    assert profiles["web-1k", "instance", "net_mbit"] < 150  # HTB at 100 Mbit/s on the way out, requests on the way in
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    assert [path.name for path in state.iterdir()] == ["lock"]
    assert _lab("show", out, "--json").returncode == 0


def test_a_finished_campaign_is_not_measured_again(tmp_path: Path, state: Path) -> None:
    campaign = _campaign(tmp_path / "c.yaml", pairs=[["cpu", "cpu"]])
    out = tmp_path / "data"
    assert _lab("run", campaign, "--out", out, "--state", state).returncode == 0
    journal = (out / "journal.jsonl").read_bytes()
    again = _lab("run", campaign, "--out", out, "--state", state, "--json")
    assert json.loads(again.stdout)["measured_now"] == 0
    assert (out / "journal.jsonl").read_bytes() == journal


@pytest.mark.usefixtures("bystanders")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_removes_everything_within_seconds_and_says_how_to_go_on(
    tmp_path: Path, state: Path, number: signal.Signals
) -> None:
    campaign = _campaign(tmp_path / "c.yaml", seconds=30)
    started = _Started(campaign, tmp_path / "data", state)
    started.wait_until_it_works()
    code, errors, took_s = started.end(number)
    assert code == 1
    assert took_s < STOP_WITHIN_S
    assert "go on with: cotenant-profiler lab run" in errors
    assert _left_of(started.run) == []
    assert not list((tmp_path / "data").glob(".cotenant*"))


@pytest.mark.usefixtures("bystanders")
def test_after_kill_9_nothing_runs_on_and_the_next_run_cleans_up_and_resumes(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    campaign = _campaign(tmp_path / "c.yaml", rounds=2, pairs=[["cpu", "cpu"]])
    started = _Started(campaign, out, state)
    started.wait_until_it_works()
    deadline = time.monotonic() + 20
    while (out / "journal.jsonl").read_text().count("\n") < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.7)  # into the middle of the next run
    started.end(signal.SIGKILL)
    time.sleep(0.2)
    assert not [entry for entry in _left_of(started.run) if "/cmdline" in entry]
    finished = (out / "journal.jsonl").read_text().splitlines()[1:]
    assert finished
    again = _lab("run", campaign, "--out", out, "--state", state)
    assert again.returncode == 0, again.stderr
    assert "left behind" in again.stderr
    assert _left_of(started.run) == []
    lines = (out / "journal.jsonl").read_text().splitlines()[1:]
    assert lines[: len(finished)] == finished
    assert len(lines) == 4
    assert not list(out.glob(".cotenant*"))


def test_clean_removes_only_what_dead_runs_made(state: Path) -> None:
    alive = Registry(state)
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
    first = Registry(state)
    try:
        done = _lab("run", TINY, "--out", tmp_path / "data", "--state", state)
        assert done.returncode == 1
        assert "another lab run is under way" in done.stderr
    finally:
        first.close()


def test_a_full_disk_keeps_earlier_rounds_and_goes_on_when_there_is_room(tmp_path: Path, state: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=70m", "tmpfs", small], check=True)
    try:
        campaign = _campaign(tmp_path / "c.yaml", rounds=1, pairs=[["cpu", "cpu"]])
        out = small / "data"
        assert _lab("run", campaign, "--out", out, "--state", state).returncode == 0
        tables = (out / "colocations.csv").read_bytes()
        journal = (out / "journal.jsonl").read_bytes()
        started = _Started(_campaign(campaign, rounds=3, pairs=[["cpu", "cpu"]]), out, state)
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
        assert _left_of(started.run) == []
        filler.unlink()
        again = _lab("run", campaign, "--out", out, "--state", state, "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["rounds"] == 3
    finally:
        subprocess.run(["umount", small], check=True)


def test_too_little_room_is_said_before_anything_starts(tmp_path: Path, state: Path) -> None:
    document = yaml.safe_load(TINY.read_text(encoding="utf-8"))
    workloads = {**document["workloads"], "disk": {"kind": "disk", "file_mb": 900_000}}
    campaign = _campaign(tmp_path / "c.yaml", workloads=workloads, pairs=[["disk", "cpu"]])
    done = _lab("run", campaign, "--out", tmp_path / "data", "--state", state)
    assert done.returncode == 1
    assert ("MB free" in done.stderr) or ("fio is not installed" in done.stderr)


def test_without_a_tool_the_lab_names_it_and_its_package(tmp_path: Path, state: Path) -> None:
    done = _lab("run", TINY, "--out", tmp_path / "data", "--state", state, PATH=str(tmp_path))
    assert done.returncode == 1
    assert "ip, nginx, sysbench, tc, wrk are not installed: apt-get install iproute2 nginx sysbench wrk" in done.stderr


def test_a_cpu_that_is_not_there_is_named(tmp_path: Path, state: Path) -> None:
    campaign = _campaign(tmp_path / "c.yaml", pinnings={"far": {"cpus": ["900"], "clients": "0"}})
    done = _lab("run", campaign, "--out", tmp_path / "data", "--state", state)
    assert done.returncode == 1
    assert "uses CPU 900, this host has" in done.stderr


def test_a_program_that_fails_stops_the_campaign_and_leaves_nothing(tmp_path: Path, state: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "sysbench").write_text("#!/bin/sh\necho out of luck >&2\nexit 3\n")
    (fake / "sysbench").chmod(0o755)
    campaign = _campaign(tmp_path / "c.yaml", pairs=[["cpu", "cpu"]])
    path = f"{fake}:{os.environ['PATH']}"
    done = _lab("run", campaign, "--out", tmp_path / "data", "--state", state, PATH=path)
    assert done.returncode == 1
    assert "failed 2 times" in done.stderr
    assert "sysbench ended with status 3 in the warm-up: out of luck" in done.stderr
    assert [path.name for path in state.iterdir()] == ["lock"]
