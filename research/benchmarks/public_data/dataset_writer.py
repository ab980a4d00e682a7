"""A converted source as a dataset directory, written whole or not at all; nothing about any source is known here."""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.dataset_writer import COLOCATIONS, PLATFORMS, PROFILES
from models.data.tables import DatasetError

Cell = str | int | float
Cells = Mapping[str, Cell]
FILES = frozenset({"dataset.yaml", "platforms.csv", "profiles.csv", "colocations.csv"})


@dataclass(frozen=True, slots=True)
class Converted:
    """A source in the contract's words: what dataset.yaml says and the rows of three tables, unknown cells left out.

    Platforms may have further numeric columns.
    """

    meta: Mapping[str, str]
    platforms: Sequence[Cells]
    profiles: Sequence[Cells]
    colocations: Sequence[Cells]

    @property
    def name(self) -> str:
        return self.meta["name"]

    def describe(self) -> str:
        """One line for people: how much of what."""
        workloads = {row["workload"] for row in (*self.profiles, *self.colocations)}
        runs = {(row["platform"], row["run"], row["repeat"]) for row in self.colocations}
        return (
            f"{self.name}: {len(self.colocations)} rows in {len(runs)} runs, {len(workloads)} workloads on"
            f" {len(self.platforms)} platforms, {len(self.profiles)} values of profiles"
        )


def metric(workload: str, name: str, value: float, unit: str = "", platform: str = "") -> Cells:
    """A row of profiles: what `workload` shows alone, on every platform unless one is named."""
    return {
        "platform": platform, "workload": workload, "load": 1, "scope": "instance", "metric": name, "value": value,
        "unit": unit, "repeat": 1,
    }  # fmt: skip


def write_whole(converted: Converted, directory: Path) -> None:
    """Write the directory in one step; an earlier conversion of the same source that stands there is replaced.

    DatasetError where something else stands there, OSError where the disk refuses; the directory is then as it was.
    """
    _refuse_others(directory, converted.name)
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", suffix=".part", dir=directory.parent))
    try:
        new, old = staging / "new", staging / "old"
        new.mkdir()
        _write(new, converted)
        if directory.exists():
            directory.rename(old)
        try:
            new.rename(directory)
        except OSError:
            if old.exists():
                old.rename(directory)
            raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _refuse_others(directory: Path, name: str) -> None:
    """DatasetError unless the place is free, an empty folder, or holds a conversion of this name and nothing else."""
    if not directory.exists() and not directory.is_symlink():
        return
    if directory.is_dir() and not directory.is_symlink():
        found = {path.name for path in directory.iterdir()}
        if not found or (found == FILES and f"name: {name}\n" in (directory / "dataset.yaml").read_text("utf-8")):
            return
    raise DatasetError(f"{directory} holds something else than an earlier conversion of {name}; name a new directory")


def _write(directory: Path, converted: Converted) -> None:
    text = yaml.safe_dump(dict(converted.meta), sort_keys=False, allow_unicode=True, width=110)
    (directory / "dataset.yaml").write_text(text, encoding="utf-8")
    further = dict.fromkeys(column for row in converted.platforms for column in row if column not in PLATFORMS)
    _write_table(directory / "platforms.csv", (*PLATFORMS, *further), converted.platforms)
    _write_table(directory / "profiles.csv", PROFILES, converted.profiles)
    _write_table(directory / "colocations.csv", COLOCATIONS, converted.colocations)


def _write_table(path: Path, columns: Sequence[str], rows: Sequence[Cells]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
