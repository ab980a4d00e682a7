"""The table of unseen settings: what is set is read from the run's name, and a method that is right has no error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from research.unseen_settings import difference, kind_of, main, split, table

DATASETS = Path(__file__).parents[2] / "datasets"


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        ("d/same:web-1k:spin.cap25/1", "cap25"),
        ("d/driver:web-1k:bulk.dedicated200/2", "dedicated200 driver"),
        ("d/driver:spin:disk/1", "driver"),
    ],
)
def test_what_is_set_is_in_the_name_of_the_run(run: str, kind: str) -> None:
    assert kind_of(run) == kind


@pytest.mark.parametrize("settings", ["lab-pairs-xeon-2cpu", "nope"])
def test_what_is_no_second_dataset_is_refused_in_a_sentence(settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(DATASETS / "lab-pairs-xeon-2cpu"), str(DATASETS / settings)])
    assert "dataset" in capsys.readouterr().err.splitlines()[-1]


def test_rows_of_both_datasets_are_told_apart_and_a_right_method_has_no_error() -> None:
    train, rows = split(DATASETS / "lab-pairs-xeon-2cpu", DATASETS / "lab-pair-settings-xeon-2cpu")
    assert {run.partition("/")[0] for run in train.run} == {"lab-pairs-xeon-2cpu"}
    assert {run.partition("/")[0] for run in rows.run} == {"lab-pair-settings-xeon-2cpu"}
    lines = list(table(rows, {"right": rows.ratio, "ones": np.ones(len(rows))}))
    assert lines[-1].startswith(f"| all | {len(rows)} | ")
    assert all(line.split("|")[4].strip() == "0.000" for line in lines[2:])
    mean, low, high = difference(rows, rows.ratio, np.ones(len(rows)))
    assert low < mean < high < 0
