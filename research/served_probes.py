"""Asks a service before and after probe results reach it, on simulated hosts that differ from their inventory.

`python -m research.served_probes` trains on the hosts of `research.probe_ablation`, some under a cap of 60 % of a core,
and asks a service about new hosts of the same kinds, whose inventory calls them all alike. The truth is what the
queueing prior says of what each really has (simulated).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest, ProbeReport
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.dataset import Dataset
from models.learning import artifact
from models.training import fit_predictor
from profiler.observed import ProbeResult, Quantity
from research.probe_ablation import CAPPED, CORES, PROFILES, RealHost, found, hosts, simulated

Ratios = Mapping[tuple[str, str, str], float]  # host, resident, newcomer → T/B of the newcomer


@dataclass(frozen=True, slots=True)
class Served:
    """T/B of newcomers by host, resident and newcomer: what is right, what a service says with a model that was trained
    without probes, and with one that was trained with them, before and after results reached the service."""

    right: Ratios
    without: Ratios
    unprobed: Ratios
    probed: Ratios

    def error(self, told: Ratios, capped: set[str] | None = None) -> float:
        """The mean absolute error, of these hosts only."""
        return float(np.mean([abs(told[key] - self.right[key]) for key in told if capped is None or key[0] in capped]))


def kinds() -> tuple[list[RealHost], list[RealHost]]:
    """Hosts to learn from and new ones of the same kinds, one of each."""
    some = hosts((CORES[0], CAPPED))
    middle = len(some) // 2
    new = [replace(one, said=replace(one.said, platform="")) for one in some[middle:]]
    return some[:middle], new


def train(learned_from: Sequence[RealHost], folder: Path) -> tuple[Path, Path]:
    """Artifacts of two models: without and with what probes found."""
    dataset = simulated(learned_from)
    return _artifact(replace(dataset, probes={}, fingerprint="without"), folder), _artifact(dataset, folder)


def serve(models: tuple[Path, Path], new: Sequence[RealHost], pairs: Sequence[tuple[str, str]], folder: Path) -> Served:
    """Ask about a newcomer beside a resident, on every host and for every pair (resident, newcomer)."""
    settings = Settings(database=f"sqlite:///{folder / 'served.sqlite3'}", state_dir=folder)
    with Advisor(settings) as advisor:
        plain, rich = (advisor.models.register(path).version for path in models)
        advisor.models.activate(plain, force=True)
        without = _asked(advisor, new, pairs)
        advisor.models.activate(rich, force=True)
        unprobed = _asked(advisor, new, pairs)
        push(advisor, new)
        return Served(_right(new, pairs), without, unprobed, _asked(advisor, new, pairs))


def as_probed(new: Sequence[RealHost]) -> list[Host]:
    """The hosts with what probes would find on each."""
    random = np.random.default_rng(21)
    return [replace(one.said, probed=found(one, random)) for one in new]


def push(advisor: Advisor, new: Sequence[RealHost]) -> None:
    """Send that, as results of probes."""
    now = datetime.now(UTC)
    for host in as_probed(new):
        several: dict[str, dict[str, Quantity]] = {}
        for key, value in host.probed.items():
            probe, _, name = key.partition(".")
            several.setdefault(probe, {})[name] = Quantity(value, "1")
        results = [ProbeResult(probe, values, next(iter(values)), {}) for probe, values in several.items()]
        advisor.telemetry.take_probes([ProbeReport(host.id, one, now) for one in results])


def _artifact(dataset: Dataset, folder: Path) -> Path:
    return artifact.save(folder / "trained", fit_predictor([dataset]), {"created_at": datetime.now(UTC).isoformat()})


def _asked(advisor: Advisor, new: Sequence[RealHost], pairs: Sequence[tuple[str, str]]) -> Ratios:
    told = {}
    for resident, newcomer in pairs:
        there = tuple(Instance(f"old-{one.said.id}", host=one.said.id, workload=resident) for one in new)
        cloud = Inventory(tuple(one.said for one in new), there, PROFILES)
        advisor.inventory.put(cloud, mode="replace", generation=None)
        question = PlacementRequest(Instance("new", workload=newcomer), limit=len(new), dry_run=True)
        answer = advisor.placements.place(question).recommendation
        for one in answer.candidates:
            told[one.host, resident, newcomer] = one.newcomer.throughput_ratio.expected
    return told


def _right(new: Sequence[RealHost], pairs: Sequence[tuple[str, str]]) -> Ratios:
    return {
        (host.said.id, *pair): float(own[1])
        for host in new
        for pair, own in zip(pairs, host.ratios(pairs), strict=True)
    }


def main() -> None:
    """Train, ask and print a table."""
    learned_from, new = kinds()
    names = [one.name for one in PROFILES]
    with tempfile.TemporaryDirectory() as folder:
        trained = train(learned_from, Path(folder))
        served = serve(trained, new, [(a, b) for a in names for b in names], Path(folder))
    capped = {one.said.id for one in new if one.cores < 1}
    for name, told in (("without", served.without), ("unprobed", served.unprobed), ("probed", served.probed)):
        figures = served.error(told), served.error(told, capped), len(told)
        sys.stdout.write("| {} | {:.4f} | {:.4f} | {} |\n".format(name, *figures))


if __name__ == "__main__":
    main()
