"""Who presses whom by correlation of windows, beside what the run queue says: how often it names the right one.

    python -m research.benchmarks.attribution record FILE [--windows N]   # as root, after `make run-queue`
    python -m research.benchmarks.attribution judge FILE

`record` runs eight real containers, five on one CPU and three on another, whose demand changes at random; one on each
CPU wants six times as much as the others. It writes what the agent measures of each window: CPU use, waiting, and by
BPF who ran while who waited. `judge` asks the correlation, which sees the first two only, and holds it against the
last; then it moves each container's windows by a random time against the others' (round a circle, so that neighbouring
windows stay alike): whoever is named then is named by chance.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.control_groups import GroupMaker
from lab.processes import LabProcess
from lab.resource_registry import ResourceRegistry, clean
from models.arrays import Floats
from models.profiling.antagonists import UsedAndWaited, antagonists
from profiler.agent.log import Log
from profiler.agent.loop import Agent, Pace
from profiler.agent.run_queue import RunQueueWatch
from profiler.backends import LxcBackend
from profiler.backends.run_queue import PROGRAM
from profiler.collectors.windows import MetricWindow
from profiler.observed import IsolationSettings

STATE = Path("/run/cotenant-attribution")
WINDOW_S = 2.0
ON_FIRST, ON_LAST = 5, 3  # containers by CPU
WEIGHT = 2560  # ten times the usual, so that they wait for each other rather than for what else runs on this machine
HOG, LIGHT = 0.5, 0.08  # of a CPU while busy: one on each CPU is the one to name
# Quiet for some windows, then busy for some: bursts of some ms.
_BURSTY = """
use Time::HiRes qw(time sleep); srand($ARGV[0]);
while (1) {
  my $busy = rand() < 0.4 ? $ARGV[1] * (0.5 + rand()) : 0.02; my $until = time + 2 + 10 * rand();
  while (time < $until) {
    my $burst = 0.002 + 0.006 * rand(); my $end = (times)[0] + $burst; my $n = 0;
    my $work = int($burst * 1.5e7); $n += $_ for 1..$work;
    sleep($burst / $busy - $burst);
  }
}
"""


def record(path: Path, windows: int) -> None:
    """Run the containers and write one line for each window."""
    clean(STATE)
    registry, maker, processes = ResourceRegistry(STATE), GroupMaker(), []
    maker.prepare()
    last = (os.cpu_count() or 1) - 1
    log = Log()
    with tempfile.TemporaryDirectory() as folder, path.open("w", encoding="utf-8") as out:
        try:
            for number in range(ON_FIRST + ON_LAST):
                group = registry.group(f"i{number}")
                registry.made("group", group)
                cpu = 0 if number < ON_FIRST else last
                busy = HOG if number in {0, ON_FIRST} else LIGHT
                join = maker.make(group, (cpu,), IsolationSettings(weight=WEIGHT), None)
                command = ["perl", "-e", _BURSTY, str(number + 1), str(busy)]
                processes.append(LabProcess(command, groups=join, network="/proc/self/ns/net", directory=Path(folder)))
            watch = RunQueueWatch(f"build/{PROGRAM}", log)
            before: dict[tuple[str, str], float] = {}

            def keep(window: MetricWindow) -> None:
                values: dict[str, dict[str, float]] = {}
                for (name, scope, metric), one in window.series.items():
                    if metric == "busy" and scope == "host":
                        values["(host)"] = {"busy": round(one.mean, 4)}
                    if name and scope == "instance" and metric in {"cpu", "waiting"}:
                        values.setdefault(name.split(".")[-1], {})[metric] = round(one.mean, 4)
                now = dict(watch.status().waited_for)
                waited = {pair: now[pair] - before.get(pair, 0.0) for pair in now}
                before.clear()
                before.update(now)
                rows = [[a.split(".")[-1], b.split(".")[-1], round(s, 5)] for (a, b), s in waited.items() if s > 0]
                out.write(json.dumps({"seconds": window.seconds, "values": values, "waited_for": rows}) + "\n")
                out.flush()

            watch.start()
            backend = LxcBackend(host="here")
            pace = Pace(interval_s=0.5, window_s=WINDOW_S, duration_s=windows * WINDOW_S)
            Agent(backend, pace, keep, log, after=watch.look, more=watch.close_window).run()
            watch.close()
            backend.close()
        finally:
            registry.remove_run()
            for process in processes:
                process.stop(0)
            registry.close()


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """What was recorded: by container its windows, and for how many seconds the first of a pair waited for the
    second."""

    measured: Mapping[str, UsedAndWaited]
    waited_s: Mapping[tuple[str, str], float]

    @classmethod
    def read(cls, path: Path) -> WaitRecord:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        names = [f"i{number}" for number in range(ON_FIRST + ON_LAST)]

        def row(name: str, metric: str) -> Floats:
            return np.array([line["values"].get(name, {}).get(metric, np.nan) for line in lines])

        waited: dict[tuple[str, str], float] = {}
        for line in lines:
            for victim, other, seconds in line["waited_for"]:
                waited[victim, other] = waited.get((victim, other), 0.0) + seconds
        return cls({name: UsedAndWaited(row(name, "cpu"), row(name, "waiting")) for name in names}, waited)

    def moved(self, random: np.random.Generator) -> dict[str, UsedAndWaited]:
        """The same windows, those of each container begun at another time, far from those of each other one."""
        names = list(self.measured)
        size = self.measured[names[0]].cpu.size
        apart = size // len(names)
        by = random.permutation(len(names)) * apart + random.integers(apart // 2, size=len(names))
        return {
            name: UsedAndWaited(np.roll(self.measured[name].cpu, shift), np.roll(self.measured[name].waiting, shift))
            for name, shift in zip(names, by.tolist(), strict=True)
        }

    def most_waited_for(self, victim: str) -> str:
        """The container for which it waited the longest."""
        return max(self.measured, key=lambda other: self.waited_s.get((victim, other), 0.0))


def share_a_cpu(one: str, other: str) -> bool:
    """Whether both are on the same CPU."""
    return (int(one[1:]) < ON_FIRST) == (int(other[1:]) < ON_FIRST)


def judge(path: Path, trials: int) -> None:
    """Print how often the right one is named."""
    record = WaitRecord.read(path)
    windows = next(iter(record.measured.values())).cpu.size
    print(f"{windows} windows of {WINDOW_S:g} s, {len(record.measured)} containers")
    for label, together in (("is told who shares a CPU", share_a_cpu), ("is not told", lambda _one, _other: True)):
        found = antagonists(record.measured, together)
        right = [one for one in found if share_a_cpu(one.victim, one.suspect)]
        first = {one.victim: one.suspect for one in reversed(found)}
        agrees = sum(record.most_waited_for(victim) == suspect for victim, suspect in first.items())
        random = np.random.default_rng(0)
        by_chance = [antagonists(record.moved(random), together) for _ in range(trials)]
        print(f"{label}: {len(found)} pairs named, {len(right)} of them share a CPU; of {len(first)} victims with")
        print(f"  somebody named, the first is whom it waited for the longest in {agrees}")
        print(f"  moved against each other: somebody named in {sum(map(bool, by_chance)) / trials:.1%} of {trials}")
        for one in found:
            waited = record.waited_s.get((one.victim, one.suspect), 0.0)
            wanted = float(np.nansum(record.measured[one.victim].cpu + record.measured[one.victim].waiting))
            true = waited / (wanted / 100 * WINDOW_S)
            print(f"    {one.victim} loses to {one.suspect} {one.loss:.3f}, by the run queue {true:.3f}")


def main() -> None:
    """Record, or judge a record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("record", "judge"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--windows", type=int, default=600)
    parser.add_argument("--trials", type=int, default=500, help="of windows moved against each other")
    asked = parser.parse_args()
    if asked.what == "record":
        record(asked.file, asked.windows)
    else:
        judge(asked.file, asked.trials)


if __name__ == "__main__":
    main()
