"""What probes found, as features: of a platform, and of a workload's sensitivity. They are optional (decision 91)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from models.data.dataset import Dataset
from models.features.feature_matrix import PROBED

# The values that say how a host differs from what its inventory tells: the share of a CPU and its gaps, its speed, the
# way to others (propagation, jitter, loss, throughput), and the disk. No probe measures the bandwidth of the memory.
VALUES = (
    "cpu-share.share",
    "cpu-share.longest_gap",
    "cpu-work.median",
    "rtt.median",
    "rtt.stdev",
    "loss.frequency",
    "tcp.throughput",
    "disk.read_small_mean",
    "disk.write_small_mean",
    "disk.read_sustained_mean",
    "disk.write_sustained_mean",
)


def with_probe_features(dataset: Dataset) -> Dataset:
    """The dataset with what its probes found on a host as numbers of the platform, and in place of a workload as
    metrics of its profile there; each value is the probe's, in its unit."""
    of_hosts = {platform: found for (platform, workload), found in dataset.probes.items() if not workload}
    numbers = {
        name: {**dataset.platform_numbers.get(name, {}), **_chosen(of_hosts.get(name, {}))}
        for name in dataset.platforms
    }
    profiles = tuple(
        replace(one, metrics={**one.metrics, **_chosen(dataset.probes.get((one.platform, one.name), {}))})
        for one in dataset.profiles
    )
    return replace(dataset, platform_numbers=numbers, profiles=profiles)


def _chosen(found: Mapping[str, float]) -> dict[str, float]:
    return {PROBED + key: found[key] for key in VALUES if key in found}
