"""The small cloud of real containers: agents tell of all of them, and whatever ends it, nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.control_groups import GroupMaker
from lab.living_cloud import LineConnection, LineWriter
from lab.processes import wait_until
from lab.resource_registry import clean
from profiler.agent.http_client import HttpError
from tests.lab.container_run import left_of, programs_of
from tests.servers.running import free_port


@contextmanager
def living(state: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, dict[str, Any]]]:
    """It runs; with the id of its run and its first line."""
    command = [sys.executable, "-m", "lab.living_cloud", "--state", str(state), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            first = process.stdout.readline()
            assert first, process.communicate()[1]
            yield process, next(state.glob("*.jsonl")).stem, json.loads(first)
        finally:
            process.kill()


@pytest.mark.lab
def test_agents_of_all_hosts_tell_of_all_containers_until_the_time_is_over(state: Path) -> None:
    with living(state, "--seconds", "15", "--begin-hour", "11") as (process, run, first):
        assert first["begin_h"] == 11
        assert wait_until(lambda: len(programs_of(run)) == 19, 10)  # a fork shows under its new name later
        assert process.stdout is not None
        lines = [json.loads(line) for line in process.stdout]
        assert process.wait(60) == 0
    bodies = [line["body"] for line in lines if line["to"] == "/v1/announcements"]
    there = {body["host"]["id"]: body for body in bodies}
    assert sorted(there) == [f"h{number}" for number in range(1, 7)]
    assert {body["host"]["pcpus"] for body in bodies} == {2}
    samples = [sample for line in lines if line["to"] == "/v1/samples" for sample in line["body"]["samples"]]
    of_cpu = [sample for sample in samples if sample["metric"] == "cpu" and sample["instance"]]
    used = {sample["instance"]: sample["value"] for sample in of_cpu}
    assert sorted(used) == sorted(instance["id"] for body in there.values() for instance in body["instances"])
    assert len(used) == 19
    assert sum(used.values()) > 0
    assert left_of(run) == []
    assert list(state.glob("*.jsonl")) == []


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_of_it(state: Path, number: signal.Signals) -> None:
    with living(state) as (process, run, _):
        process.send_signal(number)
        process.communicate(timeout=60)
        assert process.returncode == 130
    assert left_of(run) == []


@pytest.mark.lab
def test_it_ends_when_its_output_has_no_reader(state: Path) -> None:
    with living(state) as (process, run, _):
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0
    assert left_of(run) == []


@pytest.mark.lab
def test_after_kill_9_no_container_works_on_and_the_next_start_removes_the_groups(state: Path) -> None:
    with living(state) as (process, run, _):
        process.kill()
    assert wait_until(lambda: programs_of(run) == [], 20)
    assert left_of(run)
    scratch = Path(tempfile.gettempdir(), f".cotenant-lab-{run}")
    assert scratch.is_dir()
    clean(state)  # as its next start does
    assert left_of(run) == []
    assert not scratch.exists()


@pytest.mark.lab
def test_the_demo_shows_real_containers_and_removes_them_when_it_is_interrupted(tmp_path: Path) -> None:
    port, before = free_port(), set(Path("/run/cotenant-lab").glob("*.jsonl"))
    process = subprocess.Popen(
        [Path(sys.executable).with_name("cotenant"), "demo", "--live", "--listen", f"127.0.0.1:{port}"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        if "another lab run is under way" in first:
            pytest.skip(first.strip())
        assert first.startswith("Real containers on this machine: 19 containers"), first
        (run,) = (path.stem for path in set(Path("/run/cotenant-lab").glob("*.jsonl")) - before)
        assert any("should go to h" in line for line in process.stdout)

        def hosts() -> int:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/hosts", timeout=60) as answer:
                return len(json.load(answer)["items"])

        assert wait_until(lambda: hosts() == 6, 60)
        os.killpg(process.pid, signal.SIGINT)  # Ctrl-C on a terminal reaches the whole group
        process.communicate(timeout=90)
        assert process.returncode == 0
        assert left_of(run) == []
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
        process.communicate()


def test_unread_data_is_not_acknowledged(tmp_path: Path) -> None:
    gone = (tmp_path / "lines").open("w")
    lines = LineWriter(gone)
    connection = LineConnection(lines, 0.0)
    assert json.loads(connection.post(b'{"samples": [{}, {}]}').body)["accepted"] == 2
    gone.close()
    with pytest.raises(HttpError, match="the reader is gone"):
        connection.post(b'{"samples": []}')
    assert lines.unread.is_set()


def test_on_version_2_controllers_are_handed_down_to_containers(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    GroupMaker({"unified": str(tmp_path)}).open_up("host")
    assert (tmp_path / "host/cgroup.subtree_control").read_text() == "+cpu +cpuset +io"
