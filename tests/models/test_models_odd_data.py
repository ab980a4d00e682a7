"""Odd training data: no crash, no warning (warnings are errors), and no confident guess."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from models.data.dataset import DatasetError, load_dataset
from models.data.scene import ProfileTable
from models.learning.learned_predictor import LearnedPredictor
from models.learning.residual_model import LEAST_ROWS
from models.training import fit_predictor
from tests.models.synthetic import COLOCATION_COLUMNS, PROFILE_COLUMNS, World, batch, host, instance, write_csv

Rows = list[dict[str, object]]


def world_rows(**more: object) -> Rows:
    return [{**row, **more} for row in World(workloads=3).rows()]


def metric_rows(value: Callable[[int, int], float], metrics: int) -> Rows:
    return [
        {"workload": f"w{at}", "metric": f"m{metric}", "value": value(at, metric)}
        for at in range(3)
        for metric in range(metrics)
    ]


def pair_rows(*names: str) -> Rows:
    """Twenty rows of one pair."""
    mine = [row for row in World(workloads=3).rows() if row["run"] == "0.0-" + "-".join(names)]
    return [{**row, "repeat": f"{number}-{row['repeat']}"} for number in range(5) for row in mine]


ODD: dict[str, tuple[Rows, Rows | None]] = {
    "no metrics": (world_rows(), []),
    "constant metrics": (world_rows(), metric_rows(lambda *_: 7.0, 3)),
    "collinear metrics": (world_rows(), metric_rows(lambda at, metric: (at + 1) * 10.0 ** (4 * metric), 3)),
    "huge and tiny metrics": (world_rows(), metric_rows(lambda at, metric: [1e15, 5e-324, 0.0][(at + metric) % 3], 3)),
    "many more metrics than rows": (world_rows(), metric_rows(lambda at, metric: (at * 7 + metric) % 5, 150)),
    "more metrics than are kept": (world_rows(), metric_rows(lambda at, metric: (at * 7 + metric) % 5, 2000)),
    "ratio 0": (world_rows(colocated=0), None),
    "ratio 3": (world_rows(colocated=300), None),
    "ratio 1": (world_rows(colocated=100), None),
    "one pair": (pair_rows("0", "1"), None),
    "one workload": (pair_rows("0", "0"), None),
    "contradictory repeats": (
        [{**row, "repeat": f"{k}-{row['repeat']}", "colocated": k} for k in (20, 100) for row in world_rows()],
        None,
    ),
}


def odd_dataset(path: Path, name: str) -> Path:
    rows, profiles = ODD[name]
    World(workloads=3).write(path)
    write_csv(path / "colocations.csv", rows, COLOCATION_COLUMNS)
    if profiles is not None:
        write_csv(path / "profiles.csv", profiles, PROFILE_COLUMNS)
    return path


def trained(path: Path, few_trees: None = None) -> tuple[LearnedPredictor, ProfileTable]:
    data = load_dataset(path)
    return fit_predictor([data]), ProfileTable.build(data.profiles)


@pytest.mark.parametrize("name", ODD)
def test_odd_training_data_give_numbers_inside_intervals(tmp_path: Path, few_trees: None, name: str) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", name))
    there = host("lxc", 2)
    said = predictor.predict(
        batch(
            (there, [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0")]),
            (there, [instance("a", "w2"), instance("b", None)]),
            (host("xen", 8), [instance("a", "stranger", vcpus=2), instance("b", "w0", cap=10.0)]),
            table=table,
        )
    )
    for band in (said.throughput, said.latency, said.jitter):
        for values in (band.expected, band.lower, band.upper):
            assert np.isfinite(values).all()
            assert (values > 0).all()
        assert (band.lower <= band.expected).all()
        assert (band.expected <= band.upper).all()
    assert (said.throughput.expected <= 1.1).all()
    assert (said.throughput.lower <= 1.0).all()


@pytest.mark.parametrize("name", ["one pair", "one workload"])
def test_what_nothing_could_be_left_out_of_is_not_trusted_with_strangers(
    tmp_path: Path, few_trees: None, name: str
) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", name))
    assert predictor.throughput.model.unknown_weights.prior_only
    said = predictor.predict(
        batch((host("lxc", 2), [instance("a", "w2", pins="0:0"), instance("b", "w0", pins="0:0")]), table=table)
    )
    assert (said.throughput.expected[0] / said.throughput.lower[0] > 2).all()


def test_contradictory_repeats_give_wide_intervals(tmp_path: Path, few_trees: None) -> None:
    predictor, table = trained(odd_dataset(tmp_path / "odd", "contradictory repeats"))
    said = predictor.predict(
        batch(
            (host("lxc", 2, platform="p1"), [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0")]),
            table=table,
        )
    )
    assert (said.throughput.lower[0] <= 0.21).all()
    assert (said.throughput.upper[0] >= 0.99).all()


@pytest.mark.parametrize("rows", [0, 2, LEAST_ROWS - 1])
def test_too_few_rows_are_refused_with_their_number(tmp_path: Path, rows: int) -> None:
    path = World(workloads=3).write(tmp_path / "few")
    write_csv(path / "colocations.csv", World(workloads=3).rows()[:rows], COLOCATION_COLUMNS)
    with pytest.raises(DatasetError, match=f"few: {rows} measured throughput ratios, at least {LEAST_ROWS} are needed"):
        fit_predictor([load_dataset(path)])
