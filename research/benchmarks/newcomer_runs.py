"""A new VM's first evening, on real containers: agents on, nothing written, 30 new VMs after ten minutes.

    python -m research.benchmarks.newcomer_runs OUTPUT [--worlds 0 1] [--sets 4] [--minutes 90]

Ten hosts of 16 CPUs are control groups with a part of a real CPU each. For a world, 24 containers of six kinds run for
ten minutes, in which a day passes, and one agent for each host reports what it sees to a running service. No operator
writes an inventory. Then 30 new VMs come, one each second, and a policy says where each goes. Then the next day
passes. Runs of all policies are interleaved; each begins from what was known after the ten minutes, and is one line of
OUTPUT. A run that is there is not made again, and with `--state` the ten minutes are not, either. It needs root,
version 1 control groups and a C compiler.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advisor.scheduling.rules import NOVA, RULES
from advisor.scheduling.rules import choose as choose_by
from lab.errors import LabError, RunError, StopRequested
from lab.signals import stoppable
from research import markdown
from research.arena.contest import Arriving, interval
from research.arena.evenings import HOST_CPUS, HOSTS, MEMORY_MB, MOST, VCPUS, Evening, draw
from research.benchmarks.newcomer_hosts import LivingHosts, announced, busy
from research.benchmarks.newcomer_service import FastService
from research.contention.container_groups import STATE, HostGroups
from research.contention.container_runs import (
    RunFile,
    compile_program,
    first_in_line,
    machine_state,
    read_totals,
    say,
    sleep_until,
)

DAY_S = 600  # in which the day before passes
STEP_H = 24 / DAY_S  # of a day in a second, while the agents look
WARM_UP_S = 2
GAP_S = 1.0  # between two new VMs
MEASURED_S = 32  # in which the day after passes
MOST_LATE_S = 0.3  # with a sample …
MOST_LATE_TO_COME_S = 2.0  # … and with a new VM, long before the day that is measured
SAMPLES_PER_S = 10
OURS = "Cotenant"
LATELY_S = 5
_LOADS = "loads.json"
POLICIES = (OURS, "least loaded now", NOVA, "random")
FURTHER = ("least loaded",)  # over the day
EveningRun = tuple[int, int, str]  # world, set of new VMs, policy
FIGURES = ("lost", "short", "victims_lost", "victims_short")
WORDS = {
    "lost": "CPU time lost, %", "short": "time short, %", "victims_lost": "residents' CPU time lost, %",
    "victims_short": "residents' time short, %",
}  # fmt: skip


class Loads:
    """What a monitoring system shows of the hosts: CPUs used, lately and over all the time that each container ran."""

    def __init__(self) -> None:
        self.used: dict[str, list[float]] = {}  # by container, one value a second
        self._lately: dict[str, list[float]] = {}  # by host

    def see(self, used: Mapping[str, Mapping[str, float]]) -> None:
        """Take a reading: CPUs by container, by host."""
        for host, there in used.items():
            self._lately.setdefault(host, []).append(sum(there.values()))
            for name, cpus in there.items():
                self.used.setdefault(name, []).append(cpus)

    def now(self, host: str) -> float:
        return statistics.fmean(self._lately.get(host, [0.0])[-LATELY_S:])

    def over_the_day(self, there: Sequence[str]) -> float:
        return sum(statistics.fmean(self.used.get(name, [0.0])) for name in there)


def choose(policy: str, hosts: LivingHosts, loads: Loads, new_vm_mb: float, rng: np.random.Generator) -> int:
    """The host that a rule names, of those that may take one more."""
    there = [hosts.there(host) for host in range(HOSTS)]
    held = np.array([
        [len(names), VCPUS * len(names), MEMORY_MB - hosts.free_mb(host), loads.over_the_day(names)]
        for host, names in enumerate(there)
    ]).T  # fmt: skip
    now = np.array([loads.now(f"h{host}") for host in range(HOSTS)])
    known = Arriving(lambda _: (VCPUS, new_vm_mb, 0.0), MOST * VCPUS, MEMORY_MB, HOST_CPUS, rng, held)
    found = choose_by(RULES[policy], known.fits(0), lambda name: now if name == "load_now" else known.column(name, 0))
    if found is None:
        raise RunError(f"no host has room for {new_vm_mb:g} MB")
    return found


def watch(world: Evening, groups: HostGroups, program: Path, folder: Path, seconds: int) -> Loads:
    """Let the day before pass, with an agent on each host; what the service then knows is in `folder`."""
    loads = Loads()
    with FastService(folder, day_s=DAY_S) as service, LivingHosts(groups, program, service.clock) as hosts:
        start = hosts.populate(world, 0.0, STEP_H, seconds + 2)
        before = hosts.read()
        for second in range(1, seconds + 1):
            sleep_until(start + second)
            now = hosts.read()
            _tell(service, hosts, before, now)
            loads.see(busy(before, now))
            before = now
            if second % 60 == 0:
                say(f"watched for {second} of {seconds} s")
    return loads


def _tell(service: FastService, hosts: LivingHosts, before: Any, now: Any) -> None:
    for announcement in hosts.announcements():
        service.announce(announcement)
    service.push([sample for samples in announced(before, now) for sample in samples])


def run(evening: EveningRun, groups: HostGroups, program: Path, folder: Path, known: Loads) -> dict[str, Any]:
    """One evening and the day after under one policy; `folder` is what the service knew, and is not changed."""
    number_of_world, number_of_set, policy = evening
    world = draw(number_of_world, number_of_set)
    rng = np.random.default_rng([number_of_world, number_of_set])
    loads = Loads()
    loads.used = {name: list(values) for name, values in known.used.items()}
    count = len(world.new_vms)
    evening_s = WARM_UP_S + round(count * GAP_S) + 2
    with ExitStack() as stack:
        service = stack.enter_context(FastService(folder, day_s=DAY_S, copy=True)) if policy == OURS else None
        hosts = stack.enter_context(LivingHosts(groups, program, service.clock if service else None))
        start = hosts.populate(world, 24.0, STEP_H, evening_s, then=(24 / MEASURED_S, MEASURED_S + 1))
        placed, took_s, before = [], [], hosts.read()
        if time.monotonic() > start + WARM_UP_S - GAP_S:
            raise RunError("the agents were not ready in time")
        stack.enter_context(first_in_line())
        for number, new_vm in enumerate(world.new_vms):
            at = start + WARM_UP_S + number * GAP_S
            sleep_until(at - GAP_S + 0.05)
            now = hosts.read()
            loads.see(busy(before, now))
            begin = time.monotonic()
            if service is not None:
                _tell(service, hosts, before, now)
                host = service.where(new_vm)
                took_s.append(time.monotonic() - begin)
            else:
                host = choose(policy, hosts, loads, new_vm.memory_mb, rng)
            before = now
            placed.append(host)
            hosts.come(new_vm, host, at)
        if service is not None:
            service.pause()  # it is not part of the day that is measured
        record = _day_after(hosts, start + evening_s)
    if hosts.late_s > MOST_LATE_TO_COME_S or record["late_s"] > MOST_LATE_S:
        raise RunError(f"it came {hosts.late_s:.2f} s late with a new VM, {record['late_s']:.2f} s with a sample")
    return record | {
        "run": _name(*evening), "label": "measured", "world": number_of_world, "set": number_of_set, "policy": policy,
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "placed": placed,
        "started_late_s": round(hosts.late_s, 3), "asked_s": round(statistics.median(took_s), 4) if took_s else None,
    }  # fmt: skip


def _day_after(hosts: LivingHosts, begin: float) -> dict[str, Any]:
    """Measure the day after: what each container ran and waited, in tenths of seconds."""
    sleep_until(begin - 0.1)
    hosts.open()
    before, used_before = read_totals(), hosts.used_s()
    late_s = 0.0
    for turn in range(MEASURED_S * SAMPLES_PER_S + 1):
        at = begin + turn / SAMPLES_PER_S
        sleep_until(at)
        late_s = max(late_s, time.monotonic() - at)
        hosts.sample()
    after, used_after = read_totals(), hosts.used_s()
    return {
        "containers": hosts.outcomes(MEASURED_S), "late_s": round(late_s, 4),
        **machine_state(before, after, used_after - used_before),
    }  # fmt: skip


def figures(record: Mapping[str, Any]) -> dict[str, float]:
    """Of one run, in parts: CPU time wanted and not got, and time short in tenths of seconds; all, residents."""
    found = {}
    for prefix, wanted in (("", (True, False)), ("victims_", (True,))):
        those = [one for one in record["containers"].values() if one["resident"] in wanted and one["share"] is not None]
        run, wait = (sum(one[name] for one in those) for name in ("run_s", "wait_s"))
        found[f"{prefix}lost"] = wait / (run + wait)
        found[f"{prefix}short"] = statistics.fmean(one["short_100ms"] for one in those)
    return found


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Means of each policy, and how much less of it there is with ours on the same evenings, with 90 % intervals."""
    by_policy: dict[str, dict[tuple[int, int], dict[str, float]]] = {}
    for record in records:
        if not record["disturbed"]:
            by_policy.setdefault(record["policy"], {})[record["world"], record["set"]] = figures(record)
    rows = []
    for policy in (name for name in (*POLICIES, *FURTHER) if name in by_policy):
        runs, cells = by_policy[policy], []
        for name in FIGURES:
            cell = f"{100 * statistics.fmean(each[name] for each in runs.values()):.1f}"
            both = sorted(set(runs) & set(by_policy.get(OURS, {})))
            if policy != OURS and both:
                less = [100 * (runs[at][name] - by_policy[OURS][at][name]) for at in both]
                low, high = interval(less, seed=3, percent=90.0) or (math.nan, math.nan)
                cell += f" (ours {statistics.fmean(less):.1f} [{low:.1f}, {high:.1f}] less)"
            cells.append(cell)
        rows.append([policy, str(len(runs)), *cells])
    return markdown.table(["policy", "runs", *(WORDS[name] for name in FIGURES)], rows)


def known_after(world: int, groups: HostGroups, program: Path, folder: Path, day_s: int) -> Loads:
    """What was seen of a world in the day before; it passes now unless it is kept in `folder`."""
    kept = folder / _LOADS
    loads = Loads()
    if kept.exists():
        loads.used = json.loads(kept.read_text("utf-8"))
        return loads
    say(f"world {world}: {day_s} s in which the residents are watched")
    shutil.rmtree(folder, ignore_errors=True)
    loads = watch(draw(world, 0), groups, program, folder, day_s)
    kept.write_text(json.dumps(loads.used), "utf-8")
    return loads


def measure(output: Path, worlds: Sequence[int], sets: int, until_s: float, day_s: int, state: Path | None) -> None:
    """Make the runs that are missing; begin none after `until_s` of the monotonic clock."""
    with ExitStack() as stack:
        groups = stack.enter_context(HostGroups(STATE))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-newcomers-")))
        program = compile_program(folder)
        runs = RunFile(output)
        stack.callback(runs.close)
        wanted = [each for each in plan(worlds, sets) if _name(*each) not in runs.quiet]
        state = state or folder
        known = {
            world: known_after(world, groups, program, state / f"world{world}", day_s)
            for world in sorted({world for world, *_ in wanted})
        }
        for each in [*wanted, *wanted]:
            world = each[0]
            if time.monotonic() > until_s or _name(*each) in runs.quiet:
                continue
            try:
                record = run(each, groups, program, state / f"world{world}", known[world])
            except RunError as error:
                say(f"{_name(*each)}: {error}")
                continue
            runs.append(record)
            said = ", ".join(f"{key} {100 * value:.1f} %" for key, value in figures(record).items())
            say(f"{record['run']}: {said}{', disturbed' if record['disturbed'] else ''} {record['machine']}")


def plan(worlds: Sequence[int], sets: int) -> list[EveningRun]:
    """All runs: those of an evening one after the other, in any order; what goes beyond the usual policies last."""
    evenings = [(world, number) for number in range(sets) for world in worlds]
    rng = np.random.default_rng(5)
    found: list[EveningRun] = []
    for policies in (POLICIES, FURTHER):
        for world, number in evenings:
            found += [(world, number, policies[at]) for at in rng.permutation(len(policies))]
    return found


def _name(world: int, number: int, policy: str) -> str:
    return f"w{world}-n{number}-{policy}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="file of runs, one JSON object a line; continued when it is there")
    parser.add_argument(
        "--worlds",
        type=int,
        nargs="+",
        default=[0, 1],
        help="numbers of sets of residents, each watched for ten minutes",
    )
    parser.add_argument("--sets", type=int, default=4, help="evenings with other new VMs, for each world")
    parser.add_argument("--minutes", type=float, default=90.0, help="begin no run after so long; 0 = only the table")
    parser.add_argument("--watch", type=int, default=DAY_S, help="seconds for which residents are watched")
    parser.add_argument("--state", type=Path, help="folder in which what was known after that is kept")
    options = parser.parse_args(arguments)
    try:
        if options.minutes > 0:
            with stoppable():
                until_s = time.monotonic() + 60 * options.minutes
                measure(options.output, options.worlds, options.sets, until_s, options.watch, options.state)
        lines = options.output.read_text("utf-8").splitlines()
        sys.stdout.write(table([json.loads(line) for line in lines]))
    except StopRequested as stop:
        sys.stderr.write(f"stopped by {stop}: start again to go on\n")
        return 130
    except (LabError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
