"""Measure contention among real containers: 10-60 control groups with replayed work on this machine's CPUs.

    python -m research.contention.container_runs OUTPUT [--seed 1] [--two-cpus 110] [--one-cpu 50] [--sets 15]
                                                 [--repeats 20] [--idle 10] [--minutes 90] [--limit N]

Each line of OUTPUT is one run, written to the disk before the next begins: what was asked for, what every container
got, and what else went on. A run that is there is not made again; a disturbed one (others used over 3 % of the CPUs, or
steal was over 1 %) stays, and is made once more after all others. It needs root, version 1 control groups and a C
compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lab.errors import LabError, PreparationError, RunError, StopRequested
from lab.progress import in_words
from lab.signals import deaf, stoppable
from models.arrays import Floats
from profiler.backends.base import BackendError, Counters
from profiler.backends.lxc.backend import LxcBackend
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.collectors.samples import collect
from profiler.observed import Instance
from profiler.parse.cgroup import parse_flat
from profiler.parse.proc import parse_pressure
from research.contention.container_groups import STATE, HostGroups, MadeContainer
from research.contention.container_mixes import (
    MEASURED_S,
    SPARE_S,
    WARM_UP_S,
    Mix,
    PlannedContainer,
    jobs,
    mix_record,
    plan,
)

SAMPLES_PER_S = 10
SHORT_BELOW = 0.95
AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")
MOST_OTHERS = 0.03  # of all CPUs
MOST_STEAL = 0.01
_PROGRAM = Path(__file__).with_name("replay_jobs.c")
_LEAD_S = 0.15  # from the first process to the beginning of all work …
_LEAD_EACH_S = 0.004  # … and more for each
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Totals:
    """CPU seconds at `at_s`: of all processes, of those in the idle class, of this program; ticks of /proc/stat."""

    at_s: float
    all_s: float
    idle_class_s: float
    own_s: float
    busy_s: float
    steal_s: float


def compile_program(folder: Path) -> Path:
    """Compile the load program; PreparationError names what is missing."""
    program = folder / "replay_jobs"
    command = ["cc", "-O2", "-pthread", "-o", str(program), str(_PROGRAM), "-lm"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        raise PreparationError("a C compiler is needed: apt-get install gcc libc6-dev") from None
    except subprocess.SubprocessError as error:
        raise PreparationError(f"the load program cannot be compiled: {error}") from None
    return program


def start_work(
    program: Path, mode: str, workers: int, times: tuple[float, float], work: Floats, join: Sequence[str]
) -> subprocess.Popen[bytes]:
    """Start the load program on rows of work, from and until these seconds of the monotonic clock."""
    descriptor = os.memfd_create("jobs", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, work.tobytes())
        os.lseek(descriptor, 0, os.SEEK_SET)
        command = [str(program), mode, str(workers), *(f"{at:.6f}" for at in times), *join]
        return subprocess.Popen(
            command, stdin=descriptor, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
    finally:
        os.close(descriptor)


class RunningContainer:
    """One container's process, and what is read of it."""

    def __init__(self, container: PlannedContainer, made: MadeContainer, mounts: Mapping[str, str]) -> None:
        self.container = container
        self._made = made
        self._mounts = mounts
        self._process: subprocess.Popen[bytes] | None = None
        self._tasks: list[int] = []
        self._cap: int | None = None  # its group's cpu.stat, where it has a cap
        self._samples: list[tuple[int, int, int]] = []  # run, wait and throttled by its own cap, ns
        self._pressure: list[int] = []  # us

    @property
    def path(self) -> str:
        return self._made.path

    def start(self, program: Path, start_s: float, end_s: float) -> None:
        spec = self.container.spec
        mode = "open" if spec.loop == "open" else "closed"
        work = jobs(self.container, end_s - start_s)
        self._process = start_work(program, mode, spec.vcpus, (start_s, end_s), work, self._made.join)

    def open_tasks(self) -> None:
        """Open the scheduler's counts of every thread; RunError when it ended or has not all of them."""
        spec, process = self.container.spec, self._process
        if process is None:
            raise RunError(f"{spec.id} was not started")
        tasks = sorted(Path(f"/proc/{process.pid}/task").glob("[0-9]*"))
        if process.poll() is not None or len(tasks) != spec.vcpus:
            raise RunError(f"{spec.id} has {len(tasks)} of {spec.vcpus} threads: {_complaint(process)}")
        self._tasks = [os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC) for task in tasks]
        if not math.isinf(spec.cap_cpus):
            stat = Path(self._mounts["cpu"], self.path, "cpu.stat")
            self._cap = os.open(stat, os.O_RDONLY | os.O_CLOEXEC)

    def sample(self) -> None:
        self._samples.append(self.counts())

    def counts(self) -> tuple[int, int, int]:
        """Run time, waiting, and waiting for its own cap until now, ns."""
        run = wait = throttled = 0
        for descriptor in self._tasks:
            ran, waited, _ = os.pread(descriptor, 80, 0).split()
            run, wait = run + int(ran), wait + int(waited)
        if self._cap is not None:
            throttled = parse_flat(os.pread(self._cap, 400, 0).decode("ascii"))["throttled_time"]
        return run, wait, throttled

    def count(self) -> None:
        """Read the pressure of the group, at the beginning and at the end."""
        self._pressure.append(_pressure_us(self._mounts, self.path))

    def outcome(self, seconds: float, slower: float = 1.0) -> dict[str, Any]:
        """What it got in the measured time: seconds and parts of the wall time.

        `slower` than a real CPU is one of its host: so much less counts what it waited.
        """
        changes = np.diff(np.array(self._samples, dtype=float), axis=0) / 1e9 / (1.0, slower, slower)
        run, wait, throttled = (float(value) for value in changes.sum(axis=0))
        contended = max(0.0, wait - throttled)
        pressure_before, pressure = self._pressure
        return {
            "share": _share(run, wait), "run_s": round(run, 5), "wait_s": round(wait, 5),
            "throttled_s": round(throttled, 5), "share_without_own_cap": _share(run, contended),
            "short_100ms": _part_short(changes[:, 0], changes[:, 1]),
            "short_100ms_without_own_cap": _part_short(
                changes[:, 0], np.maximum(changes[:, 1] - changes[:, 2], 0.0)
            ),
            "pressure": round((pressure - pressure_before) / 1e6 / seconds, 5),
        }  # fmt: skip

    def stop(self) -> None:
        for descriptor in [*self._tasks, *([] if self._cap is None else [self._cap])]:
            os.close(descriptor)
        self._tasks, self._cap = [], None
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class MixRun:
    """One run of one mix."""

    def __init__(self, mix: Mix, program: Path, groups: HostGroups) -> None:
        self._mix = mix
        self._program = program
        self._groups = groups
        self._hosts: dict[str, str] = {}  # group by id
        self._containers: list[RunningContainer] = []
        self._beside: list[subprocess.Popen[bytes]] = []

    def measure(self) -> dict[str, Any]:
        """Run it and return its record; RunError when it failed. Nothing of it is left."""
        try:
            for host in self._mix.hosts:
                made = self._groups.make(host)
                self._hosts[host.id] = made[0].path.partition("/")[0]
                self._containers += [
                    RunningContainer(container, one, self._groups.mounts)
                    for container, one in zip(host.containers, made, strict=True)
                ]
            return self._measure()
        except (OSError, BackendError) as error:
            raise RunError(f"it could not be read: {error}") from None
        finally:
            with deaf():
                for process in self._beside:
                    process.kill()
                    process.communicate()
                for each in self._containers:
                    each.stop()
                self._groups.remove()

    def _measure(self) -> dict[str, Any]:
        start = time.monotonic() + _LEAD_S + _LEAD_EACH_S * len(self._containers)
        begin = start + WARM_UP_S
        end = begin + MEASURED_S + SPARE_S  # its load ends by itself, should this program die
        for each in self._containers:
            each.start(self._program, start, end)
        if self._mix.beside == "idle_hogs":
            self._beside = [self._idle_hog(start, end) for _ in range(2)]
        if time.monotonic() > start:
            raise RunError("the containers were not ready in time")
        known = {one.path: Instance(one.container.spec.id, one.container.spec.vcpus) for one in self._containers}
        backend = LxcBackend(host="measured", known=known)
        record = mix_record(self._mix) | {"label": "measured", "date": datetime.now(UTC).isoformat(timespec="seconds")}
        with first_in_line():
            sleep_until(start + 0.5 * WARM_UP_S)
            for each in self._containers:
                each.open_tasks()
            backend.read_counters()  # the first reading lists everything, and takes longer
            sleep_until(begin - 0.03)
            before, hosts_before = read_totals(), self._count()
            readings, took_s, late_s = self._sample(backend, begin)
            after, hosts_after = read_totals(), self._count()
        backend.close()
        used_s = sum(hosts_after[name][0] - hosts_before[name][0] for name in self._hosts) / 1e9
        record |= {"measured_s": round(took_s, 4), "late_s": round(late_s, 4)}
        record |= machine_state(before, after, used_s)
        self._add_outcomes(record, readings, took_s)
        for host in record["hosts"]:
            change = np.subtract(hosts_after[host["id"]], hosts_before[host["id"]])
            host["outcome"] = {
                "cpu_s": round(change[0] / 1e9, 5), "throttled_s": round(change[1] / 1e9, 5),
                "periods": int(change[2]), "throttled_periods": int(change[3]),
                "pressure": round(change[4] / 1e6 / (after.at_s - before.at_s), 5),
            }  # fmt: skip
        return record

    def _idle_hog(self, start: float, end: float) -> subprocess.Popen[bytes]:
        hog = start_work(self._program, "closed", 1, (start, end), np.array([[0.0, 1.0]]), ())
        os.sched_setscheduler(hog.pid, os.SCHED_IDLE, os.sched_param(0))
        return hog

    def _count(self) -> dict[str, tuple[int, int, int, int, int]]:
        """Of each host: CPU time and throttled time in ns, periods, throttled periods, pressure in us."""
        for each in self._containers:
            each.count()
        mounts = self._groups.mounts
        counts = {}
        for name, group in self._hosts.items():
            used = int(Path(mounts["cpuacct"], group, "cpuacct.usage").read_text("ascii"))
            stat = parse_flat(Path(mounts["cpu"], group, "cpu.stat").read_text("ascii"))
            times = stat["throttled_time"], stat["nr_periods"], stat["nr_throttled"]
            counts[name] = (used, *times, _pressure_us(mounts, group))
        return counts

    def _sample(self, backend: LxcBackend, begin: float) -> tuple[list[Counters], float, float]:
        """Read every 100 ms what the scheduler counts, and every second all that the agent reads.

        Returns the agent's readings, the seconds between first and last sample, and the most that one came late.
        """
        readings, late_s = [], 0.0
        first = last = begin
        for turn in range(MEASURED_S * SAMPLES_PER_S + 1):
            at = begin + turn / SAMPLES_PER_S
            sleep_until(at)
            last = time.monotonic()
            first = last if turn == 0 else first
            late_s = max(late_s, last - at)
            for each in self._containers:
                each.sample()
            if turn % SAMPLES_PER_S == 0:
                readings.append(backend.read_counters())
        return readings, last - first, late_s

    def _add_outcomes(self, record: dict[str, Any], readings: list[Counters], seconds: float) -> None:
        agent = agent_readings(readings)
        outcomes = {each.container.spec.id: each.outcome(seconds) for each in self._containers}
        for host in record["hosts"]:
            for container in host["containers"]:
                name = container["spec"]["id"]
                container["outcome"] = outcomes[name] | {"agent": agent.get(name)}


def agent_readings(readings: Sequence[Counters]) -> dict[str, dict[str, float | None]]:
    """What the agent would say of each instance, from one reading per second: mean % of CPU and of waiting, the share
    of both together, and the part of the windows with a share below 0.95; a window without demand is not short."""
    cpu: dict[str, list[float]] = defaultdict(list)
    waiting: dict[str, list[float]] = defaultdict(list)
    for first, second in pairwise(readings):
        for row in collect(first, second).rows:
            if row.instance is not None and row.scope == "instance":
                cpu[row.instance].append(row.values["cpu"])
                waiting[row.instance].append(row.values.get("waiting", 0.0))
    return {
        name: {
            "cpu": round(float(np.mean(cpu[name])), 4), "waiting": round(float(np.mean(waiting[name])), 4),
            "share": _share(sum(cpu[name]), sum(waiting[name])),
            "short_1s": _part_short(np.array(cpu[name]), np.array(waiting[name])),
        }
        for name in cpu
    }  # fmt: skip


def read_totals() -> Totals:
    """What all, the idle class and this program used so far."""
    mounts = find_mounts(LiveSource())
    ticks = [int(value) for value in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]]
    busy = sum(ticks[:3]) + sum(ticks[5:7])
    own = resource.getrusage(resource.RUSAGE_SELF)
    machine = int(Path(mounts["cpuacct"], "cpuacct.usage").read_text("ascii"))
    return Totals(
        time.monotonic(), machine / 1e9, _idle_class_s(), own.ru_utime + own.ru_stime, busy * _TICK_S,
        ticks[7] * _TICK_S,
    )  # fmt: skip


def machine_state(before: Totals, after: Totals, used_s: float) -> dict[str, Any]:
    """Parts of all CPUs that others had; `used_s` is what the measured containers used.

    Others in the idle class are counted separately: what the containers leave is theirs. One that ended meanwhile and
    was not waited for by another of that class counts as an ordinary one.
    """
    whole = (after.at_s - before.at_s) * (os.cpu_count() or 1)
    own = after.own_s - before.own_s
    others = max(0.0, after.all_s - before.all_s - used_s - own)
    idle = min(others, max(0.0, after.idle_class_s - before.idle_class_s))
    state = {
        "containers": used_s, "reader": own, "others": others - idle, "others_idle_class": idle,
        "others_by_ticks": after.busy_s - before.busy_s - used_s - own, "steal": after.steal_s - before.steal_s,
    }  # fmt: skip
    parts = {name: round(value / whole, 5) for name, value in state.items()}
    return {"machine": parts, "disturbed": parts["others"] > MOST_OTHERS or parts["steal"] > MOST_STEAL}


def _idle_class_s() -> float:
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("ascii", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it ended
        if int(fields[38]) == os.SCHED_IDLE:  # proc(5): policy, 41st field; the first two are cut off
            total += sum(int(value) for value in fields[11:15])  # its own and its children's
    return total * _TICK_S


def _pressure_us(mounts: Mapping[str, str], group: str) -> int:
    path = Path(mounts["unified"], group, "cpu.pressure")
    return parse_pressure(path.read_text("ascii"), str(path))


def _share(run: float, wait: float) -> float | None:
    return round(run / (run + wait), 5) if run + wait > 0 else None


def _part_short(run: Floats, wait: Floats) -> float:
    return round(float(np.mean(run < SHORT_BELOW * (run + wait))), 5)


def _complaint(process: subprocess.Popen[bytes]) -> str:
    if process.poll() is None or process.stderr is None:
        return "it is still starting"
    return process.stderr.read().decode(errors="replace").strip()[-200:] or f"status {process.returncode}"


@contextmanager
def first_in_line() -> Iterator[None]:
    """Let this process be served at once while all CPUs are busy; what it starts meanwhile is not preferred."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, before[0], before[1])


@contextmanager
def without_autogroups(switch: Path = AUTOGROUPS) -> Iterator[None]:
    """Let programs of the idle class make way for the containers, whichever session they are of.

    Linux 6.18 judges the idle class among groups that compete: where each session is a group of its own, an idle
    program of another session is served like any other. A container with bursts of 1 ms that has a CPU for itself was
    delivered 0.31 of its demand so, and 0.87 without.
    """
    before = switch.read_text("ascii") if switch.exists() else "0"
    if before.strip() == "0":
        yield
        return
    switch.write_text("0", "ascii")
    try:
        yield
    finally:
        switch.write_text(before, "ascii")


def sleep_until(at: float) -> None:
    """Sleep until this moment of the monotonic clock."""
    time.sleep(max(0.0, at - time.monotonic()))


class RunFile:
    """Lines of finished runs; a torn last line, of a program that was killed, is dropped."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        text = path.read_bytes()
        os.ftruncate(self._file, text.rfind(b"\n") + 1)
        self.tries: Counter[str] = Counter()
        self.quiet: set[str] = set()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            self._know(json.loads(line))

    def append(self, record: Mapping[str, Any]) -> None:
        os.write(self._file, (json.dumps(record, separators=(",", ":")) + "\n").encode())
        os.fsync(self._file)
        self._know(record)

    def missing(self, mixes: Sequence[Mix], most_tries: int) -> list[Mix]:
        """Mixes without an undisturbed run that were tried less often than that."""
        return [mix for mix in mixes if mix.id not in self.quiet and self.tries[mix.id] < most_tries]

    def close(self) -> None:
        os.close(self._file)

    def _know(self, record: Mapping[str, Any]) -> None:
        if "run" in record:
            self.tries[record["run"]] += 1
            if not record["disturbed"]:
                self.quiet.add(record["run"])


def measure_all(mixes: Sequence[Mix], output: Path, *, until_s: float, limit: int | None, state: Path = STATE) -> int:
    """Measure what is missing; returns how many runs were made. Ends at `until_s` of the monotonic clock."""
    runs_made = 0
    with ExitStack() as stack:
        stack.enter_context(without_autogroups())
        groups = stack.enter_context(HostGroups(state))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-contention-")))
        program = compile_program(folder)
        runs = RunFile(output)
        stack.callback(runs.close)
        for tries in (1, 2):
            missing = runs.missing(mixes, tries)
            for number, mix in enumerate(missing):
                left_s = (len(missing) - number) * (WARM_UP_S + MEASURED_S + 0.5)
                if time.monotonic() > until_s or runs_made == limit:
                    return runs_made
                try:
                    record = MixRun(mix, program, groups).measure()
                except RunError as error:
                    say(f"{mix.id}: {error}")
                    continue
                runs.append(record)
                runs_made += 1
                say(f"{number + 1}/{len(missing)} {in_a_line(record)}; {in_words(left_s)} left")
    return runs_made


def in_a_line(record: Mapping[str, Any]) -> str:
    """What a run came to, in one line."""
    outcomes = [each["outcome"] for host in record["hosts"] for each in host["containers"]]
    run, wait = (sum(each[name] for each in outcomes) for name in ("run_s", "wait_s"))
    state = record["machine"]
    share = f"{run / (run + wait):.3f}" if run + wait else "not measured"  # a machine that stood still for all of a run
    return (
        f"{record['run']}: {len(outcomes)} containers, CPUs {state['containers']:.2f}, share {share},"
        f" others {state['others']:.3f}, idle class {state['others_idle_class']:.3f}, reader {state['reader']:.3f}"
        f"{', disturbed' if record['disturbed'] else ''}"
    )


def say(text: str) -> None:
    """Print a line with the time."""
    sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="file of runs, one JSON object a line; continued when it is there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--two-cpus", type=int, default=110, help="runs of one host of two CPUs")
    parser.add_argument("--one-cpu", type=int, default=50, help="runs of two hosts of one CPU")
    parser.add_argument("--sets", type=int, default=15, help="sets of containers in four placements on eight hosts")
    parser.add_argument("--repeats", type=int, default=20, help="runs that are made twice")
    parser.add_argument("--idle", type=int, default=10, help="runs repeated beside hogs of the idle class")
    parser.add_argument("--minutes", type=float, default=90.0, help="begin no run after so long")
    parser.add_argument("--limit", type=int, default=None, help="make at most so many runs now")
    options = parser.parse_args(arguments)
    mixes = plan(
        options.seed, two_cpus=options.two_cpus, one_cpu=options.one_cpu, sets=options.sets, repeats=options.repeats,
        idle=options.idle,
    )  # fmt: skip
    until_s = time.monotonic() + 60 * options.minutes
    try:
        with stoppable():
            measure_all(mixes, options.output, until_s=until_s, limit=options.limit)
    except StopRequested as stop:
        say(f"stopped by {stop}: start again to go on")
        return 130
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
