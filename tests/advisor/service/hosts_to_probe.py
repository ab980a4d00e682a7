"""Hosts that an inventory calls alike and that differ, with what probes find on them; and models trained on some.

What happens on such a host is what the analytic model says of what it really has (simulated), with some noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest, ProbeReport
from advisor.service import Advisor
from advisor.settings import Settings
from models.arrays import Floats
from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.learning import artifact
from models.physics.prior import solve
from models.training import fit_predictor
from profiler.observed import Colocation, Outcome, ProbeResult, Quantity
from tests.servers.fixtures import sqlite_with_tables

CORES, UPLINKS, DISKS = (2.0, 0.6), (1000.0, 200.0, 60.0), (400.0, 60.0)  # below 1 a cap of all together; Mbit/s; MB/s
NOISE = 0.05  # SD of the logarithms of T/B and of probed values
PROFILES = (
    WorkloadProfile("cpu", {"cpu": 100.0}),
    WorkloadProfile("web", {"cpu": 60.0, "net_mbit": 90.0}),
    WorkloadProfile("stream", {"cpu": 25.0, "net_mbit": 400.0}),
    WorkloadProfile("files", {"cpu": 20.0, "disk_mb_s": 150.0}),
    WorkloadProfile("database", {"cpu": 50.0, "disk_mb_s": 40.0, "net_mbit": 30.0}),
)
BUSY = "cpu"  # what every new VM and every resident does
Ratios = Mapping[str, float]  # host → T/B of a new VM beside its resident


@dataclass(frozen=True, slots=True)
class RealHost:
    """What a host really has; `said` is its inventory."""

    said: Host
    cores: float
    uplink: float
    disk: float

    def ratios(self, pairs: Sequence[tuple[str, ...]]) -> Floats:
        """T/B of both instances of each pair, (P, 2). On a part of a core every instance demands the more of it."""
        host = replace(self.said, pcpus=max(int(self.cores), 1), nic_mbit=self.uplink, disk_mb_s=self.disk)
        slower = min(self.cores, 1.0)
        profiles = [
            replace(profile, metrics={**profile.metrics, "cpu": min(profile.metrics["cpu"] / slower, 100.0)})
            for profile in PROFILES
        ]
        scenes = build_batch([(host, _instances(pair)) for pair in pairs], ProfileTable.build(profiles))
        return solve(scenes).throughput

    def probed(self, random: np.random.Generator) -> dict[str, float]:
        """What probes find: one loop gets a whole CPU on one core as on two, unless something else runs there."""
        values = {
            "cpu-share.share": 100.0 if self.cores > 1 else min(97.0, 100 * self.cores),
            "tcp.throughput": 0.94 * self.uplink,
            "rtt.median": 0.1 + 12.0 / self.uplink,
            "disk.write_sustained_mean": self.disk,
            "disk.read_sustained_mean": self.disk,
        }
        return {name: value * float(np.exp(random.normal(0, NOISE))) for name, value in values.items()}


def real_hosts() -> tuple[list[RealHost], list[RealHost]]:
    """Hosts to learn from, and new ones of the same kinds: one of each kind."""
    kinds = [*itertools.product(CORES, UPLINKS, DISKS)]
    names = [f"host-{at:02}" for at in range(2 * len(kinds))]
    said = [Host(name, "lxc", 2, 16384.0, nic_mbit=1000.0, disk_mb_s=400.0) for name in names]
    learned_from = [RealHost(replace(host, platform=host.id), *kind) for host, kind in zip(said, kinds, strict=False)]
    return learned_from, [RealHost(host, *kind) for host, kind in zip(said[len(kinds) :], kinds, strict=True)]


def train(learned_from: Sequence[RealHost], folder: Path) -> tuple[Path, Path]:
    """Artifacts of two models: without and with what probes found."""
    random = np.random.default_rng(20)
    probes, runs = {}, []
    for real in learned_from:
        probes[real.said.id, ""] = real.probed(random)
        runs += _pairs(real, random)
    platforms = {real.said.id: real.said for real in learned_from}
    dataset = Dataset("simulated", "simulated", Path(), {}, platforms, PROFILES, tuple(runs), "", probes=probes)
    return _artifact(replace(dataset, probes={}, fingerprint="without"), folder), _artifact(dataset, folder)


def right(new: Sequence[RealHost]) -> Ratios:
    """What a new VM really gets on each host."""
    return {host.said.id: float(host.ratios([(BUSY, BUSY)])[0, 1]) for host in new}


def serve(models: tuple[Path, Path], new: Sequence[RealHost], folder: Path) -> tuple[Ratios, Ratios, Ratios]:
    """What a service says with the model trained without probes, and with the other one before and after results of
    probes reached it."""
    settings = Settings(database=sqlite_with_tables(folder / "served.sqlite3"), state_dir=folder)
    with Advisor(settings) as advisor:
        plain, rich = (advisor.models.register(path).version for path in models)
        advisor.inventory.put(cloud([host.said for host in new]), mode="replace", generation=None)
        advisor.models.activate(plain, force=True)
        without = _answered(advisor, len(new))
        advisor.models.activate(rich, force=True)
        unprobed = _answered(advisor, len(new))
        _push(advisor, new)
        return without, unprobed, _answered(advisor, len(new))


def cloud(hosts: Sequence[Host]) -> Inventory:
    """These hosts with a resident each."""
    there = tuple(Instance(f"old-{host.id}", host=host.id, workload=BUSY) for host in hosts)
    return Inventory(tuple(hosts), there, PROFILES)


def question(limit: int) -> PlacementRequest:
    """Where a new VM should go."""
    return PlacementRequest(Instance("new", workload=BUSY), limit=limit, dry_run=True)


def as_probed(new: Sequence[RealHost]) -> list[Host]:
    """The hosts with what probes would find on each."""
    random = np.random.default_rng(21)
    return [replace(host.said, probed=host.probed(random)) for host in new]


def _push(advisor: Advisor, new: Sequence[RealHost]) -> None:
    now = datetime.now(UTC)
    for host in as_probed(new):
        results: dict[str, dict[str, Quantity]] = {}
        for key, value in host.probed.items():
            probe, _, name = key.partition(".")
            results.setdefault(probe, {})[name] = Quantity(value, "1")
        found = (ProbeResult(probe, values, next(iter(values)), {}) for probe, values in results.items())
        advisor.telemetry.take_probes([ProbeReport(host.id, result, now) for result in found])


def _answered(advisor: Advisor, limit: int) -> Ratios:
    candidates = advisor.placements.place(question(limit)).recommendation.candidates
    return {candidate.host: candidate.new_vm.throughput_ratio.expected for candidate in candidates}


def _artifact(dataset: Dataset, folder: Path) -> Path:
    return artifact.save(folder / "trained", fit_predictor([dataset]), {"created_at": datetime.now(UTC).isoformat()})


def _pairs(real: RealHost, random: np.random.Generator) -> list[Colocation]:
    def outcome(instance: Instance, ratio: float) -> Outcome:
        return Outcome(instance, "throughput", 100.0, 100.0 * float(ratio * np.exp(random.normal(0, NOISE))), "1/s")

    pairs = list(itertools.combinations_with_replacement([profile.name for profile in PROFILES], 2))
    return [
        Colocation(":".join(pair), real.said.id, "1", tuple(map(outcome, _instances(pair), ratios)))
        for pair, ratios in zip(pairs, real.ratios(pairs), strict=True)
    ]


def _instances(pair: Sequence[str]) -> tuple[Instance, ...]:
    return tuple(Instance(id=f"{name}.{at}", vcpus=1, workload=name) for at, name in enumerate(pair))
