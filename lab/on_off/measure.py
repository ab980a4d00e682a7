"""One on/off run: everybody is started once, then frozen and thawed state by state while progress is read."""

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

_STEAL_SHARE = 0.05  # of a window's time on all CPUs; a tick of the counter is that of a window of 100 ms on two
_FOREIGN_SHARE = 0.1  # of one CPU
_LATE_SHARE = 0.2  # of a window's length
_KERNEL_THREADS = ("ksoftirqd/", "jbd2/", "kworker/")
_FEWEST_SPEEDS = 5
_ASKED = "answers per question"  # unit of throughput where questions come at moments fixed in advance
_RISES, _RISE_S = 3, 0.08
_BEGINS_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """`order` are (block, state); each lasts `dwell_s` after its switch, the first `guard_s` of which do not count.

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

    `due` are the answers that were asked for, 0 where nobody asks at moments fixed in advance.

    `steal` is its share of the time of all CPUs, `foreign` others' CPU time in CPUs. `disturbed` is decided by these
    and the lab's lateness, never by what was reached. `steps` are progress in the order of reading, where asked for.
    `speeds` are the mean speeds of each member's CPUs; None = no sample fell into it.
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

    `beside_busy` is the speed of CPUs while a member worked on another one, over their speed while none did: about 1
    for cores, well below for threads of one core, which a guest cannot see and a hypervisor may change. None = unknown.
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
class _Watched:
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
        return OnOffRun(
            started, seconds, warmup_s, tuple(one.running.placed.instance for one in members),
            tuple(_ASKED if one.counter.due else one.reader.unit for one in members),
            tuple(_with_speeds(judged(windows), speed.samples(), begin, [one.running.placed.cpus for one in members])),
            used,
            100 * (last.steal_s - first.steal_s) / seconds,
            None if foreign is None else 100 * foreign / seconds, speed.between(begin, begin + seconds),
            _beside_busy(speed.samples(), windows, begin, [one.running.placed.cpus for one in members]),
        )  # fmt: skip


def _groups(running: RunningInstance) -> tuple[str, ...]:
    if not running.groups:
        raise RunError("only containers can be frozen and thawed by the lab: measure other instances in blocks")
    return running.groups


def _start(running: RunningInstance, rate: float | None, opened: contextlib.ExitStack) -> _Watched:
    counter = opened.enter_context(CounterFile(running.site.directory))
    command = running.workload.fill(running.site, rate)
    if command is None:
        raise RunError(f"work of kind {running.workload.kind} does not work all the time: measure it in blocks")
    program = running.start(command)
    opened.callback(program.stop, 0)
    if not isinstance(program, LabProcess):
        raise RunError("only programs on this host can be followed: measure other instances in blocks")
    server = running.server.pid if isinstance(running.server, LabProcess) else None
    reader = open_progress(running.workload, counter, program.pid, server)
    opened.callback(reader.close)
    return _Watched(running, program, counter, reader)


def _warm_up(members: Sequence[_Watched], freezer: Freezer, seconds: float) -> float:
    """Everybody together, then each alone until it comes on; how long it took. RunError where one does not."""
    begin = time.monotonic()
    time.sleep(seconds)
    for place, one in enumerate(members):
        freezer.switch((place,))
        _until_it_works(one)
    freezer.switch(tuple(range(len(members))))
    for one in members:
        one.check()
    return time.monotonic() - begin


def _until_it_works(one: _Watched) -> None:
    """Until it has come on in steps in a row: reading its own files is not work yet."""
    begin, rises, before = time.monotonic(), 0, one.reader.read()
    while rises < _RISES:
        time.sleep(_RISE_S)
        one.check()
        now = one.reader.read()
        rises, before = (rises + 1 if now > before else 0), now
        if time.monotonic() > begin + _BEGINS_WITHIN_S:
            raise RunError(f"{one.running.placed.instance} did nothing for {_BEGINS_WITHIN_S:g} s after its start")


class _Switching:
    """The windows of a run, one after the other."""

    def __init__(self, members: Sequence[_Watched], freezer: Freezer, host: _HostTimes, plan: WindowPlan) -> None:
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
        for place, one in enumerate(self._members):
            if place in state and one.frozen_at is not None:
                one.counter.froze(now - one.frozen_at)
                one.frozen_at = None
            elif place not in state and one.frozen_at is None:
                one.frozen_at = now
        for one in self._members:
            one.counter.begin_state()
        self._freezer.switch(state)

    def _steps(self, began: float) -> list[tuple[float, ...]]:
        step_s, found = self._plan.step_s or 1.0, [self._read()[0]]
        for number in range(1, round(self._plan.dwell_s / step_s)):
            sleep_until(began + number * step_s)
            found.append(self._read()[0])
        return found

    def _read(self) -> tuple[tuple[float, ...], ...]:
        """Progress, answers, their waiting in µs, and how many were due, of every member."""
        return (
            tuple(one.reader.read() for one in self._members),
            tuple(float(one.counter.slots[0]) for one in self._members),
            tuple(float(one.counter.waited_us) for one in self._members),
            tuple(float(one.counter.due) for one in self._members),
        )


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds so far: of everybody but instances, generators, the lab and the kernel's I/O threads, and of steal."""

    at_s: float
    others_s: float | None
    steal_s: float


class _HostTimes:
    """Reads what tells whether a window was disturbed, in a few system calls."""

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
            every, *ours = (int(os.pread(descriptor, 64, 0)) for descriptor in self._usage)
            others = (every - sum(ours) - self._kernel_ns()) / 1e9 - time.process_time()
        return _Times(time.monotonic(), others, steal)

    def _kernel_ns(self) -> int:
        for descriptor in self._threads:
            with contextlib.suppress(OSError):  # who has ended keeps what he had
                self._threads[descriptor] = int(os.pread(descriptor, 64, 0).split()[0])
        return sum(self._threads.values())

    def foreign_s(self, first: _Times, last: _Times) -> float | None:
        """CPU time of others between two readings; None where it is not counted exactly."""
        if first.others_s is None or last.others_s is None:
            return None
        return max(0.0, last.others_s - first.others_s)

    def shares(self, first: _Times, last: _Times) -> tuple[float, float]:
        """Steal of the time of all CPUs, and CPUs that others took."""
        seconds = max(last.at_s - first.at_s, self._tick_s)
        return (last.steal_s - first.steal_s) / seconds / self._cpus, (self.foreign_s(first, last) or 0.0) / seconds


def judged(windows: Sequence[OnOffWindow]) -> list[OnOffWindow]:
    """The same, with those disturbed in which others took much, or steal was well over the usual of the same state.

    The usual, because I/O of a member itself is steal where the hypervisor does it in the guest's time.
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
    """Median over CPUs; windows are what their state is from their begin to their end."""
    found: list[float] = []
    for cpu, taken in samples.items():
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for window in windows:
            busy = any(set(cpus[place]) - {cpu} for place in window.state)
            end = begin + window.at_s
            speeds[busy] += [speed for at, speed in taken if end - window.seconds <= at <= end]
        if min(len(values) for values in speeds.values()) >= _FEWEST_SPEEDS:
            found.append(median(speeds[True]) / median(speeds[False]))
    return median(found) if found else None


def _with_speeds(
    windows: Sequence[OnOffWindow], samples: Mapping[int, Sequence[tuple[float, float]]], begin: float,
    cpus: Sequence[Sequence[int]],
) -> list[OnOffWindow]:  # fmt: skip
    times = {cpu: [at for at, _ in taken] for cpu, taken in samples.items()}
    found: list[OnOffWindow] = []
    for window in windows:
        end = begin + window.at_s
        of_cpu = {
            cpu: [speed for _, speed in taken[bisect(times[cpu], end - window.seconds) : bisect(times[cpu], end)]]
            for cpu, taken in samples.items()
        }
        of_members = [[speed for cpu in own for speed in of_cpu.get(cpu, ())] for own in cpus]
        found.append(replace(window, speeds=tuple(fmean(one) if one else None for one in of_members)))
    return found


def _kernel_threads() -> list[str]:
    """Where the kernel tells the run time of its threads that do the members' I/O: packets, journals, writing back."""
    found: list[str] = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if comm.read_text("ascii", "replace").startswith(_KERNEL_THREADS):
                found.append(str(comm.with_name("schedstat")))
    return found


@contextmanager
def _prompt() -> Iterator[None]:
    """The switching thread runs when it is due, before everybody it measures; it needs some 1 % of a CPU."""
    policy, usual = os.sched_getscheduler(0), os.sched_getparam(0)
    run_before_others()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, usual)
