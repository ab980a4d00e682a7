"""Rendered cgset commands on a real control group with a busy process in it: caps and CPUs measured, undo compared."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from render_machine import do, need, run, undo

from advisor.domain import Command
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, Pinning, parse_cpus

pytestmark = pytest.mark.lab

CPUS = tuple(sorted(os.sched_getaffinity(0)))
HOST = Host("h1", "lxc", pcpus=os.cpu_count() or 1, memory_mb=1024)
FILES = {
    1: ("cpu/cpu.cfs_period_us", "cpu/cpu.cfs_quota_us", "cpu/cpu.shares", "cpuset/cpuset.cpus"),
    2: ("cpu/cpu.max", "cpu/cpu.weight", "cpuset/cpuset.cpus.effective"),
}


def _mounts() -> dict[str, Path]:
    """Controller → where it is mounted, `v2` for the unified hierarchy."""
    found: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2":
            found["v2"] = Path(where)
        elif kind == "cgroup":
            found |= {name: Path(where) for name in options.split(",") if name in ("cpu", "cpuset")}
    return found


@dataclass(frozen=True)
class Group:
    """A control group with two busy threads, made by the test."""

    version: int
    name: str
    folders: dict[str, Path]
    pids: tuple[int, ...]

    def rendered(self, wanted: IsolationSettings, now: IsolationSettings | None = None) -> tuple[Command, ...]:
        instance = Instance("busy", vcpus=1, labels={"cgroup": self.name})
        return commands(HOST, instance, now or IsolationSettings(), wanted, cgroup=self.version)

    def dump(self) -> dict[str, str]:
        paths = {name: self.folders[name.split("/")[0]] / name.split("/")[1] for name in FILES[self.version]}
        return {name: path.read_text() for name, path in paths.items()}

    def cpu_percent(self, seconds: float = 2.0) -> float:
        """CPU time of the busy processes by the scheduler's own account (/proc/<pid>/schedstat, ns), once settled."""
        time.sleep(0.3)
        spent, since = self._cpu_ns(), time.monotonic_ns()
        time.sleep(seconds)
        return 100 * (self._cpu_ns() - spent) / (time.monotonic_ns() - since)

    def _cpu_ns(self) -> int:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids)


@pytest.fixture(params=[1, 2], ids=["cgroup-v1", "cgroup-v2"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    need("cgset")
    mounts, name = _mounts(), f"cotenant-test-{os.getpid()}"
    if request.param == 1:
        if not {"cpu", "cpuset"} <= mounts.keys():
            pytest.skip("no version 1 cpu and cpuset controllers on this machine")
        folders = {controller: mounts[controller] / name for controller in ("cpu", "cpuset")}
    else:
        children = mounts["v2"] / "cgroup.subtree_control" if "v2" in mounts else Path("/nonexistent")
        if not children.exists() or not {"cpu", "cpuset"} <= set(children.read_text().split()):
            pytest.skip("no version 2 cpu and cpuset controllers on this machine")
        folders = dict.fromkeys(("cpu", "cpuset"), mounts["v2"] / name)
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for folder in set(folders.values()):
            folder.mkdir()
        if request.param == 1:
            for file in ("cpuset.mems", "cpuset.cpus"):
                (folders["cpuset"] / file).write_text((mounts["cpuset"] / file).read_text())
        busy.extend(subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2))
        for folder in set(folders.values()):
            for process in busy:
                (folder / "cgroup.procs").write_text(str(process.pid))
        yield Group(request.param, name, folders, tuple(process.pid for process in busy))
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for folder in set(folders.values()):
            _rmdir(folder)


def _rmdir(folder: Path) -> None:
    for _ in range(50):  # the kernel lets go of a group a moment after its last task
        try:
            return folder.rmdir()
        except FileNotFoundError:
            return None
        except OSError:
            time.sleep(0.02)
    return folder.rmdir()


@pytest.mark.parametrize("cap_percent", [4, 20, 60])
def test_a_cap_holds_within_5_percent_and_undo_restores_the_group(group: Group, cap_percent: float) -> None:
    do(group.rendered(IsolationSettings(weight=25_600)))  # so that the cap holds it back and not other work
    before, rendered = group.dump(), group.rendered(IsolationSettings(cap_percent=cap_percent))
    do(rendered)
    measured = [group.cpu_percent()]
    while measured[-1] < 0.95 * cap_percent and len(measured) < 4:  # other work on the machine may still take its CPU
        measured.append(group.cpu_percent())
    assert measured[-1] == pytest.approx(cap_percent, rel=0.05), measured
    undo(rendered)
    assert group.dump() == before


def test_pinned_tasks_may_run_on_those_cpus_only_until_undo(group: Group) -> None:
    before, rendered = group.dump(), group.rendered(IsolationSettings(pinning=Pinning(((CPUS[-1],),))))
    do(rendered)
    for pid in group.pids:
        assert _allowed(pid) == (CPUS[-1],)
        assert f"{CPUS[-1]}\n" in run("taskset", "-c", "-p", str(pid))
    undo(rendered)
    assert group.dump() == before
    assert all(len(_allowed(pid)) == HOST.pcpus for pid in group.pids)


def test_a_weight_is_written_and_undo_restores_the_former_weight(group: Group) -> None:
    former = IsolationSettings(weight=512)
    do(group.rendered(former))
    before, rendered = group.dump(), group.rendered(IsolationSettings(weight=128), now=former)
    do(rendered)
    assert group.dump() != before
    undo(rendered)
    assert group.dump() == before


def _allowed(pid: int) -> tuple[int, ...]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return parse_cpus(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))
