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
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.service import Advisor
from advisor.settings import Settings
from models.arrays import Floats
from models.data.scene import ProfileTable, build_batch
from models.evaluation.contradictions import ALARM, EDGE
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

BEGINS = datetime(2026, 11, 2, 9, tzinfo=UTC)


@dataclass
class CloudWithHogs:
    """Hosts whose agents send windows; `hogs` want so many CPUs from now on, and the CPUs of `slow` hosts are worth
    half."""

    advisor: Advisor
    clock: list[datetime]
    hosts: Sequence[Host]
    rng: np.random.Generator
    hogs: dict[str, float] = field(default_factory=dict)
    slow: set[str] = field(default_factory=set)
    spread: float = 0.3  # of the logarithm of what instances want on average

    def __post_init__(self) -> None:
        self.vms = [
            Instance(f"{host.id}-{at}", VCPUS, 1024.0, host=host.id) for host in self.hosts for at in range(THERE)
        ]
        self.advisor.inventory.put(Inventory(tuple(self.hosts), tuple(self.vms)), mode="replace", generation=None)
        self.now = self.rng.normal(size=len(self.vms))
        self.usual = LOAD * np.exp(self.spread * self.rng.normal(size=len(self.vms)))

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


def hogs(trials: int, seed: int, *, history: int, steady: int = 6, at_most: int = 24) -> TrialsResult:
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


def _trial(cloud: CloudWithHogs, at_most: int) -> list[TrialResult]:
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


def _cloud(folder: Path, hosts: int, seed: int, *, begins: datetime = BEGINS, spread: float = 0.3) -> CloudWithHogs:
    clock = [begins]
    advisor = Advisor(_settings(folder), clock=lambda: clock[0])
    there = [Host(f"h{at:02}", "kvm", pcpus=PCPUS, memory_mb=65_536, cpu_overcommit=16.0) for at in range(hosts)]
    return CloudWithHogs(advisor, clock, there, np.random.default_rng(seed), spread=spread)


def _settings(folder: Path) -> Settings:
    return Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=folder, max_batch=100_000)


@dataclass(frozen=True)
class NewcomerSaid:
    """What answers say that a newcomer would get on a host, with its range, how much wider than the model's own that
    is, and what it would really get."""

    expected: float
    lower: float
    upper: float
    widened: float
    really: float

    def __str__(self) -> str:
        return (
            f"said {self.expected:.2f} ({self.lower:.2f}-{self.upper:.2f}, widened by {self.widened:.1f}), "
            f"really {self.really:.2f}"
        )


def slow_hosts(hosts: int, seed: int, history: int) -> None:
    """CPUs slow by half, first on one host of a cloud, then on all; then a model learns from windows since, and
    answers."""
    from advisor import offline

    with tempfile.TemporaryDirectory() as folder:
        cloud = _cloud(Path(folder), hosts, seed, begins=datetime(2026, 11, 2, 21, tzinfo=UTC), spread=0.6)
        names = [host.id for host in cloud.hosts]
        with cloud.advisor as advisor:
            cloud.learn(history)
            for _ in range(3):
                cloud.window()
            _say(f"before, on {names[0]}: {_newcomer(cloud, names[0])}")
            _say(f"one is slow; {_until_alarms(cloud, names[:1], 12)}")
            for name in names[:2]:
                _say(f"  on {name}: {_newcomer(cloud, name)}")
            slow_s = cloud.clock[0].timestamp()
            _say(f"all are slow; {_until_alarms(cloud, names, 36)}")
            for name in names[:2]:
                _say(f"  on {name}: {_newcomer(cloud, name)}")
            dataset = advisor.window_dataset(cloud.clock[0].timestamp() - slow_s)
            version = _learned(advisor, offline.train([dataset], settings=_settings(Path(folder))))
            for number in range(1, 25):
                cloud.window()
                if number in (3, 6, 12, 24):
                    alarmed = {one.host for one in advisor.cloud.alarms()}
                    _say(f"{number} windows with {version}: alarms on {len(alarmed)} hosts")
            for name in names[:2]:
                _say(f"  on {name}: {_newcomer(cloud, name)}")


def _learned(advisor: Advisor, artifact: Path) -> str:
    """Register and activate a model, and say what the gate says of it."""
    verdict = advisor.models.register(artifact).verdict
    passed = verdict is not None and verdict["passed"]
    _say(f"learned from windows since; the gate {'lets it pass' if passed else f'refuses it: {verdict}'}")
    advisor.models.activate(artifact.name, force=not passed)
    return artifact.name


def _until_alarms(cloud: CloudWithHogs, slow: Sequence[str], windows: int) -> str:
    """Slow these hosts down for so many windows, and say when each had its first alarm and what it named."""
    stood = {one.host for one in cloud.advisor.cloud.alarms()}
    cloud.slow = set(slow)
    first: dict[str, int] = {}
    named = []
    for number in range(1, windows + 1):
        cloud.window()
        for one in cloud.advisor.cloud.alarms():
            if one.host not in stood | first.keys():
                first[one.host] = number
                named.append(one.host in slow and one.cause == "host")
    times = sorted(first.values())
    return f"alarms on {len(first)}, after windows {times}; {sum(named)} of {len(named)} name the host as the cause"


def _newcomer(cloud: CloudWithHogs, host: str) -> NewcomerSaid:
    newcomer = Instance("new", VCPUS, 1024.0, demand={"cpu": Demand(LOAD, common=0.0)})
    answer = cloud.advisor.placements.place(PlacementRequest(newcomer, dry_run=True, hosts=(host,))).recommendation
    band = answer.candidates[0].newcomer.throughput_ratio
    at = next(at for at, one in enumerate(cloud.hosts) if one.id == host)
    there = zip(cloud.vms[at * THERE :][:THERE], cloud.usual[at * THERE :][:THERE], strict=True)
    now = [Instance(vm.id, VCPUS, 1024, demand={"cpu": Demand(float(want), common=0.0)}) for vm, want in there]
    pcpus = PCPUS // 2 if host in cloud.slow else PCPUS
    scenes = [(Host(host, "kvm", pcpus, 65_536), [newcomer, *now])]
    said = PriorPredictor().predict(build_batch(scenes, ProfileTable.build(())), ()).throughput.expected
    really = min(float(np.asarray(said)[0, 0]), 1.0)
    return NewcomerSaid(band.expected, band.lower, band.upper, answer.widened.get(host, 1.0), really)


@dataclass(frozen=True)
class CusumRule:
    """An alarm where the sum of what lies beyond `edge` half widths below, at most 1 a window, reaches `alarm`."""

    alarm: float
    edge: float

    def begins(self, z: Floats) -> Floats:
        """When alarms begin by windows and series, (T, N) of 0 and 1; `z` is how far below in half widths, (T, N)."""
        total, stands, found = np.zeros(z.shape[1]), np.zeros(z.shape[1], bool), np.zeros(z.shape)
        for at, more in enumerate(np.clip(z - self.edge, -1.0, 1.0)):
            total = np.clip(total + more, 0.0, self.alarm)
            found[at] = (total >= self.alarm) & ~stands
            stands = (stands | (total >= self.alarm)) & (total > 0)
        return found


def residuals(correlation: float, series: int, rng: np.random.Generator, *, heavy: bool = False) -> Floats:
    """A week of errors of forecasts in half widths of a true 90 % interval, (WEEK, series): normal, or with Student's t
    of 4 degrees of freedom; each resembles the next one."""
    new = rng.standard_t(4, (WEEK, series)) / math.sqrt(2) if heavy else rng.normal(size=(WEEK, series))
    z = np.empty_like(new)
    last = rng.normal(size=series)
    for at, one in enumerate(new):
        z[at] = last = correlation * last + math.sqrt(1 - correlation**2) * one
    return z / NORMAL_90


def rule_alone(weeks: int, seed: int) -> None:
    """False alarms per instance-week of a rule, and how soon it tells of a share that fell."""
    rng = np.random.default_rng(seed)
    _say("Rule alone (simulated residuals): false alarms per instance-week, normal and heavy tails")
    _say("correlation  intervals too narrow by  " + "  ".join(f"{one.alarm:g} beyond {one.edge:g}" for one in RULES))
    for correlation in (0.0, 0.3, 0.6, 0.8, 0.9):
        both = [residuals(correlation, weeks, rng, heavy=heavy) for heavy in (False, True)]
        for narrow in (1.0, 1.25, 1.5):
            found = [[rule.begins(narrow * z).sum() / weeks for z in both] for rule in RULES]
            line = "  ".join(f"{normal:6.2f}, {heavy:4.2f}" for normal, heavy in found)
            _say(f"{correlation:11.1f}  {narrow:23.2f}  {line}")
    _say("windows until the alarm after a fall by so many half widths, correlation 0.6: median, 95 %")
    z = residuals(0.6, weeks, rng)[:300]
    for fall in (1.5, 2.0, 3.0):
        soon = [
            np.where(found.any(axis=0), found.argmax(axis=0) + 1, 300)
            for found in (rule.begins(z + fall) for rule in RULES)
        ]
        line = "  ".join(f"{np.median(one):6.0f}, {np.quantile(one, 0.95):4.0f}" for one in soon)
        _say(f"{fall:36.1f}  {line}")


RULES = (CusumRule(4.0, 1.0), CusumRule(ALARM, EDGE), CusumRule(7.0, 1.0), CusumRule(4.0, 1.5))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--weeks", type=int, default=1000)
    parser.add_argument("--history", type=int, default=HISTORY, help="windows before anything happens")
    parser.add_argument("--hosts", type=int, default=20, help="of the cloud whose CPUs become slow")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rule_alone(asked.weeks, asked.seed)
    found = hogs(asked.trials, asked.seed, history=asked.history)
    times = sorted(one.windows for one in found.trials if one.windows is not None)
    _say(f"\nA neighbour starts hogging, {len(found.trials)} trials (simulated windows through the service)")
    if times:
        _say(f"alarm in {len(times)}, after windows: median {times[len(times) // 2]}, most {times[-1]}")
    _say(f"right one named: {found.named:.0%}")
    weeks = found.steady / WEEK
    _say(f"false alarms before: {found.false_alarms} in {weeks:.1f} instance-weeks")
    _say(f"\nThe CPUs of hosts slow by half, {asked.hosts} hosts (simulated)")
    slow_hosts(asked.hosts, asked.seed, asked.history)


if __name__ == "__main__":
    main()
