"""Real containers on small hosts through compressed days: who was where, and what each ran and waited in each window.

    python -m research.contention.compressed_days OUTPUT [--seed 1] [--days 6] [--cycles N] [--again K]

Hosts are control groups with one or two whole CPUs of this machine. They take turns: in its turn a host has its CPUs
alone, and between turns its containers sleep, whatever they have left to do, and their clock stands still. So what a
container waits for is its host's CPU and nothing else. A turn is one window of a host; 20 of them are a day. Containers
come, leave and move, and a few hogs come unannounced. With K from 1 on it is the same plan with other chances: when
work arrives, and how much of it at once.

The first line of OUTPUT is the plan, each further one a turn. It needs root, version 1 control groups and a C compiler.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np

from lab.errors import LabError, RunError, StopRequested
from lab.signals import deaf, stoppable
from models.arrays import Floats
from research.contention.container_groups import STATE, HostGroups
from research.contention.container_mixes import MixHost, PlannedContainer, Sizes, draw_sizes, new_seed
from research.contention.container_runs import compile_program, first_in_line, machine_state, read_totals, start_work
from research.contention.host_spec import InstanceSpec

CYCLES_A_DAY = 20
TURN_S, GAP_S = 3.2, 0.1
PAUSE_S = 0.5  # after the turns of all hosts: processes start and end in it
READINGS = 3  # of a turn
_LEAD_S = 3.0
_STAYS_S = 0.3  # after its last turn, so that its counts can be read
_EDGE_S = 0.025  # readings lie so far outside of a turn, when every instance sleeps
_HOSTS = (*((0,), (1,)) * 5, *((0, 1),) * 4)  # CPUs of each
_LOAD = (0.2, 0.75)  # of a host's CPUs, on the mean of a day
_BURST_MS = (1.0, 40.0)
_MOVES, _LEAVES, _COMES, _HOGS = 9, 6, 6, 2  # of a day
_HOG_CYCLES = 8
Kind = Literal["web", "shop", "flat", "batch", "clients", "hog"]
_KINDS: tuple[Kind, ...] = ("web", "shop", "flat", "batch", "clients")
_ODDS = (0.3, 0.15, 0.2, 0.1, 0.25)
_HILLS: Mapping[str, tuple[tuple[float, float, float], ...]] = {  # hour, hours wide, height above 1
    "web": ((11.0, 2.5, 2.0), (15.5, 2.5, 2.0)),
    "shop": ((20.0, 2.5, 3.0),),
}


@dataclass(frozen=True, slots=True)
class DayContainer:
    """One container: its mean demand in CPUs over a day, and the mean CPU time of one of its bursts.

    `clients` think and ask again, `hog` always asks; a `batch` asks for all of `period_s` at once; others are open.
    """

    name: str
    kind: Kind
    vcpus: int
    mean: float
    burst_ms: float
    lognormal: bool
    period_s: float
    late_h: float
    weight: int
    seed: int


@dataclass(frozen=True, slots=True)
class ContainerStay:
    """A container on a host from one cycle to before another one."""

    name: str
    host: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class DaysPlan:
    """The containers, and on which host each is from which cycle to which."""

    cycles: int
    containers: Mapping[str, DayContainer]
    stays: tuple[ContainerStay, ...]


def plan(seed: int, cycles: int) -> DaysPlan:
    """Everything follows from the seed."""
    rng = np.random.default_rng(seed)
    containers: dict[str, DayContainer] = {}
    where: dict[str, tuple[int, int]] = {}  # host, and the cycle since when
    for host, cpus in enumerate(_HOSTS):
        size = int(rng.integers(4, 8)) if len(cpus) == 1 else int(rng.integers(7, 12))
        means = rng.lognormal(0.0, 0.6, size)
        total = float(rng.uniform(*_LOAD)) * len(cpus)
        mixed = rng.random() < 0.3
        for mean in means / means.sum() * total:
            one = _container(rng, len(containers), float(mean), len(cpus), mixed=bool(mixed))
            containers[one.name], where[one.name] = one, (host, 0)
    stays: list[ContainerStay] = []
    for cycle, event in _events(rng, cycles):
        settled = sorted(name for name, (_, since) in where.items() if cycle - since >= 2)
        steady = [name for name in settled if containers[name].kind != "hog"]
        if event == "comes":
            mean = float(0.12 * rng.lognormal(0.0, 0.6))
            host = int(rng.integers(len(_HOSTS)))
            one = _container(rng, len(containers), mean, len(_HOSTS[host]), mixed=False)
            containers[one.name], where[one.name] = one, (host, cycle)
        elif event == "hog":
            name = f"c{len(containers):03d}"
            containers[name] = DayContainer(name, "hog", 1, 1.0, 1000.0, False, 0.0, 0.0, 256, new_seed(rng))
            host = int(rng.integers(len(_HOSTS)))
            stays.append(ContainerStay(name, host, cycle, min(cycle + _HOG_CYCLES, cycles)))
        elif steady:
            name = steady[int(rng.integers(len(steady)))]
            host, since = where.pop(name)
            stays.append(ContainerStay(name, host, since, cycle))
            if event == "moves":
                small = [at for at in range(len(_HOSTS)) if at != host and len(_HOSTS[at]) >= containers[name].vcpus]
                chosen = [small[int(at)] for at in rng.integers(len(small), size=2)]
                load = {at: sum(containers[who].mean for who, (on, _) in where.items() if on == at) for at in chosen}
                where[name] = (min(chosen, key=lambda at: load[at] / len(_HOSTS[at])), cycle)
    stays += [ContainerStay(name, host, since, cycles) for name, (host, since) in where.items()]
    return DaysPlan(cycles, containers, tuple(sorted(stays, key=lambda one: (one.first, one.name))))


def _events(rng: np.random.Generator, cycles: int) -> list[tuple[int, str]]:
    days = cycles / CYCLES_A_DAY
    kinds = [("moves", _MOVES), ("leaves", _LEAVES), ("comes", _COMES), ("hog", _HOGS)]
    found = [
        (int(rng.integers(2, max(cycles - 1, 3))), name) for name, a_day in kinds for _ in range(round(a_day * days))
    ]
    return sorted(found)


def _container(rng: np.random.Generator, number: int, mean: float, cpus: int, *, mixed: bool) -> DayContainer:
    kind = _KINDS[int(rng.choice(len(_KINDS), p=_ODDS))]
    vcpus = 2 if cpus > 1 and rng.random() < 0.3 else 1
    mean = min(mean, 0.6 * vcpus)
    burst_ms = float(np.exp(rng.uniform(*np.log(_BURST_MS))))
    period = float(rng.choice([0.8, 1.6, 3.2]))
    if kind == "batch":
        burst_ms = 1000 * mean * period / vcpus
    weight = int(rng.choice([64, 256, 1024])) if mixed else 256
    late_h = float(rng.normal(0, 1.5))
    return DayContainer(
        f"c{number:03d}", kind, vcpus, mean, burst_ms, bool(rng.random() < 0.3), period, late_h, weight, new_seed(rng)
    )


def demand(one: DayContainer, cycles: int) -> Floats:
    """CPUs that it demands in each cycle, (C,)."""
    rng = np.random.default_rng(one.seed)
    hours = 24 * np.arange(cycles) / CYCLES_A_DAY - one.late_h
    shape = np.ones(cycles)
    for at, wide, high in _HILLS.get(one.kind, ()):
        away = (hours - at + 12) % 24 - 12
        shape += high * np.exp(-((away / wide) ** 2) / 2)
    noise = np.zeros(cycles)
    for cycle in range(1, cycles):
        noise[cycle] = 0.7 * noise[cycle - 1] + math.sqrt(1 - 0.7**2) * rng.normal()
    shape = shape / shape[:CYCLES_A_DAY].mean()
    demanded: Floats = np.minimum(one.mean * shape * np.exp(0.2 * noise - 0.02), 0.9 * one.vcpus)
    return demanded


def jobs(one: DayContainer, stay: ContainerStay, cycles: int, again: int = 0) -> Floats:
    """Rows of seconds of the host's turns since the stay began (of thinking, for who has clients) and CPU seconds."""
    rng = np.random.default_rng((one.seed, stay.first, *([again] if again else [])))
    burst_s = one.burst_ms / 1e3
    sizes: Sizes = "lognormal" if one.lognormal else "exponential"
    seconds = (stay.end - stay.first) * TURN_S
    if one.kind == "hog":
        return np.array([[0.0, 1.0]])
    if one.kind == "clients":
        busy = min(one.mean / one.vcpus, 0.95)
        count = max(64, math.ceil(2 * seconds / burst_s))
        return np.column_stack(
            [rng.exponential(burst_s * (1 / busy - 1), count), draw_sizes(rng, sizes, burst_s, count)]
        )
    if one.kind == "batch":
        begins = np.arange(float(rng.uniform(0, one.period_s)), seconds, one.period_s)
        found: list[tuple[float, float]] = [(at, burst_s) for at in begins.tolist() for _ in range(one.vcpus)]
        return np.array(found or [(seconds, 1e-6)])
    rates = demand(one, cycles)[stay.first : stay.end] / burst_s
    counts = np.asarray(rng.poisson(rates * TURN_S))
    times = np.repeat(np.arange(len(counts)) * TURN_S, counts) + TURN_S * rng.random(int(counts.sum()))
    if not len(times):
        return np.array([[seconds, 1e-6]])
    return np.column_stack([np.sort(times), draw_sizes(rng, sizes, burst_s, len(times))])


def turns() -> list[tuple[int, ...]]:
    """Hosts that have a turn at the same time, each on other CPUs."""
    single = [at for at, cpus in enumerate(_HOSTS) if len(cpus) == 1]
    return [*zip(single[::2], single[1::2], strict=True), *((at,) for at, cpus in enumerate(_HOSTS) if len(cpus) > 1)]


CYCLE_S = (TURN_S + GAP_S) * len(turns()) + PAUSE_S


class StayProcess:
    """The process of a stay, and what the kernel counts of its threads."""

    def __init__(self, stay: ContainerStay, one: DayContainer, process: subprocess.Popen[bytes]) -> None:
        self.stay, self._one, self._process = stay, one, process
        self._counts: list[tuple[int, int]] = []

    def open(self) -> None:
        """Open the counts of every thread; RunError where it ended or has not all of them."""
        if self._counts:
            return
        tasks = sorted(Path(f"/proc/{self._process.pid}/task").glob("[0-9]*"))
        if self._process.poll() is not None or len(tasks) != self._one.vcpus:
            raise RunError(f"{self._one.name} has {len(tasks)} of {self._one.vcpus} threads")
        flags = os.O_RDONLY | os.O_CLOEXEC
        self._counts = [(os.open(one / "schedstat", flags), os.open(one / "status", flags)) for one in tasks]

    def read(self) -> list[int]:
        """Nanoseconds that it ran and waited, how often it was given a CPU, left it by itself, and was put off it."""
        total = [0, 0, 0, 0, 0]
        for schedstat, status in self._counts:
            scheduled = os.pread(schedstat, 80, 0).split()
            switches = os.pread(status, 4096, 0).split()[-3::2]
            for at, value in enumerate([*scheduled, *switches]):
                total[at] += int(value)
        return total

    def stop(self) -> None:
        for pair in self._counts:
            for descriptor in pair:
                os.close(descriptor)
        self._counts = []
        self._process.kill()
        self._process.communicate()


class CompressedDays:
    """Context manager: the hosts and who is on them now. On exit nothing of them is left."""

    def __init__(self, days: DaysPlan, groups: HostGroups, program: Path, again: int) -> None:
        self._plan, self._groups, self._program, self._again = days, groups, program, again
        self._hosts = [MixHost(f"h{at}", cpus, ()) for at, cpus in enumerate(_HOSTS)]
        self._running: dict[str, StayProcess] = {}
        self._start_s = 0.0

    def __enter__(self) -> CompressedDays:
        for host in self._hosts:
            self._groups.make(host)
        return self

    def __exit__(self, *_: object) -> None:
        with deaf():
            for one in self._running.values():
                one.stop()
            self._groups.remove()

    def run(self, cycles: int, output: TextIO) -> None:
        """Go through the first cycles, and write a line for each turn."""
        self._start_s = time.monotonic() + _LEAD_S
        self._change(0)
        for cycle in range(cycles):
            before, used = read_totals(), self._used_s()
            with first_in_line():
                lines = [self._turn(cycle, number, there) for number, there in enumerate(turns())]
            state = machine_state(before, read_totals(), self._used_s() - used)["machine"]
            output.writelines(
                json.dumps({**line, "cycle_machine": state}, separators=(",", ":")) + "\n" for line in lines
            )
            output.flush()
            if cycle + 1 < cycles:
                self._change(cycle + 1)

    def _change(self, cycle: int) -> None:
        for name in [name for name, one in self._running.items() if one.stay.end <= cycle]:
            self._running.pop(name).stop()
        for stay in (one for one in self._plan.stays if one.first == cycle < one.end):
            self._running[stay.name] = self._start(stay)

    def _start(self, stay: ContainerStay) -> StayProcess:
        container = self._plan.containers[stay.name]
        loop: Literal["open", "closed"] = "closed" if container.kind in ("clients", "hog") else "open"
        spec = InstanceSpec(
            f"{container.name}.{stay.first}",
            container.vcpus,
            container.mean,
            loop,
            container.burst_ms,
            weight=container.weight,
        )
        made = self._groups.add(self._hosts[stay.host], PlannedContainer(spec, "open", "exponential", (), 0))
        number = next(at for at, there in enumerate(turns()) if stay.host in there)
        first_s = self._turn_s(stay.first, number)
        times = first_s, first_s + (stay.end - stay.first - 1) * CYCLE_S + TURN_S + _STAYS_S
        mode = f"{loop},{CYCLE_S:.6f},{TURN_S:.6f}"
        work = jobs(container, stay, self._plan.cycles, self._again)
        return StayProcess(stay, container, start_work(self._program, mode, container.vcpus, times, work, made.join))

    def _turn_s(self, cycle: int, number: int) -> float:
        return self._start_s + cycle * CYCLE_S + number * (TURN_S + GAP_S)

    def _turn(self, cycle: int, number: int, hosts: Sequence[int]) -> dict[str, Any]:
        begin = self._turn_s(cycle, number)
        processes = {name: one for name, one in sorted(self._running.items()) if one.stay.host in hosts}
        for one in processes.values():
            one.open()
        at = [begin - _EDGE_S, *(begin + TURN_S * part / READINGS for part in range(1, READINGS))]
        readings, ticks, late = [], [], 0.0
        for when in [*at, begin + TURN_S + _EDGE_S]:
            time.sleep(max(0.0, when - time.monotonic()))
            late = max(late, time.monotonic() - when)
            readings.append({name: one.read() for name, one in processes.items()})
            ticks.append(_ticks())
        return {
            "cycle": cycle, "turn": number, "late_s": round(late, 4),
            "ticks": [[b - a for a, b in zip(*pair, strict=True)] for pair in zip(ticks[0], ticks[-1], strict=True)],
            "hosts": {
                f"h{host}": {
                    name: [_minus(later[name], sooner[name]) for sooner, later in pairwise(readings)]
                    for name, one in processes.items() if one.stay.host == host
                }
                for host in hosts
            },
        }  # fmt: skip

    def _used_s(self) -> float:
        folder = Path(self._groups.mounts["cpuacct"])
        names = [f"{self._groups.prefix}-{host.id}" for host in self._hosts]
        return sum(int((folder / name / "cpuacct.usage").read_text("ascii")) for name in names) / 1e9


def _minus(later: Iterable[int], sooner: Iterable[int]) -> list[int]:
    return [b - a for b, a in zip(later, sooner, strict=True)]


def _ticks() -> list[list[int]]:
    """Of each CPU: ticks as user, nice, system, idle, waiting for I/O, interrupts of both kinds, steal."""
    lines = Path("/proc/stat").read_text("ascii").splitlines()[1 : 1 + (os.cpu_count() or 1)]
    return [[int(one) for one in line.split()[1:9]] for line in lines]


def header(days: DaysPlan, seed: int, again: int) -> dict[str, Any]:
    """The plan as JSON, and how it was run."""
    return {
        "label": "measured", "date": datetime.now(UTC).isoformat(timespec="seconds"), "seed": seed, "again": again,
        "cycles": days.cycles, "cycles_a_day": CYCLES_A_DAY, "turn_s": TURN_S, "cycle_s": round(CYCLE_S, 3),
        "cpus": [list(one) for one in _HOSTS],
        "containers": [dataclasses.asdict(one) for one in days.containers.values()],
        "stays": [dataclasses.asdict(one) for one in days.stays],
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Record days; what was recorded until an error or a signal stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="file to write, one JSON object a line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--cycles", type=int, default=None, help="only the first ones, each about half a minute")
    parser.add_argument("--again", type=int, default=0, help="the same plan with other chances")
    options = parser.parse_args(arguments)
    days = plan(options.seed, options.days * CYCLES_A_DAY)
    try:
        with stoppable(), ExitStack() as stack:
            groups = stack.enter_context(HostGroups(STATE))
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-days-")))
            program = compile_program(folder)
            output = stack.enter_context(options.output.open("x", encoding="utf-8"))
            output.write(json.dumps(header(days, options.seed, options.again), separators=(",", ":")) + "\n")
            living = stack.enter_context(CompressedDays(days, groups, program, options.again))
            living.run(min(options.cycles or days.cycles, days.cycles), output)
    except StopRequested:
        return 130
    except (LabError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
