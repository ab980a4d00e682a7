"""Which metrics are kept of too many: one of collinear ones, the same each time, fast for ten thousand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.features.examples import further_metrics
from models.features.feature_matrix import MOST_METRICS, select_metrics


def profiles(values: np.ndarray, names: list[str]) -> list[WorkloadProfile]:
    """A profile for each row; nan is not measured."""
    return [
        WorkloadProfile(f"w{at}", {name: float(one) for name, one in zip(names, row, strict=True) if np.isfinite(one)})
        for at, row in enumerate(values)
    ]


def test_where_there_are_not_too_many_all_are_kept() -> None:
    names = ["b", "a", "c"]
    made = profiles(np.ones((2, 3)), names)
    assert select_metrics(made, names) == ("a", "b", "c")
    assert select_metrics(made, names, most=3) == ("a", "b", "c")
    assert select_metrics([], []) == ()


def test_of_collinear_metrics_one_is_kept() -> None:
    """Logarithms that are multiples of one another say the same, whatever their unit."""
    random = np.random.default_rng(0)
    logs = random.uniform(0.5, 3, (30, 3))
    values = np.expm1(np.concatenate([logs, 2 * logs, 0.5 * logs], axis=1))
    names = [f"{kind}{times}" for times in (1, 2, 3) for kind in "xyz"]
    kept = select_metrics(profiles(values, names), names, most=3)
    assert sorted(name[0] for name in kept) == ["x", "y", "z"]


def test_constant_metrics_are_the_first_to_go() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([np.full((20, 5), 7.0), random.uniform(1, 90, (20, 3)), np.zeros((20, 2))], axis=1)
    names = [f"c{at}" for at in range(5)] + ["x", "y", "z"] + ["z0", "z1"]
    assert select_metrics(profiles(values, names), names, most=3) == ("x", "y", "z")


def test_a_metric_that_few_profiles_have_is_no_reason_to_fail() -> None:
    values = np.random.default_rng(2).uniform(1, 90, (10, 6))
    values[1:, 0] = np.nan
    values[:, 1] = np.nan
    names = list("abcdef")
    kept = select_metrics(profiles(values, names), names, most=4)
    assert len(kept) == 4
    assert "b" not in kept


def test_ten_thousand_metrics_are_thinned_out_and_always_alike() -> None:
    names = [f"m{at:05d}" for at in range(10_000)]
    made = profiles(np.random.default_rng(3).lognormal(0, 2, (40, 10_000)), names)
    kept = select_metrics(made, names)
    assert len(kept) == len(set(kept)) == MOST_METRICS
    assert list(kept) == sorted(kept)
    assert select_metrics(made, set(names)) == kept
    assert select_metrics(made, names[::-1]) == kept


def test_what_agents_measure_or_only_a_laboratory_knows_is_no_further_metric() -> None:
    keys = ("cpu", "driver_domain.block", "event", "net_mbit", "throughput", "psi_cpu", "tlb_misses", "host.power_w")
    profile = WorkloadProfile("w", dict.fromkeys(keys, 1.0))
    data = Dataset("d", "measured", Path(), {}, {}, (profile,), (), "")
    assert further_metrics([data]) == ("host.power_w", "tlb_misses")
