"""Real runs of containers in groups: what is kept, what is read, and that nothing is left; two of them are real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.control_groups import group_places, remove_group
from lab.errors import PreparationError, RunError
from lab.processes import wait_until
from profiler.backends.base import Counters, DomainCounters, TaskCounters
from research.contention import container_runs
from research.contention.container_groups import HostGroups, listed
from research.contention.container_mixes import Mix, MixHost, PlannedContainer, plan
from research.contention.container_runs import MixRun, RunFile, Totals, agent_readings, compile_program, machine_state
from research.contention.host_spec import InstanceSpec

ROOT = Path(container_runs.__file__).parents[2]


def line(run: str, *, disturbed: bool = False) -> str:
    return json.dumps({"run": run, "disturbed": disturbed}) + "\n"


def test_a_torn_last_line_is_dropped_and_the_others_count(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(line("w000") + line("w001", disturbed=True) + '{"run": "w0')
    runs = RunFile(path)
    runs.append({"run": "w002", "disturbed": False})
    runs.close()
    assert [json.loads(text)["run"] for text in path.read_text().splitlines()] == ["w000", "w001", "w002"]
    assert runs.quiet == {"w000", "w002"}


def test_a_disturbed_run_is_missing_until_it_was_tried_twice(tmp_path: Path) -> None:
    mixes = plan(1, two_cpus=3, one_cpu=0, sets=0, repeats=0, idle=0)
    by_id = {mix.id: mix for mix in mixes}
    path = tmp_path / "runs.jsonl"
    path.write_text(line("w000") + line("w001", disturbed=True))
    runs = RunFile(path)
    assert runs.missing(mixes, 1) == [by_id["w002"]]
    assert {mix.id for mix in runs.missing(mixes, 2)} == {"w001", "w002"}
    runs.append({"run": "w001", "disturbed": True})
    assert {mix.id for mix in runs.missing(mixes, 2)} == {"w002"}
    runs.close()


def totals(at: float, all_instances: float, idle: float = 0.0, own: float = 0.0, steal: float = 0.0) -> Totals:
    return Totals(at, all_instances, idle, own, all_instances, steal)


def test_a_run_is_disturbed_by_others_and_by_steal_but_not_by_the_idle_class() -> None:
    cpus = os.cpu_count() or 1
    begin, used = totals(0.0, 0.0), 5.0 * cpus

    def disturbed(**other: float) -> bool:
        return bool(machine_state(begin, totals(10.0, used + sum(other.values()) - other.get("steal", 0), **{
            name: value for name, value in other.items() if name != "others"
        }), used)["disturbed"])  # fmt: skip

    assert not disturbed(others=0.2 * cpus)
    assert disturbed(others=0.4 * cpus)
    assert not disturbed(idle=4.0 * cpus, own=0.1)
    assert disturbed(steal=0.2 * cpus)


def counters(second: int, run_s: float, wait_s: float) -> Counters:
    run, wait = round(run_s * 1e9), round(wait_s * 1e9)
    tasks = {"1": TaskCounters(run, wait, 10 * second)}
    domain = DomainCounters(1, tasks, run, net_bytes=0, disk_bytes=0)
    return Counters("h", float(second), float(second), {"c": domain}, None, None)


def test_the_agents_share_is_of_all_windows_and_short_counts_windows() -> None:
    readings = [counters(0, 0, 0), counters(1, 0.5, 0.0), counters(2, 0.9, 0.4), counters(3, 0.9, 0.4)]
    said = agent_readings(readings)["c"]
    assert said == {"cpu": 30.0, "waiting": pytest.approx(13.3333), "share": 0.69231, "short_1s": 0.33333}


def test_only_names_that_a_run_can_have_given_are_cleaned_up(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    path.write_text(
        "cotenant-contention-0123ab-h0\n../../etc\ncotenant-contention-0123ab-h0/x\ncotenant-lab-0123ab.x\ncot"
    )
    assert listed(path) == ["cotenant-contention-0123ab-h0"]
    assert listed(tmp_path / "none") == []


def small(*, quota_cpus: float | None = None, cap_cpus: float = float("inf")) -> Mix:
    def one(number: int, loop: str, demand: float, cap: float) -> PlannedContainer:
        spec = InstanceSpec(f"c{number}", 1 + number % 2, demand, loop, 5.0, cap_cpus=cap)  # type: ignore[arg-type]
        return PlannedContainer(spec, "hog" if loop == "hog" else "open", "exponential", (demand,) * 9, number)

    containers = (one(0, "open", 0.1, float("inf")), one(1, "open", 0.1, float("inf")), one(2, "hog", 1.0, cap_cpus))
    return Mix("t", "two_cpus", 1, (MixHost("h0", (0, 1), containers, quota_cpus, 10),))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_runs, "MEASURED_S", 2)
    monkeypatch.setattr(container_runs, "_LEAD_S", 2.0)  # a busy machine starts processes slowly


@pytest.mark.lab
@pytest.mark.usefixtures("short")
def test_a_real_run_reads_every_container_and_leaves_nothing(tmp_path: Path) -> None:
    with HostGroups(tmp_path / "state") as groups:
        record = MixRun(small(cap_cpus=0.2), compile_program(tmp_path), groups).measure()
        assert not any(path.exists() for path in group_places(f"{groups.prefix}-h0"))
    outcomes = [each["outcome"] for each in record["hosts"][0]["containers"]]
    assert all(outcome["run_s"] > 0 and outcome["agent"] is not None for outcome in outcomes)
    assert outcomes[2]["throttled_s"] > 0  # a hog under a cap is held back by it, whoever is beside
    assert outcomes[0]["throttled_s"] == 0
    assert record["hosts"][0]["outcome"]["throttled_s"] == 0
    json.dumps(record, allow_nan=False)


@pytest.mark.lab
@pytest.mark.usefixtures("short")
def test_a_host_made_of_cpu_bandwidth_gives_no_more_than_its_quota(tmp_path: Path) -> None:
    with HostGroups(tmp_path / "state") as groups:
        record = MixRun(small(quota_cpus=0.2), compile_program(tmp_path), groups).measure()
    outcome = record["hosts"][0]["outcome"]
    assert 0 < outcome["cpu_s"] < 2 * 0.2 * 2
    assert outcome["throttled_periods"] > 0


@pytest.mark.lab
def test_two_at_a_time_are_refused(tmp_path: Path) -> None:
    with HostGroups(tmp_path), pytest.raises(PreparationError, match="under way"), HostGroups(tmp_path):
        pass


@pytest.mark.lab
def test_a_program_that_cannot_join_its_group_is_an_error_that_says_so(tmp_path: Path) -> None:
    with HostGroups(tmp_path / "state") as groups, pytest.raises(RunError, match="threads"):
        MixRun(small(), Path("/bin/false"), groups).measure()


@pytest.mark.lab
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_after_a_signal_or_at_the_next_start(tmp_path: Path, number: signal.Signals) -> None:
    state = tmp_path / "state"
    code = (
        "import sys; from pathlib import Path; from research.contention import container_runs as runs;"
        f"groups = runs.HostGroups; runs.HostGroups = lambda _state: groups(Path({str(state)!r}));"
        f"sys.exit(runs.main([{str(tmp_path / 'runs.jsonl')!r}, '--two-cpus', '1', '--one-cpu', '0', '--sets', '0']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: bool(listed(state / "groups")), 60)
        time.sleep(0.5)
        (name,) = listed(state / "groups")
        process.send_signal(number)
        process.wait(30)
        if number == signal.SIGKILL:
            assert any(path.is_dir() for path in group_places(name))
            with HostGroups(state):
                pass
        assert not any(path.exists() for path in group_places(name))
        assert listed(state / "groups") == []
    finally:
        process.kill()
        process.wait()
        for left in listed(state / "groups"):
            remove_group(left)


def test_a_run_for_which_the_machine_stood_still_is_reported_as_not_measured() -> None:
    machine = dict.fromkeys(("containers", "others", "others_idle_class", "reader"), 0.0)
    idle = {"outcome": {"run_s": 0.0, "wait_s": 0.0}}
    record = {"run": "m0", "hosts": [{"containers": [idle]}], "machine": machine, "disturbed": True}
    assert "share not measured" in container_runs.in_a_line(record)


@pytest.mark.parametrize(("before", "meanwhile"), [("1\n", "0"), ("0\n", "0\n")])
def test_sessions_are_no_groups_of_their_own_while_containers_are_measured(
    tmp_path: Path, before: str, meanwhile: str
) -> None:
    switch = tmp_path / "sched_autogroup_enabled"
    switch.write_text(before)
    with container_runs.without_autogroups(switch):
        assert switch.read_text() == meanwhile
    assert switch.read_text() == before
    with container_runs.without_autogroups(tmp_path / "a kernel without them"):
        pass
