"""Trained artifacts that bring the held-out errors that the gate shall see in a test."""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from models import training
from models.learning.held_out import HELD_OUT, write_held_out
from tests.models.held_out_cases import table
from tests.models.synthetic import World


def fit(folder: Path) -> Path:
    """A small real artifact, of few trees."""
    with pytest.MonkeyPatch.context() as patch:
        limit_trees(patch, boosters=1)
        return training.train([World(workloads=4, repeats=1).write(folder / "world")], folder / "models")


@cache
def fitted() -> Path:
    """The artifact of `fit`, once in a process; it stays as it is."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-fitted-"))
    atexit.register(shutil.rmtree, folder)
    return fit(folder)


def make(trained: Path, folder: Path, version: str, off: float | None = 0.02, **more: Any) -> Path:
    """A copy of an artifact as `folder`/`version`, off by `off` on held-out rows; None = it has no such rows.

    `more` goes into the table of rows, see `held_out_cases.table`.
    """
    made = folder / version
    shutil.copytree(trained, made)
    for path in made.glob(f"{HELD_OUT}*"):
        path.unlink()
    if off is not None:
        write_held_out(made / HELD_OUT, [table(off, **{"half": 2 * off + 0.05, **more})])
    card = json.loads((made / "card.json").read_text(encoding="utf-8"))
    (made / "card.json").write_text(json.dumps(card | {"version": version}), encoding="utf-8")
    seal(made)
    return made


def seal(artifact: Path) -> None:
    """Write checksums that fit, as an attacker would who makes an artifact of their own."""
    names = sorted(entry.name for entry in artifact.iterdir() if entry.name != "SHA256SUMS" and entry.is_file())
    lines = [f"{hashlib.sha256((artifact / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (artifact / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def limit_trees(
    patch: pytest.MonkeyPatch, trees: int | None = 10, boosters: int | None = None, folds: int | None = None
) -> None:
    """Let every booster stop after so many trees, let so few of them answer together, and leave rows out so seldom;
    None leaves each as it is."""
    import lightgbm  # not before `models`, which sets how OpenMP waits

    real = lightgbm.train
    if trees is not None:
        patch.setattr(lightgbm, "train", lambda options, data, **_: real(options, data, num_boost_round=trees))
    if boosters is not None:
        patch.setattr("models.learning.fitted_target.MEMBERS", max(boosters, 2))
    if folds is not None:
        patch.setattr("models.features.examples.FOLDS", folds)
        patch.setattr("models.features.examples.MOST_FOLDS", folds)
