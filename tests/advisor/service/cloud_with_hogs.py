"""A cloud whose agents send simulated windows, in which instances start hogging and hosts become slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from models.arrays import Floats
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import PriorPredictor
from models.profiling.demand_estimation import demanded_cpus
from profiler.demand import Demand
from profiler.observed import MetricSample

WINDOW_S = 300.0
VCPUS, PCPUS, THERE = 2, 2, 4  # of each instance, of each host, instances on a host
LOAD = 0.11  # CPUs that an instance demands on average
NOISE, RESEMBLES = 0.15, 0.6  # of demand between windows, and its correlation with the next one
STRAY = 0.02  # of the logarithm of what is got, beside what the prior says
SAMPLES = 3  # of a window
LEARNED_AT_ONCE = 12  # windows


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
        begin_s, samples = self._next_begin_s(), list[MetricSample]()
        for at in range(windows):
            samples += self._samples(self._next_wanted(), usual, begin_s + at * WINDOW_S)
            if (at + 1) % LEARNED_AT_ONCE == 0 or at + 1 == windows:
                self._turn_to(begin_s + (at + 1) * WINDOW_S - 1)
                self.advisor.telemetry.ingest(samples)
                samples.clear()

    def window(self) -> None:
        """Tell what is expected of the next window, send it, and hold it once it is over."""
        begin_s = self._next_begin_s()
        self._turn_to(begin_s - 30)
        self.advisor.hold_windows()
        wanted = self._next_wanted()
        samples = self._samples(wanted, self._shares(wanted), begin_s)
        self._turn_to(begin_s + WINDOW_S - 1)
        self.advisor.telemetry.ingest(samples)

    def _next_begin_s(self) -> float:
        return math.ceil(self.clock[0].timestamp() / WINDOW_S) * WINDOW_S

    def _next_wanted(self) -> Floats:
        self.now = RESEMBLES * self.now + math.sqrt(1 - RESEMBLES**2) * self.rng.normal(size=len(self.vms))
        wanted = self.usual * np.exp(NOISE * self.now)
        for at, vm in enumerate(self.vms):
            wanted[at] = min(self.hogs.get(vm.id, wanted[at]), VCPUS)
        return wanted

    def _samples(self, wanted: Floats, shares: Floats, begin_s: float) -> list[MetricSample]:
        shares = shares * np.exp(-np.abs(STRAY * self.rng.normal(size=len(self.vms))))
        samples = []
        for vm, want, share in zip(self.vms, wanted, shares, strict=True):
            run, wait = ran(float(want), float(share), VCPUS)
            for at in range(SAMPLES):
                time_s = begin_s + (at + 0.5) * WINDOW_S / SAMPLES
                values = {"cpu": 100 * run, "waiting": 100 * wait}
                samples += [MetricSample(vm.host or "", vm.id, "instance", *one, time_s) for one in values.items()]
        return samples

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


def ran(want: float, share: float, vcpus: int) -> tuple[float, float]:
    """Run and wait, in CPUs, of who demands so much and gets this share of its time."""
    low, high = 0.0, 2.0 * vcpus
    for _ in range(50):
        asked = (low + high) / 2
        low, high = (asked, high) if demanded_cpus(share * asked, (1 - share) * asked, vcpus) < want else (low, asked)
    return share * low, (1 - share) * low
