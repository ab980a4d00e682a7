"""One on/off run: all members are started once, then frozen and thawed state by state while progress is read."""

from __future__ import annotations

import contextlib
import os
import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median

from lab.cpu_speed import SpeedWatch, run_before_others
from lab.errors import RunError
from lab.instances import Instances, Program, RunningInstance
from lab.on_off.freezer import Freezer
from lab.on_off.progress import CounterFile, ProgressReader, open_progress
from lab.on_off.states import State
from lab.processes import LabProcess, sleep_until
from profiler.metrics import ANSWERED

_STEAL_SHARE = 0.05  # of a window's time on all CPUs; one tick of the counter is as much of 100 ms on two CPUs
_FOREIGN_SHARE = 0.1  # of one CPU
_LATE_SHARE = 0.2  # of a window's length
_KERNEL_THREADS = ("ksoftirqd/", "jbd2/", "kworker/")
_FEWEST_SPEEDS = 5
_RISES, _RISE_S = 3, 0.08  # a member works once its progress has risen in so many steps in a row, of so long each
_BEGINS_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`order` has (block, state) of each window: `dwell_s` from its switch, the first `guard_s` of which do not count.

    With `step_s` progress is also read in such steps, from the switch on.
    """

    order: Sequence[tuple[int, State]]
    dwell_s: float
    guard_s: float
    warmup_s: float
    step_s: float | None = None


@dataclass(frozen=True, slots=True)
class OnOffWindow:
    """What every member did in a window after its guard, by position: progress, answers and the seconds they took.

    `due` is how many answers were asked for, 0 where no client asks at moments fixed in advance. `steal` is a share of
    the time of all CPUs, `foreign` others' CPU time in CPUs. `disturbed` depends on these and on the lab's lateness,
    never on what was reached. `steps` has the progress at each step, where the plan asks for steps. `speeds` are the
    mean speeds of each member's CPUs; None = no sample in this window.
    """

    block: int
    state: State
    at_s: float
    seconds: float
    progress: tuple[float, ...]
    answers: tuple[int, ...]
    waited_s: tuple[float, ...]
    disturbed: bool
    due: tuple[int, ...] = ()
    steps: tuple[tuple[float, ...], ...] = ()
    steal: float = 0.0
    foreign: float = 0.0
    speeds: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class OnOffRun:
    """All windows in the order of time; `units` and `members` by position.

    `beside_busy` is the speed of CPUs while a member worked on another CPU, over their speed while none did: about 1
    for cores, and well below for threads of one core. A guest cannot see which they are, and a hypervisor may change
    it. None = unknown.
    """

    started: str
    seconds: float
    warmup_s: float
    members: tuple[str, ...]
    units: tuple[str, ...]
    windows: tuple[OnOffWindow, ...]
    generator_percent: Mapping[str, float]
    steal_percent: float
    foreign_percent: float | None
    speeds: Mapping[int, float]
    beside_busy: float | None = None


@dataclass(slots=True)
class _RunningMember:
    """One member at work."""

    running: RunningInstance
    program: Program
    counter: CounterFile
    reader: ProgressReader
    frozen_at: float | None = field(default=None)

    def check(self) -> None:
        if self.program.returncode is not None:
            name = self.running.placed.instance
            raise RunError(f"{name}: {self.program.command[0]} ended: {self.program.errors() or 'no message'}")


def measure_on_off(instances: Instances, plan: WindowPlan, rates: Mapping[str, float | None]) -> OnOffRun:
    """Run all windows; RunError when a program ends, or cannot be frozen or followed."""
    groups = [_groups(running) for running in instances.running]
    with (
        SpeedWatch(instances.host_cpus(), often=True) as speed,
        contextlib.ExitStack() as opened,
        Freezer(groups) as freezer,
    ):
        members = [_start(running, rates.get(running.placed.instance), opened) for running in instances.running]
        warmup_s = _warm_up(members, freezer, plan.warmup_s)
        host = opened.enter_context(_HostTimes(instances))
        run = _Switching(members, freezer, host, plan)
        generators = instances.generator_ns()
        started, begin = datetime.now(UTC).isoformat(timespec="milliseconds"), time.monotonic()
        with _prompt():
            first = host.read()
            windows = [run.window(block, state, begin) for block, state in plan.order]
            last = host.read()
        seconds = time.monotonic() - begin
        used = {name: (ns - generators[name]) / 1e7 / seconds for name, ns in instances.generator_ns().items()}
        foreign = host.foreign_s(first, last)
        placed = [member.running.placed for member in members]
        samples, cpus = speed.samples(), [entry.cpus for entry in placed]
        return OnOffRun(
            started, seconds, warmup_s, tuple(entry.instance for entry in placed),
            tuple(ANSWERED if member.counter.due else member.reader.unit for member in members),
            tuple(_with_speeds(judged(windows), samples, begin, cpus)), used,
            100 * (last.steal_s - first.steal_s) / seconds,
            None if foreign is None else 100 * foreign / seconds, speed.between(begin, begin + seconds),
            _beside_busy(samples, windows, begin, cpus),
        )  # fmt: skip


def _groups(running: RunningInstance) -> tuple[str, ...]:
    if not running.groups:
        raise RunError("only containers can be frozen and thawed by the lab: measure other instances in blocks")
    return running.groups


def _start(running: RunningInstance, rate: float | None, opened: contextlib.ExitStack) -> _RunningMember:
    counter = opened.enter_context(CounterFile(running.site.directory))
    command = running.workload.fill(running.site, rate)
    if command is None:
        raise RunError(f"workloads of kind {running.workload.kind} do not work all the time: measure them in blocks")
    program = running.start(command)
    opened.callback(program.stop, 0)
    if not isinstance(program, LabProcess):
        raise RunError("only programs on this host can be followed: measure other instances in blocks")
    server = running.server.pid if isinstance(running.server, LabProcess) else None
    reader = open_progress(running.workload, counter, program.pid, server)
    opened.callback(reader.close)
    return _RunningMember(running, program, counter, reader)


def _warm_up(members: Sequence[_RunningMember], freezer: Freezer, seconds: float) -> float:
    """Let all work together, then each alone until it makes progress; returns how long it took. RunError without it."""
    begin = time.monotonic()
    time.sleep(seconds)
    for place, member in enumerate(members):
        freezer.switch((place,))
        _until_it_works(member)
    freezer.switch(tuple(range(len(members))))
    for member in members:
        member.check()
    return time.monotonic() - begin


def _until_it_works(member: _RunningMember) -> None:
    """Wait until progress rises in several steps in a row: when a program reads its own files, that is no work yet."""
    begin, rises, before = time.monotonic(), 0, member.reader.read()
    while rises < _RISES:
        time.sleep(_RISE_S)
        member.check()
        now = member.reader.read()
        rises, before = (rises + 1 if now > before else 0), now
        if time.monotonic() > begin + _BEGINS_WITHIN_S:
            raise RunError(f"{member.running.placed.instance} did nothing for {_BEGINS_WITHIN_S:g} s after its start")


class _Switching:
    """The windows of a run, one after the other."""

    def __init__(self, members: Sequence[_RunningMember], freezer: Freezer, host: _HostTimes, plan: WindowPlan) -> None:
        self._members = members
        self._freezer = freezer
        self._host = host
        self._plan = plan

    def window(self, block: int, state: State, origin: float) -> OnOffWindow:
        plan = self._plan
        self._switch(state)
        began = time.monotonic()
        sleep_until(began + plan.guard_s)
        times, first, before = self._host.read(), time.monotonic(), self._read()
        steps = self._steps(began) if plan.step_s else []
        sleep_until(began + plan.dwell_s)
        after, last, ends = self._read(), time.monotonic(), self._host.read()
        for place in state:
            self._members[place].check()
        late = last - began > (1 + _LATE_SHARE) * plan.dwell_s
        moved = [tuple(b - a for a, b in zip(*pair, strict=True)) for pair in zip(before, after, strict=True)]
        return OnOffWindow(
            block, state, last - origin, last - first, moved[0], tuple(int(value) for value in moved[1]),
            tuple(value / 1e6 for value in moved[2]), late,
            tuple(int(value) for value in moved[3]), tuple(steps), *self._host.shares(times, ends),
        )  # fmt: skip

    def _switch(self, state: State) -> None:
        now = time.monotonic()
        for place, member in enumerate(self._members):
            if place in state and member.frozen_at is not None:
                member.counter.froze(now - member.frozen_at)
                member.frozen_at = None
            elif place not in state and member.frozen_at is None:
                member.frozen_at = now
        for member in self._members:
            member.counter.begin_state()
        self._freezer.switch(state)

    def _steps(self, began: float) -> list[tuple[float, ...]]:
        step_s, progress = self._plan.step_s or 1.0, [self._read()[0]]
        for number in range(1, round(self._plan.dwell_s / step_s)):
            sleep_until(began + number * step_s)
            progress.append(self._read()[0])
        return progress

    def _read(self) -> tuple[tuple[float, ...], ...]:
        """Of every member: its progress, answers, the µs that these took, and how many were due."""
        return (
            tuple(member.reader.read() for member in self._members),
            tuple(float(member.counter.slots[0]) for member in self._members),
            tuple(float(member.counter.waited_us) for member in self._members),
            tuple(float(member.counter.due) for member in self._members),
        )


@dataclass(frozen=True, slots=True)
class _Times:
    """CPU seconds so far: of others than instances, generators, the lab and the kernel's I/O threads; and of steal."""

    at_s: float
    others_s: float | None
    steal_s: float


class _HostTimes:
    """Reads what shows whether a window was disturbed, in a few system calls."""

    def __init__(self, instances: Instances) -> None:
        self._instances = instances
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")
        self._cpus = os.cpu_count() or 1
        self._stat = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._usage: list[int] = []
        self._threads: dict[int, int] = {}  # ns by open file

    def __enter__(self) -> _HostTimes:
        self._usage = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in self._instances.usage_files()]
        for path in _kernel_threads():
            with contextlib.suppress(OSError):  # it ended meanwhile
                self._threads[os.open(path, os.O_RDONLY | os.O_CLOEXEC)] = 0
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._stat, *self._usage, *self._threads):
            os.close(descriptor)

    def read(self) -> _Times:
        steal = int(os.pread(self._stat, 256, 0).split(b"\n", 1)[0].split()[8]) * self._tick_s
        others = None
        if self._usage:
            all_ns, *ours_ns = (int(os.pread(descriptor, 64, 0)) for descriptor in self._usage)
            others = (all_ns - sum(ours_ns) - self._kernel_ns()) / 1e9 - time.process_time()
        return _Times(time.monotonic(), others, steal)

    def _kernel_ns(self) -> int:
        for descriptor in self._threads:
            with contextlib.suppress(OSError):  # a thread that has ended keeps its last value
                self._threads[descriptor] = int(os.pread(descriptor, 64, 0).split()[0])
        return sum(self._threads.values())

    def foreign_s(self, first: _Times, last: _Times) -> float | None:
        """CPU time of others between two readings; None where it is not counted exactly."""
        if first.others_s is None or last.others_s is None:
            return None
        return max(0.0, last.others_s - first.others_s)

    def shares(self, first: _Times, last: _Times) -> tuple[float, float]:
        """Steal as a share of the time of all CPUs, and others' CPU time in CPUs."""
        seconds = max(last.at_s - first.at_s, self._tick_s)
        return (last.steal_s - first.steal_s) / seconds / self._cpus, (self.foreign_s(first, last) or 0.0) / seconds


def judged(windows: Sequence[OnOffWindow]) -> list[OnOffWindow]:
    """The same windows; disturbed are also those in which others took much, or steal was well over its state's median.

    The median of the state, because a member's own I/O is steal where the hypervisor does it in the guest's time.
    """
    steals: dict[State, list[float]] = defaultdict(list)
    for window in windows:
        steals[window.state].append(window.steal)
    usual = {state: median(values) for state, values in steals.items()}
    return [
        replace(window, disturbed=True)
        if window.foreign > _FOREIGN_SHARE or window.steal > usual[window.state] + _STEAL_SHARE
        else window
        for window in windows
    ]


def _beside_busy(
    samples: Mapping[int, Sequence[tuple[float, float]]], windows: Sequence[OnOffWindow], begin: float,
    cpus: Sequence[Sequence[int]],
) -> float | None:  # fmt: skip
    """The median over CPUs of what `OnOffRun.beside_busy` describes; None where there are too few samples."""
    ratios: list[float] = []
    for cpu, of_cpu in samples.items():
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for window in windows:
            busy = any(set(cpus[place]) - {cpu} for place in window.state)
            end = begin + window.at_s
            speeds[busy] += [speed for at, speed in of_cpu if end - window.seconds <= at <= end]
        if min(len(values) for values in speeds.values()) >= _FEWEST_SPEEDS:
            ratios.append(median(speeds[True]) / median(speeds[False]))
    return median(ratios) if ratios else None


def _with_speeds(
    windows: Sequence[OnOffWindow], samples: Mapping[int, Sequence[tuple[float, float]]], begin: float,
    cpus: Sequence[Sequence[int]],
) -> list[OnOffWindow]:  # fmt: skip
    times = {cpu: [at for at, _ in of_cpu] for cpu, of_cpu in samples.items()}
    with_speeds: list[OnOffWindow] = []
    for window in windows:
        end = begin + window.at_s
        by_cpu = {
            cpu: [speed for _, speed in of_cpu[bisect(times[cpu], end - window.seconds) : bisect(times[cpu], end)]]
            for cpu, of_cpu in samples.items()
        }
        by_member = [[speed for cpu in own for speed in by_cpu.get(cpu, ())] for own in cpus]
        with_speeds.append(replace(window, speeds=tuple(fmean(own) if own else None for own in by_member)))
    return with_speeds


def _kernel_threads() -> list[str]:
    """Files with the run time of the kernel's threads that do the members' I/O: packets, journals, writing back."""
    paths: list[str] = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text("ascii", "replace").startswith(_KERNEL_THREADS):
                paths.append(str(comm.with_name("schedstat")))
    return paths


@contextmanager
def _prompt() -> Iterator[None]:
    """Let the switching thread run as soon as it is due, before all that it measures; it takes some 1 % of a CPU."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    run_before_others()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, parameters)
