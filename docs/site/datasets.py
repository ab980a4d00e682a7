"""The page of datasets: one table of what is shipped, from each dataset's own description."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import yaml

from docs.site.tables import code, table
from models.data.dataset import RATIO_OUTCOMES
from models.data.dataset_rules import DatasetStatus

FOLDER = Path(__file__).resolve().parents[2] / "datasets"
ORDER = ("train", "judge", "hidden", "findings", "historical")
HEAD = """\
# Datasets

The datasets in `datasets/`, from each `dataset.yaml`. [The lab](lab.md#what-it-writes) lists the columns of the
tables.

| status | meaning |
|---|---|
| train | `cotenant train` learns from it unless datasets are named |
| judge | tables of errors show it; it is learned from only where it is named |
| hidden | kept to judge (`hidden: true`): training, evaluation and the choice of features refuse it |
| findings | shows single findings, and is neither learned from nor averaged over |
| historical | superseded, kept for the profiles of examples and for older figures |

Only `python -m research.prediction_by_mechanism --hidden` reads hidden ones, for final tables. Ratios are counted as
the tables hold them. When they are read,
[impossible ratios](decisions/archive/archive.md) are limited to the offered load or set aside;
`cotenant-lab show` and training count these.
"""
TAIL = """
Without `dataset.yaml`: `container-contention` (real containers on one or two CPUs, CPU delivered second by second,
measured on 2026-11-23) and `simulated-contention` (random hosts of 2 to 128 CPUs, simulated). Both judge
[contention](../research/results/contention.md#contention-on-hosts-of-2-to-128-cpus) and have no pairs to learn from.
"""


def page() -> str:
    """The whole page."""
    rows = [_row(path) for path in sorted(FOLDER.glob("*/dataset.yaml"))]
    rows.sort(key=lambda row: ORDER.index(row["status"].partition(",")[0]))
    columns = ("dataset", "status", "ratios", "holds", "machine", "date")
    return "".join([HEAD, table(columns, ([row[name] for name in columns] for row in rows)), TAIL])


def _row(card: Path) -> dict[str, str]:
    about: dict[str, Any] = yaml.safe_load(card.read_text(encoding="utf-8"))
    status = DatasetStatus.of(about)
    by = f", now {' and '.join(f'`{name}`' for name in status.superseded_by)}" if status.superseded_by else ""
    with (card.parent / "colocations.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["outcome"] in RATIO_OUTCOMES]
    machine = "several, see its README" if about["origin"] == "paper" else str(about["machine"]).rpartition(",")[0]
    return {
        "dataset": code(card.parent.name),
        "status": ("hidden" if status.hidden else status.status) + by,
        "ratios": f"{sum(bool(row['solo'] and row['colocated']) for row in rows):,}",
        "holds": str(about["holds"]),
        "machine": machine,
        "date": str(about["date"]),
    }
