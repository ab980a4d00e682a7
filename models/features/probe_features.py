"""What probes found on hosts, as numbers of their platforms: features where a dataset has them (decision 91)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from models.data.dataset import Dataset
from models.data.scene import PROBED
from models.features.feature_matrix import PLATFORM
from profiler.observed import PROBED_VALUES


def with_probe_features(dataset: Dataset) -> Dataset:
    """The dataset with what its probes found on a host as numbers of the platform, each in the probe's unit; the same
    dataset where it has none of PROBED_VALUES."""
    found = {platform: _chosen(values) for (platform, workload), values in dataset.probes.items() if not workload}
    if not any(found.values()):
        return dataset
    numbers = {
        name: {**dataset.platform_numbers.get(name, {}), **found.get(name, {})}
        for name in {**dataset.platform_numbers, **dataset.platforms}
    }
    return replace(dataset, platform_numbers=numbers)


def usual_host(datasets: Sequence[Dataset]) -> dict[str, float]:
    """What a host without probes counts as having: the median over all platforms, of values that each has.

    A value that some platform lacks is left out: what is unknown was seen in training, then.
    """
    hosts = [one.platform_numbers.get(name, {}) for one in datasets for name in _measured(one)]
    common = [PROBED + name for name in PROBED_VALUES if hosts and all(PROBED + name in host for host in hosts)]
    return {key: median(host[key] for host in hosts) for key in common}


def probes_needed(metrics: Sequence[str]) -> list[str]:
    """The probed values among a model's metrics, as PROBE.NAME, sorted."""
    return sorted(key.removeprefix(PLATFORM + PROBED) for key in metrics if key.startswith(PLATFORM + PROBED))


def _measured(dataset: Dataset) -> list[str]:
    """Platforms that co-locations were measured on."""
    return sorted({one.platform for one in dataset.colocations if not one.ends_s})


def _chosen(found: Mapping[str, float]) -> dict[str, float]:
    return {PROBED + key: found[key] for key in PROBED_VALUES if key in found}
