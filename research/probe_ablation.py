"""Asks what probe results add as features, on hosts that differ in what their inventory does not say.

`python -m research.probe_ablation` makes such hosts and asks the queueing prior what happens on them (simulated);
`python -m research.probe_ablation DATASET` reads a dataset with a `probes.csv` instead. Each host is left out in turn.
The learner is the mean of the product's boosters and forest, at half weight, without stacking.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.data.dataset import Dataset, load_dataset
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.evaluation.bootstrap import interval, resampled_means
from models.evaluation.protocols import ProtocolFold, folds_of
from models.evaluation.row_groups import codes
from models.features.examples import Examples, build_examples, metrics_of
from models.features.probe_features import with_probe_features
from models.features.repeats import group_repeats
from models.learning.boosting import fit_boosters, fit_forest, predict
from models.physics.prior import solve
from profiler.observed import Colocation, Host, Instance, Outcome

CORES, UPLINKS, DISKS = (2.0, 1.0), (1000.0, 200.0, 60.0), (400.0, 60.0)  # Mbit/s; MB/s
CAPPED = 0.6  # of one core, which a probe sees, and which one of two whole ones is not
HOSTS_OF_A_KIND = 2
SHARE = 0.5  # of the correction that is applied: what stacking chose on average
LOW, HIGH = 1e-3, 1.1  # of a predicted T/B
NOISE, PROBE_NOISE = 0.05, 0.05  # SD of the logarithms of T/B and of probed values
PROFILES = (
    WorkloadProfile("cpu", {"cpu": 100.0}),
    WorkloadProfile("web", {"cpu": 60.0, "net_mbit": 90.0}),
    WorkloadProfile("stream", {"cpu": 25.0, "net_mbit": 400.0}),
    WorkloadProfile("files", {"cpu": 20.0, "disk_mb_s": 150.0}),
    WorkloadProfile("database", {"cpu": 50.0, "disk_mb_s": 40.0, "net_mbit": 30.0}),
)


@dataclass(frozen=True, slots=True)
class RealHost:
    """What a host really has: `said` is its inventory, `cores` below 1 are a cap on all instances together."""

    said: Host
    cores: float
    uplink: float
    disk: float

    def ratios(self, pairs: Sequence[tuple[str, ...]]) -> Floats:
        """T/B of both instances of each pair, as the queueing prior has it of such a host; (P, 2).

        On a part of a core everybody wants the more of it.
        """
        whole = max(int(self.cores), 1)
        host = replace(self.said, pcpus=whole, nic_mbit=self.uplink, disk_mb_s=self.disk)
        slower = min(self.cores, 1.0)
        profiles = [
            replace(one, metrics={**one.metrics, "cpu": min(one.metrics["cpu"] / slower, 100.0)}) for one in PROFILES
        ]
        table = ProfileTable.build(profiles)
        return solve(build_batch([(host, instances_of(pair)) for pair in pairs], table)).throughput


def instances_of(pair: Sequence[str]) -> tuple[Instance, ...]:
    """The instances of a run, by their workloads."""
    return tuple(Instance(id=f"{name}.{at}", vcpus=1, workload=name) for at, name in enumerate(pair))


def hosts(cores: Sequence[float] = CORES) -> list[RealHost]:
    """Some of each kind, all alike by their inventory."""
    kinds = [*itertools.product(cores, UPLINKS, DISKS)] * HOSTS_OF_A_KIND
    return [
        RealHost(
            Host(f"host-{at:02}", "lxc", 2, 16384.0, nic_mbit=1000.0, disk_mb_s=400.0, platform=f"host-{at:02}"), *kind
        )
        for at, kind in enumerate(kinds)
    ]


def simulated(real: Sequence[RealHost] | None = None) -> Dataset:
    """Pairs on hosts, and what probes would find there."""
    random = np.random.default_rng(20)
    probes: dict[tuple[str, str], dict[str, float]] = {}
    runs: list[Colocation] = []
    some = hosts() if real is None else real
    for one in some:
        probes[one.said.id, ""] = found(one, random)
        runs += _pairs(one, random)
    platforms = {one.said.id: one.said for one in some}
    return Dataset("simulated", "simulated", Path(), {}, platforms, PROFILES, tuple(runs), "", probes=probes)


def found(real: RealHost, random: np.random.Generator) -> dict[str, float]:
    """What probes would find: one loop gets a whole CPU on one core as on two, unless something else runs there."""
    share = 100.0 if real.cores > 1 else min(97.0, 100 * real.cores)  # its own system's tasks have no other core
    values = {
        "cpu-share.share": share,
        "tcp.throughput": 0.94 * real.uplink,
        "rtt.median": 0.1 + 12.0 / real.uplink,
        "disk.write_sustained_mean": real.disk,
        "disk.read_sustained_mean": real.disk,
    }
    return {name: value * float(np.exp(random.normal(0, PROBE_NOISE))) for name, value in values.items()}


def _pairs(real: RealHost, random: np.random.Generator) -> list[Colocation]:
    pairs = list(itertools.combinations_with_replacement([one.name for one in PROFILES], 2))
    return [
        Colocation(
            ":".join(pair),
            real.said.id,
            "1",
            tuple(
                Outcome(one, "throughput", 100.0, 100.0 * float(ratio * np.exp(random.normal(0, NOISE))), "1/s")
                for one, ratio in zip(instances_of(pair), own, strict=True)
            ),
        )
        for pair, own in zip(pairs, real.ratios(pairs), strict=True)
    ]


def compare(dataset: Dataset) -> Sequence[tuple[str, float, list[float] | None]]:
    """MAE of T/B on left-out hosts: of the prior, without probes, with them; the last entry is the gain of probes.

    Intervals are of the mean over hosts (95 %), None with fewer than two.
    """
    probed = with_probe_features(dataset)
    plain, rich = (build_examples([one], metrics_of([one])) for one in (dataset, probed))
    folds = folds_of(plain, "unseen_platform")
    row = np.concatenate([fold.test for fold in folds])
    without, beside = (_errors(one, folds) for one in (plain, rich))
    prior = np.abs(plain.ratio - plain.base)[row]
    cluster = codes(plain.platform)[row]
    columns: dict[str, Floats] = {
        "prior": prior, "without probes": without, "with probes": beside, "with - without": beside - without,
    }  # fmt: skip
    means = resampled_means(cluster, np.stack(list(columns.values()), axis=1))
    return [
        (name, float(column.mean()), interval(None if means is None else means[:, [at]]))
        for at, (name, column) in enumerate(columns.items())
    ]


def _errors(examples: Examples, folds: Sequence[ProtocolFold]) -> Floats:
    """Absolute errors of T/B of all test rows, fold by fold."""
    return np.concatenate([_fold_errors(examples.take(fold.train), examples.take(fold.test)) for fold in folds])


def _fold_errors(train: Examples, test: Examples) -> Floats:
    rows = group_repeats(train)
    fitted = rows.examples.x, rows.residual, rows.weight, train.monotone
    boosters, forest = fit_boosters(*fitted, seed=0, count=2), fit_forest(*fitted, seed=0)
    learned = (predict(boosters, test.x) + predict([forest], test.x)) / 2
    errors: Floats = np.abs(test.ratio - np.clip(test.base * np.exp(SHARE * learned), LOW, HIGH))
    return errors


def main() -> None:
    """Print a table for each dataset that the command line names, or for the simulated hosts."""
    paths = [Path(one) for one in sys.argv[1:]]
    plain = [replace(one, cores=CORES[0], uplink=UPLINKS[0], disk=DISKS[0]) for one in hosts()]
    made = [load_dataset(path) for path in paths] or [simulated(), simulated(plain)]
    words = [str(path) for path in paths] or ["hosts that differ (simulated)", "hosts as they are told (simulated)"]
    for word, dataset in zip(words, made, strict=True):
        sys.stdout.write(f"\n{word}: {len(dataset.platforms)} hosts, {len(dataset.colocations)} runs\n")
        for name, mean, bounds in compare(dataset):
            span = f" ({bounds[0]:.4f} to {bounds[1]:.4f})" if bounds else ""
            sys.stdout.write(f"| {name} | {mean:.4f}{span} |\n")


if __name__ == "__main__":
    main()
