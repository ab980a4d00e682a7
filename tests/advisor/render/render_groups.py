"""Control groups of a test's own on the real machine, with busy processes in them that are measured and ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from profiler.observed import Host, Instance, IsolationSettings, parse_cpus
from tests.advisor.render.render_machine import need

HOST = Host("h1", "lxc", pcpus=os.cpu_count() or 1, memory_mb=1024, labels={"kernel": os.uname().release})
FILES = {
    1: (
        "cpu/cpu.cfs_period_us", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_burst_us", "cpu/cpu.shares",
        "cpuset/cpuset.cpus", "blkio/blkio.throttle.write_bps_device", "blkio/blkio.throttle.read_bps_device",
    ),
    2: ("cpu/cpu.max", "cpu/cpu.max.burst", "cpu/cpu.weight", "cpuset/cpuset.cpus.effective", "blkio/io.max"),
}  # fmt: skip
CONTROLLERS = ("cpu", "cpuset", "blkio")


def mounts() -> dict[str, Path]:
    """Controller → where it was mounted first, `v2` for the unified hierarchy; a single group may be bound later."""
    places: dict[str, Path] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        names = ["v2"] if kind == "cgroup2" else set(CONTROLLERS) & set(options.split(",")) if kind == "cgroup" else ()
        for name in names:
            places.setdefault(name, Path(where))
    return places


def folders(version: int, name: str) -> dict[str, Path]:
    """Where the group is, by controller; skips where this machine has no such controllers."""
    found = mounts()
    if version == 1:
        if not set(CONTROLLERS) <= found.keys():
            pytest.skip("no version 1 cpu, cpuset and blkio controllers on this machine")
        return {controller: found[controller] / name for controller in CONTROLLERS}
    children = found["v2"] / "cgroup.subtree_control" if "v2" in found else Path("/nonexistent")
    if not children.exists() or not {"cpu", "cpuset", "io"} <= set(children.read_text().split()):
        pytest.skip("no version 2 cpu, cpuset and io controllers on this machine")
    return dict.fromkeys(CONTROLLERS, found["v2"] / name)


@dataclass(frozen=True)
class Group:
    """A control group that a test made, with busy processes."""

    version: int
    name: str
    folders: dict[str, Path]
    pids: tuple[int, ...]

    def instance(self, settings: IsolationSettings | None = None, service: str = "throughput") -> Instance:
        """The group as an instance of HOST."""
        labels = {"cgroup": self.name}
        return Instance(self.name, settings=settings or IsolationSettings(), labels=labels, service=service)  # type: ignore[arg-type]

    def dump(self) -> dict[str, str]:
        """The files that commands write, with what is in them."""
        paths = {name: self.folders[name.split("/")[0]] / name.split("/")[1] for name in FILES[self.version]}
        return {name: path.read_text() for name, path in paths.items()}

    def enter(self, pid: int) -> None:
        for folder in set(self.folders.values()):
            (folder / "cgroup.procs").write_text(str(pid))

    def cpu_ns(self) -> int:
        """CPU time of the processes by the scheduler's own account (/proc/<pid>/schedstat)."""
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in self.pids)

    def allowed(self) -> list[tuple[int, ...]]:
        """The CPUs that the kernel says each process may run on (/proc/<pid>/status)."""
        found = []
        for pid in self.pids:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            text = next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))
            found.append(parse_cpus(text))
        return found


def cpu_percents(*groups: Group, seconds: float = 2.0) -> list[float]:
    """CPU time of groups over the same seconds, 100 = one CPU, once settled."""
    time.sleep(0.3)
    spent, since = [group.cpu_ns() for group in groups], time.monotonic_ns()
    time.sleep(seconds)
    now, ended = [group.cpu_ns() for group in groups], time.monotonic_ns()
    return [100 * (after - before) / (ended - since) for before, after in zip(spent, now, strict=True)]


@contextlib.contextmanager
def busy_group(version: int, name: str = "busy", processes: int = 2) -> Iterator[Group]:
    """A group with so many processes that do nothing but use CPU."""
    need("cgset")
    name = f"cotenant-test-{os.getpid()}-{name}"
    where, top = folders(version, name), mounts()
    busy: list[subprocess.Popen[bytes]] = []
    try:
        for folder in set(where.values()):
            folder.mkdir()
        if version == 1:
            for file in ("cpuset.mems", "cpuset.cpus"):
                (where["cpuset"] / file).write_text((top["cpuset"] / file).read_text())
        busy.extend(subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes))
        made = Group(version, name, where, tuple(process.pid for process in busy))
        for process in busy:
            made.enter(process.pid)
        yield made
    finally:
        for process in busy:
            process.kill()
            process.wait()
        for folder in set(where.values()):
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
