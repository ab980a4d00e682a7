"""Waiting by instance: lines of the real program, groups of instances, and the agent with the program and without."""

from __future__ import annotations

import contextlib
import io
import json
import stat
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from lab.processes import wait_until
from profiler.agent import further_counters
from profiler.agent.further_counters import RunQueueWatch
from profiler.agent.loop import Agent, Log, Pace
from profiler.backends import GroupedBackend, LxcBackend
from profiler.collectors.windows import (
    CAP,
    HOST,
    OTHERS,
    UNKNOWN,
    InstanceWaits,
    Key,
    MetricWindow,
    RunQueueWindow,
    Statistic,
    percentiles_of,
)
from profiler.parse.cgroup import parse_group_of_task
from profiler.parse.proc import bucket_bounds, parse_run_queue
from profiler.parse.text import ParseError
from tests.profiler.fake_host import FakeHost
from tests.profiler.libvirt_host import LibvirtHost, open_backend
from tests.profiler.steady_backend import SteadyBackend

RECORDING = Path(__file__).parents[1] / "recordings" / "run-queue.jsonl"
VICTIM, HOG, CAPPED = 16929, 16943, 16957
NAMES = {VICTIM: "victim", HOG: "hog", CAPPED: "capped"}


def _waits(instances: Mapping[int, str] = NAMES) -> InstanceWaits:
    window = RunQueueWindow()
    for line in RECORDING.read_text().splitlines():
        window.add(parse_run_queue(line))
    return window.waits_of(instances)


def test_two_that_share_a_cpu_wait_for_each_other_by_name() -> None:
    waited = _waits().waited_for
    for victim, other in (("victim", "hog"), ("hog", "victim")):
        assert 1.5 < waited[victim, other] < 2.0
        assert (victim, "capped") not in waited  # it ran on the other CPU
        assert (victim, CAP) not in waited


def test_what_is_no_instance_counts_as_the_host_and_its_own_cap_apart() -> None:
    waited = _waits().waited_for
    assert waited["capped", CAP] == pytest.approx(3.165, abs=0.001)
    assert waited["capped", HOST] > 0.3
    assert 0 < waited["capped", UNKNOWN] < 0.01
    assert set(_waits({VICTIM: "victim"}).waited_for) <= {("victim", HOST), ("victim", UNKNOWN)}


def test_a_window_says_for_which_others_each_waited_and_nothing_of_caps_and_of_itself() -> None:
    reported = _waits().series({"victim", "hog", "capped", "idle"})
    assert reported["victim", "instance", "waited_for:hog"].mean == pytest.approx(
        100 * _waits().waited_for["victim", "hog"] / _waits().seconds
    )
    assert reported["idle", "instance", "waited_for_host"].mean == 0  # it was watched and waited for none
    assert {metric for name, _, metric in reported if name == "capped"} <= {
        "waited_for_host", "run_queue_p50_us", "run_queue_p99_us", "run_queue_p999_us", "waited_for:hog",
        "waited_for:victim",
    }  # fmt: skip


def test_all_waiting_is_charged_to_an_instance_but_for_idle_cpus() -> None:
    waited = _waits().waited_for
    groups = [group for line in RECORDING.read_text().splitlines() for group in json.loads(line)["groups"]]
    for number, name in NAMES.items():
        ns = sum(group["wait_ns"] for group in groups if group["id"] == number)
        assert sum(seconds for (victim, who), seconds in waited.items() if victim == name and who != CAP) == (
            pytest.approx(ns / 1e9, rel=0.01)
        )


def test_percentiles_are_those_of_the_slices_of_a_scheduler() -> None:
    percentiles = _waits().percentiles
    for name in ("victim", "hog"):
        assert 3_500 < percentiles[name]["run_queue_p50_us"] < 8_500  # slices of 4 and 8 ms on this kernel
        assert percentiles[name]["run_queue_p99_us"] > percentiles[name]["run_queue_p50_us"]
        assert "run_queue_p999_us" not in percentiles[name]  # about 560 waits do not say it


@pytest.mark.parametrize("seed", range(10))
def test_percentiles_are_within_a_bucket_of_the_true_ones(seed: int) -> None:
    random = Random(seed)
    longest = 10 ** random.uniform(1, 10.8)  # ns
    waits = [int(longest ** random.random()) - random.randint(0, 1) for _ in range(random.randint(1000, 1200))]
    above = [bucket_bounds(bucket)[1] for bucket in range(209)]
    delays = Counter(bisect_right(above, ns) for ns in waits)
    for metric, share in (("run_queue_p50_us", 0.5), ("run_queue_p99_us", 0.99), ("run_queue_p999_us", 0.999)):
        true = sorted(waits)[-(-int(share * 1000) * len(waits) // 1000) - 1]
        assert percentiles_of(delays)[metric] * 1e3 == pytest.approx(true, rel=0.126, abs=1024)


def test_percentiles_that_few_waits_say_are_absent() -> None:
    assert percentiles_of({}) == {}
    assert percentiles_of({10: 1}) == {}
    assert set(percentiles_of({10: 2})) == {"run_queue_p50_us"}
    assert set(percentiles_of({10: 100})) == {"run_queue_p50_us", "run_queue_p99_us"}
    assert len(percentiles_of({10: 1000})) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": -1}, {"seconds": "1"}, {"groups": [{}]}, {"groups": None}, {"pairs": [[1, 2]]},
        {"pairs": [[1, 2, -3]]}, {"pairs": [[1, 2, 1.5]]}, {"lost": True}, {"lost": 1 << 64},
        {"groups": [{"id": 1, "waits": 1, "wait_ns": 1, "throttled_ns": 0, "delays": [[209, 1]]}]},
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_refused(change: dict[str, object]) -> None:
    document = json.loads(RECORDING.read_text().splitlines()[0])
    parse_run_queue(json.dumps(document))
    with pytest.raises(ParseError, match="not a line of cotenant-run-queue"):
        parse_run_queue(json.dumps({**document, **change}))
    with pytest.raises(ParseError):
        parse_run_queue(json.dumps(document)[:-5])


def test_the_groups_of_containers_are_found_by_their_inode_in_the_tree_of_the_scheduler() -> None:
    host = FakeHost()
    host.files["/proc/mounts"] = "".join(f"cgroup /cg/{name} cgroup rw,{name} 0 0\n" for name in ("cpu", "cpuacct"))
    for folder in ("/cg/cpu/lxc/a", "/cg/cpuacct/lxc/a", "/cg/cpuacct/lxc/a/init.scope", "/cg/cpuacct/lxc/b"):
        host.files[f"{folder}/tasks"] = ""
    host.values["inode /cg/cpu/lxc/a"] = 41
    host.values["inode /cg/cpu/lxc/a/init.scope"] = 42
    backend = LxcBackend(host, "h1")
    assert backend.scheduling_groups() == {41: "a", 42: "a"}  # b has no group there, or is gone


@pytest.mark.parametrize("version", [1, 2])
def test_the_groups_of_guests_are_those_of_their_vcpu_threads(version: int) -> None:
    host = LibvirtHost()
    host.guest("shop", 1)
    host.guest("web", 2)
    prefix = "3:cpu,cpuacct" if version == 1 else "0:"
    for tid in (101, 102, 201, 202):
        host.files[f"/proc/{tid}/cgroup"] = f"{prefix}:/m.slice/{tid // 100}/vcpu{tid % 100 - 1}\n"
    if version == 1:
        host.values |= {
            f"inode /cg/cpu/m.slice/{guest}/vcpu{vcpu}": 10 * guest + vcpu for guest in (1, 2) for vcpu in (0, 1)
        }
    else:  # the cpu controller goes no further down than the guest's own group
        host.files["/proc/mounts"] = "cgroup2 /cg cgroup2 rw 0 0\n"
        host.files |= {f"/cg/m.slice/{guest}/cpu.weight": "100\n" for guest in (1, 2)}
        host.values |= {f"inode /cg/m.slice/{guest}": guest for guest in (1, 2)}
    backend = open_backend(host)
    assert isinstance(backend, GroupedBackend)
    assert backend.scheduling_groups() == {}
    backend.read_counters()
    expected = {10: "shop", 11: "shop", 20: "web", 21: "web"} if version == 1 else {1: "shop", 2: "web"}
    assert backend.scheduling_groups() == expected


def test_guests_in_one_group_are_not_distinguished() -> None:
    host = LibvirtHost()
    for number, name in enumerate(("shop", "web"), 1):
        host.guest(name, number)
        host.files |= {f"/proc/{number * 100 + vcpu}/cgroup": "3:cpu:/user.slice\n" for vcpu in (1, 2)}
    host.values["inode /cg/cpu/user.slice"] = 7
    backend = open_backend(host)
    backend.read_counters()
    assert backend.scheduling_groups() == {}


def test_a_task_without_the_controller_has_no_group() -> None:
    assert parse_group_of_task("2:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c\n", "cpu") == "/a"
    assert parse_group_of_task("1:name=systemd:/b\n0::/c:d\n", "") == "/c:d"
    assert parse_group_of_task("1:name=systemd:/b\n", "cpu") is None


class _Grouped(SteadyBackend):
    groups: Mapping[int, str] = NAMES

    def scheduling_groups(self) -> Mapping[int, str]:
        return self.groups


@contextlib.contextmanager
def _watching(folder: Path, script: str, said: io.StringIO | None = None) -> Iterator[RunQueueWatch]:
    """A watch of a program that is this shell script."""
    program = folder / "run-queue"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    watch = RunQueueWatch(str(program), Log(said or io.StringIO()))
    watch.start()
    try:
        yield watch
    finally:
        watch.close()


RECORDED = f"cat {RECORDING}; exec sleep 60"


def test_the_watch_gives_the_percentiles_of_a_window_and_adds_up_who_was_waited_for(tmp_path: Path) -> None:
    window: dict[Key, Statistic] = {}

    def has_waits() -> bool:
        window.update(watch.close_window(5.0))
        return bool(window)

    with _watching(tmp_path, RECORDED) as watch:
        watch.look(_Grouped())
        assert wait_until(has_waits, 60)
        assert 3_500 < window["victim", "instance", "run_queue_p50_us"].mean < 8_500
        assert watch.close_window(5.0) == {}
        assert watch.status().problem == ""
        assert watch.status().waited_for == pytest.approx(dict(_waits().waited_for))


def test_who_is_gone_is_forgotten_as_one_that_was_waited_for_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = _Grouped()
    with _watching(tmp_path, RECORDED) as watch:
        watch.look(there)
        assert wait_until(lambda: bool(watch.close_window(5.0)), 60)
        assert ("victim", "hog") in watch.status().waited_for
        there.groups = {VICTIM: "victim"}
        monkeypatch.setattr(further_counters, "_LOOK_AGAIN_S", 0.0)
        for _ in range(2):  # who ended a moment ago is still known
            watch.look(there)
        watch.close_window(5.0)
        assert watch.status().waited_for.keys() <= {("victim", who) for who in OTHERS}


@pytest.mark.parametrize(
    ("script", "why"),
    [("echo 'the kernel refuses' >&2; exit 1", "the kernel refuses"), ("echo '{}'; exec sleep 9", "is not a line")],
)
def test_a_program_that_fails_is_a_warning_and_the_agent_goes_on(tmp_path: Path, script: str, why: str) -> None:
    said = io.StringIO()
    with _watching(tmp_path, script, said) as watch:
        assert wait_until(lambda: watch.close_window(1.0) == {} and bool(watch.status().problem), 60)
        assert why in watch.status().problem
        assert why in said.getvalue()
        assert "schedstat" in said.getvalue()


def test_further_series_of_a_window_are_delivered_with_it() -> None:
    windows: list[MetricWindow] = []
    key: Key = ("a", "instance", "run_queue_p99_us")
    lengths: list[float] = []

    def further(seconds: float) -> dict[Key, Statistic]:
        lengths.append(seconds)
        return {key: Statistic(7.0, 7.0, 1)}

    log = Log(io.StringIO())
    Agent(SteadyBackend(), Pace(0.05, 0.2, 60, True), windows.append, log, window_series=further).run()
    assert windows[0].series[key].mean == 7.0
    assert ("a", "instance", "cpu") in windows[0].series
    assert lengths[0] == windows[0].seconds


def test_without_the_program_the_agent_measures_the_rest_and_says_so(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "profiler.cli", "run", "--backend", "lxc", "--every", "0.1", "--window", "1"]
    more = ["--run-queue", str(tmp_path / "none"), "--listen", "127.0.0.1:0", "--seconds", "1", "--json"]
    done = subprocess.run([*argv, *more], check=False, capture_output=True, text=True, timeout=60)
    if "containers cannot be read" in done.stderr:
        pytest.skip("needs control groups that count CPU time")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert "cannot be started" in summary["run_queue"]["problem"]
    assert "make run-queue" in summary["run_queue"]["problem"]
    assert summary["readings"] > 1
