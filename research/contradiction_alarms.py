"""How soon an alarm tells of a neighbour that starts hogging, whom it names, and how often it errs at steady load.

    python -m research.contradiction_alarms

Windows are simulated and go through the service as an agent's do: samples in, windows held against what was predicted
before them, alarms out. What each gets is what the queueing prior says of the demand of that window, times noise that
resembles itself from window to window. Below that stands how often the rule alone errs, whatever gives the windows.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from models.arrays import Floats
from models.data.scene import ProfileTable, build_batch
from models.evaluation.contradictions import ALARM
from models.physics.prior import PriorPredictor
from models.profiling.demand_estimation import wanted_cpus
from profiler.demand import Demand
from profiler.observed import MetricSample

WINDOW_S, WEEK = 300.0, 2016
VCPUS, PCPUS, THERE = 2, 2, 4  # of each instance, of each host, instances on a host
LOAD = 0.11  # CPUs that an instance wants on average
NOISE, RESEMBLES = 0.15, 0.6  # of demand between windows, and its correlation with the next one
STRAY = 0.02  # of the logarithm of what is got, beside what the prior says
SAMPLES = 3  # of a window
HISTORY = 288  # windows, a day, before the first that is held
NORMAL_90 = 1.645


@dataclass
class SimulatedCloud:
    """Hosts whose agents send windows; `hogs` want so many CPUs from now on, and the CPUs of `slow` hosts are worth
    half."""

    advisor: Advisor
    clock: list[datetime]
    hosts: Sequence[Host]
    rng: np.random.Generator
    hogs: dict[str, float] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.vms = [
            Instance(f"{host.id}-{at}", VCPUS, 1024.0, host=host.id) for host in self.hosts for at in range(THERE)
        ]
        self.advisor.inventory.put(Inventory(tuple(self.hosts), tuple(self.vms)), mode="replace", generation=None)
        self.now = self.rng.normal(size=len(self.vms))
        self.usual = LOAD * np.exp(0.3 * self.rng.normal(size=len(self.vms)))

    def learn(self, windows: int) -> None:
        """Send so many windows of which nothing is held; what each gets is what it gets at its usual demand."""
        usual = self._shares(self.usual)
        for _ in range(windows):
            self._send(self._next_wanted(), usual, self._next_begin_s())

    def window(self) -> None:
        """Tell what is expected of the next window, send it, and hold it once it is over."""
        begin_s = self._next_begin_s()
        self._turn_to(begin_s - 30)
        self.advisor.hold_windows()
        wanted = self._next_wanted()
        self._send(wanted, self._shares(wanted), begin_s)

    def _next_begin_s(self) -> float:
        return math.ceil(self.clock[0].timestamp() / WINDOW_S) * WINDOW_S

    def _next_wanted(self) -> Floats:
        self.now = RESEMBLES * self.now + math.sqrt(1 - RESEMBLES**2) * self.rng.normal(size=len(self.vms))
        wanted = self.usual * np.exp(NOISE * self.now)
        for at, vm in enumerate(self.vms):
            wanted[at] = min(self.hogs.get(vm.id, wanted[at]), VCPUS)
        return wanted

    def _send(self, wanted: Floats, shares: Floats, begin_s: float) -> None:
        shares = shares * np.exp(-np.abs(STRAY * self.rng.normal(size=len(self.vms))))
        samples = []
        for vm, want, share in zip(self.vms, wanted, shares, strict=True):
            run, wait = _ran(float(want), float(share))
            for at in range(SAMPLES):
                time_s = begin_s + (at + 0.5) * WINDOW_S / SAMPLES
                values = {"cpu": 100 * run, "waiting": 100 * wait}
                samples += [MetricSample(vm.host or "", vm.id, "instance", *one, time_s) for one in values.items()]
        self._turn_to(begin_s + WINDOW_S - 1)
        self.advisor.telemetry.ingest(samples)

    def _turn_to(self, time_s: float) -> None:
        self.clock[0] = datetime.fromtimestamp(time_s, UTC)

    def _shares(self, wanted: Floats) -> Floats:
        scenes = []
        for at, host in enumerate(self.hosts):
            there = zip(self.vms[at * THERE :][:THERE], wanted[at * THERE :][:THERE], strict=True)
            now = [Instance(vm.id, VCPUS, 1024, demand={"cpu": Demand(float(want), common=0.0)}) for vm, want in there]
            pcpus = PCPUS // 2 if host.id in self.slow else PCPUS
            scenes.append((Host(host.id, "kvm", pcpus, host.memory_mb), now))
        said = PriorPredictor().predict(build_batch(scenes, ProfileTable.build(())), ()).throughput.expected
        shares: Floats = np.minimum(np.asarray(said, dtype=float).ravel(), 1.0)
        return shares


def _ran(want: float, share: float) -> tuple[float, float]:
    """Run and wait, in CPUs, of who wants so much and gets this share of its time."""
    low, high = 0.0, 2.0 * VCPUS
    for _ in range(40):
        asked = (low + high) / 2
        more = wanted_cpus(share * asked, (1 - share) * asked, VCPUS) < want
        low, high = (asked, high) if more else (low, asked)
    return share * low, (1 - share) * low


@dataclass(frozen=True)
class TrialResult:
    """One host on which somebody started hogging: windows until the first alarm, None = there was none."""

    windows: int | None
    named: bool


@dataclass(frozen=True)
class TrialsResult:
    """All trials, and false alarms before the hogs began over so many windows of instances."""

    trials: tuple[TrialResult, ...]
    false_alarms: int
    steady: int

    @property
    def named(self) -> float:
        """Share of all trials in which the first alarm named the right one."""
        return sum(one.named for one in self.trials) / len(self.trials)


def hogs(trials: int, seed: int, *, history: int, steady: int = 6, at_most: int = 12) -> TrialsResult:
    """So many hosts, in groups that are watched in every window; on each an instance begins to want all its vCPUs."""
    found: list[TrialResult] = []
    false, seen = 0, 0
    while len(found) < trials:
        number = min(trials - len(found), 17)
        with tempfile.TemporaryDirectory() as folder:
            cloud = _cloud(Path(folder), number, seed + len(found))
            with cloud.advisor:
                cloud.learn(history)
                stood: set[str] = set()
                for _ in range(steady):
                    cloud.window()
                    now = {one.instance for one in cloud.advisor.cloud.alarms()}
                    false += len(now - stood)
                    stood, seen = now, seen + len(cloud.vms)
                found += _trial(cloud, at_most)
    return TrialsResult(tuple(found), false, seen)


def _trial(cloud: SimulatedCloud, at_most: int) -> list[TrialResult]:
    quiet = [host.id for host in cloud.hosts if all(one.host != host.id for one in cloud.advisor.cloud.alarms())]
    chosen = {host: f"{host}-{cloud.rng.integers(THERE)}" for host in quiet}
    cloud.hogs = dict.fromkeys(chosen.values(), float(VCPUS))
    first: dict[str, TrialResult] = {}
    for number in range(1, at_most + 1):
        if len(first) == len(chosen):
            break
        cloud.window()
        for one in cloud.advisor.cloud.alarms():
            if one.host in chosen and one.host not in first:
                first[one.host] = TrialResult(number, one.antagonist == chosen[one.host])
    return [first.get(host, TrialResult(None, named=False)) for host in chosen]


def _cloud(folder: Path, hosts: int, seed: int) -> SimulatedCloud:
    settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=folder, max_batch=100_000)
    clock = [datetime(2026, 11, 2, 9, tzinfo=UTC)]
    advisor = Advisor(settings, clock=lambda: clock[0])
    there = [Host(f"h{at:02}", "kvm", pcpus=PCPUS, memory_mb=65_536, cpu_overcommit=16.0) for at in range(hosts)]
    return SimulatedCloud(advisor, clock, there, np.random.default_rng(seed))


@dataclass(frozen=True)
class SlowResult:
    """Hosts whose CPUs are worth half from one window on: the windows until the alarm, how many alarms name the host
    itself, what the answer says a newcomer would get before, with the alarm, and what it would really get, and by how
    much intervals are widened in the end."""

    windows: tuple[int | None, ...]
    host_named: float
    said_before: float
    said_then: float
    really: float
    widened: float


def slow_hosts(hosts: int, seed: int, history: int) -> SlowResult:
    """All hosts of a cloud slow by half, so many windows after they were first seen."""
    from advisor.domain import PlacementRequest

    with tempfile.TemporaryDirectory() as folder:
        cloud = _cloud(Path(folder), hosts, seed)
        newcomer = Instance("new", VCPUS, 1024.0, demand={"cpu": Demand(LOAD, common=0.0)})
        request = PlacementRequest(newcomer, dry_run=True)
        with cloud.advisor as advisor:
            cloud.learn(history)
            for _ in range(3):
                cloud.window()
            before = advisor.placements.place(request).recommendation.candidates[0].newcomer.cpu
            cloud.slow = {host.id for host in cloud.hosts}
            first: dict[str, int] = {}
            causes: list[bool] = []
            for number in range(1, 9):
                cloud.window()
                for one in advisor.cloud.alarms():
                    if one.host not in first:
                        first[one.host] = number
                        causes.append(one.cause == "host")
            then = advisor.placements.place(request).recommendation.candidates[0]
            cloud.clock[0] += timedelta(days=1)
            for _ in range(3):
                cloud.window()
            wide = advisor.placements.place(request).recommendation.widened
            really = _alone_on_slow(cloud, then.host, newcomer)
        return SlowResult(
            tuple(first.get(host.id) for host in cloud.hosts),
            sum(causes) / max(len(causes), 1),
            before.share if before else math.nan,
            then.newcomer.cpu.share if then.newcomer.cpu else math.nan,
            really,
            max(wide.values(), default=1.0),
        )


def _alone_on_slow(cloud: SimulatedCloud, host: str, newcomer: Instance) -> float:
    at = next(at for at, one in enumerate(cloud.hosts) if one.id == host)
    there = zip(cloud.vms[at * THERE :][:THERE], cloud.usual[at * THERE :][:THERE], strict=True)
    now = [Instance(vm.id, VCPUS, 1024, demand={"cpu": Demand(float(want), common=0.0)}) for vm, want in there]
    scenes = [(Host(host, "kvm", PCPUS // 2, 65_536), [newcomer, *now])]
    said = PriorPredictor().predict(build_batch(scenes, ProfileTable.build(())), ()).throughput.expected
    return float(np.asarray(said)[0, 0])


def false_alarms_per_week(
    correlation: float, narrow: float, *, heavy: bool, weeks: int, rng: np.random.Generator
) -> float:
    """Alarms in an instance-week of the rule alone: residuals of forecasts, normal or with Student's t of 4 degrees of
    freedom, that resemble the next one, under intervals that should be `narrow` times as wide."""
    number = weeks * WEEK
    innovations = rng.standard_t(4, number) / math.sqrt(2) if heavy else rng.normal(size=number)
    z = np.empty(number)
    last = 0.0
    for at, one in enumerate(innovations):
        last = correlation * last + math.sqrt(1 - correlation**2) * float(one)
        z[at] = last
    total, stands, raised = 0.0, False, 0
    for more in np.clip(narrow * z / NORMAL_90 - 1.0, -1.0, 1.0).tolist():
        total = min(max(total + more, 0.0), ALARM)
        if total >= ALARM and not stands:
            raised, stands = raised + 1, True
        elif total == 0.0:
            stands = False
    return raised / weeks


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--weeks", type=int, default=1000)
    parser.add_argument("--history", type=int, default=HISTORY, help="windows before anything happens")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    _say("Rule alone, false alarms per instance-week (simulated residuals)")
    _say("correlation  intervals too narrow by  normal  heavy tails")
    for correlation in (0.0, 0.3, 0.6, 0.8):
        for narrow in (1.0, 1.25, 1.5):
            both = [
                false_alarms_per_week(correlation, narrow, heavy=heavy, weeks=asked.weeks, rng=rng)
                for heavy in (False, True)
            ]
            _say(f"{correlation:11.1f}  {narrow:23.2f}  {both[0]:6.3f}  {both[1]:11.3f}")
    found = hogs(asked.trials, asked.seed, history=asked.history)
    times = sorted(one.windows for one in found.trials if one.windows is not None)
    _say(f"\nA neighbour starts hogging, {len(found.trials)} trials (simulated windows through the service)")
    if times:
        _say(f"alarm in {len(times)}, after windows: median {times[len(times) // 2]}, most {times[-1]}")
    _say(f"right one named: {found.named:.0%}")
    weeks = found.steady / WEEK
    _say(f"false alarms before: {found.false_alarms} in {weeks:.1f} instance-weeks")
    slow = slow_hosts(6, asked.seed, asked.history)
    _say("\nThe CPUs of 6 hosts slow by half (simulated)")
    _say(f"windows until the alarm: {list(slow.windows)}")
    _say(f"alarms that name the host: {slow.host_named:.0%}")
    _say(f"a newcomer would get {slow.really:.2f}; said before {slow.said_before:.2f}, then {slow.said_then:.2f}")
    _say(f"intervals widened by {slow.widened:.2f} after a day")


if __name__ == "__main__":
    main()
