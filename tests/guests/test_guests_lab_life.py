"""Guests from their boot to their end: kept between runs, replaced when they die, gone however the lab ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from lab.errors import RunError
from lab.resource_registry import clean
from lab.workloads import CpuWorkload, DiskWorkload, WebWorkload
from tests.guests.guest_runs import Lab, place, start, work
from tests.lab.container_run import left_of
from tests.lab.qemu_accounts import cpu_seconds

pytestmark = pytest.mark.guests

REPOSITORY = Path(__file__).parents[2]
CAMPAIGN = {
    "name": "guests",
    "instances": "qemu",
    "guests": {"memory_mb": 192, "accelerator": "tcg"},
    "seconds": 1,
    "warmup_s": 0.2,
    "rounds": 1,
    "workloads": {"cpu": {"kind": "cpu"}, "web": {"kind": "web", "size_kb": 1}},
    "pinnings": {"apart": {"cpus": ["0", "1"], "clients": ["0-1"]}},
}


def test_a_guest_between_runs_stands_still_and_nothing_of_the_run_is_left_in_it(lab: Lab) -> None:
    with lab.host((place("cpu.1", (0,)), CpuWorkload())) as guests:
        machine = guests.machines[0]
        start(guests.running[0], 60).release()  # no program ends it
    process = Path(f"/proc/{machine.process.pid}")
    used = cpu_seconds(process)
    time.sleep(1)
    assert cpu_seconds(process) - used < 0.03
    assert [name for name in left_of(lab.registry.run, "cmdline") if "cpu.1" in name] == []
    with lab.host((place("cpu.1", (0,)), CpuWorkload())) as guests:
        assert guests.machines[0] is machine
        processes = machine.channel.call("ps", "-e", "-o", "comm=").split()
    assert "ps" in processes
    assert "sysbench" not in processes


def test_programs_that_lie_below_tmp_are_seen_and_what_a_guest_writes_there_stays_in_it(lab: Lab) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, lab.host((place("cpu.1", (0,)), CpuWorkload())) as guests:
        program, written = Path(folder, "program"), Path(folder, "written")
        program.write_text("#!/bin/sh\necho here\n")
        program.chmod(0o755)
        channel = guests.machines[0].channel
        assert channel.call(str(program)).strip() == "here"
        channel.call("touch", str(written))
        assert not written.exists()


def test_files_of_a_workload_stay_on_the_guests_disk_and_are_not_cached(lab: Lab) -> None:
    member = place("disk.1", (0,)), DiskWorkload(8, access="randwrite")
    with lab.host(member) as guests:
        machine, site = guests.machines[0], guests.running[0].site
        name = str(next(site.files.glob("disk-*")))
        assert machine.channel.call("df", "--output=source", name).split()[-1] == "/dev/vda"
        work(guests, 1)
    host = Path(name).read_bytes()
    with lab.host(member) as guests:
        machine = guests.machines[0]
        there = machine.channel.call("sha256sum", name).split()[0]
        before = machine.control.disk_bytes()
        machine.channel.ask("uncache", path=str(site.files))
        assert machine.channel.call("sha256sum", name).split()[0] == there
        assert machine.control.disk_bytes() - before >= len(host)
    import hashlib

    assert there != hashlib.sha256(host).hexdigest()  # what the guest wrote is on its own disk only, and stayed


def test_a_guest_that_dies_fails_the_run_and_the_next_run_has_a_new_one(lab: Lab) -> None:
    with (
        pytest.raises(RunError, match=r"guest guest0x1 (hung up|takes no requests)"),
        lab.host((place("web.1", (0,), (1,)), WebWorkload(1))) as guests,
    ):
        machine = guests.machines[0]
        os.kill(machine.process.pid, signal.SIGKILL)
        guests.running[0].start_inside(["true"])
    with lab.host((place("web.1", (0,), (1,)), WebWorkload(1))) as guests:
        assert guests.machines[0] is not machine
        (web,) = work(guests, 1)
    assert web.throughput > 10


def test_a_guest_that_hangs_is_an_error_in_one_sentence(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.guests.channel._ANSWER_WITHIN_S", 1.0)
    monkeypatch.setattr("lab.guests.qmp._ANSWER_WITHIN_S", 1.0)
    with (
        pytest.raises(RunError, match="the agent of guest guest0x1 did not answer within 1 s"),
        lab.host((place("cpu.1", (0,)), CpuWorkload())) as guests,
    ):
        machine = guests.machines[0]
        os.kill(machine.process.pid, signal.SIGSTOP)
        guests.running[0].start_inside(["true"])
    assert machine.process.returncode is not None  # it was ended


def test_a_server_that_ends_is_the_runs_error(lab: Lab) -> None:
    with (
        pytest.raises(RunError, match=r"nginx of web.1 ended with status"),
        lab.host((place("web.1", (0,), (1,)), WebWorkload(1))) as guests,
    ):
        guests.machines[0].channel.call("pkill", "nginx")
        time.sleep(1)


def _lab_run(tmp_path: Path) -> list[str]:
    campaign = tmp_path / "guests.yaml"
    campaign.write_text(yaml.safe_dump(CAMPAIGN), encoding="utf-8")
    state, out = tmp_path / "state", tmp_path / "out"
    command = [sys.executable, "-m", "lab.cli", "run", str(campaign)]
    return [*command, "--dataset", str(out), "--state", str(state)]


@pytest.mark.usefixtures("able")
def test_a_killed_campaign_leaves_nothing_and_goes_on_where_it_was(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    state, journal = tmp_path / "state", tmp_path / "out/journal.jsonl"
    started = subprocess.Popen(_lab_run(tmp_path), stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    deadline = time.monotonic() + 120
    while not (journal.exists() and '"kind"' in journal.read_text()):  # a run is finished: guests stand
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    started.send_signal(signal.SIGKILL)
    started.wait()
    finished = sum('"kind"' in line for line in journal.read_text().splitlines())
    (run,) = [path.stem for path in state.glob("*.jsonl")]
    assert any("guests" in name for name in left_of(run, "cmdline"))
    time.sleep(1)
    assert not [name for name in left_of(run, "cmdline") if name.startswith("/proc")]  # QEMU died with the lab
    removed = clean(state)
    assert any(name.startswith("network") for name in removed)
    assert left_of(run, "cmdline") == []
    assert list((tmp_path / "out").glob(".cotenant-lab-*")) == []

    done = subprocess.run(_lab_run(tmp_path), capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in journal.read_text().splitlines() if '"kind"' in line]
    assert len(records) == 7  # three pairs, and each workload alone on each CPU
    assert [record["run"] for record in records[:finished]] == [record["run"] for record in records][:finished]
    assert {member["workload"] for record in records for member in record["members"]} == {"cpu", "web"}
    assert all(member["outcomes"]["throughput"] > 0 for record in records for member in record["members"])
