"""A measured dataset as people look at it: who slows whom, combined scores, noise; reads the tables, prints nothing."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from profiler.lab.errors import LabError
from profiler.lab.statistics import Description, describe

_PAIR = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One line of colocations.csv, of the outcome throughput."""

    run: str
    instance: str
    workload: str
    label: str
    pinning: str
    solo: float | None
    colocated: float | None
    repeat: str

    @property
    def ratio(self) -> float | None:
        """T / B, 1.0 = as alone."""
        return None if not self.solo or self.colocated is None else self.colocated / self.solo


@dataclass(frozen=True, slots=True)
class Score:
    """Combined score of a group, the sum of T / B over its members, and the ratio of each."""

    run: str
    members: tuple[str, ...]
    ratios: tuple[float, ...]
    score: Description


@dataclass(frozen=True, slots=True)
class Form:
    """One pinning form: `matrix[victim][neighbour]` is T / B of the victim beside it, for pairs with plain settings."""

    matrix: Mapping[str, Mapping[str, Description]]
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """Everything that `lab show` tells. `noise` describes solo throughput per workload and pinning, over the rounds."""

    directory: str
    repeats: int
    disturbed: int | None
    forms: Mapping[str, Form]
    noise: Mapping[str, Mapping[str, Description]]

    def document(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def show(directory: Path) -> Shown:
    """Read a dataset directory; LabError names file, line and column of what is wrong there."""
    rows = _read(directory / "colocations.csv")
    if not rows:
        raise LabError(f"{directory / 'colocations.csv'} holds no throughput yet: let the lab finish a round")
    names, disturbed = _runs(directory / "runs.csv")
    by_form: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_form[names.get(row.run, row.run.partition(":")[0])].append(row)
    forms = {name: _form(members) for name, members in by_form.items()}
    return Shown(str(directory), len({row.repeat for row in rows}), disturbed, forms, _noise(rows))


def _form(rows: list[Row]) -> Form:
    runs: dict[str, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        runs[row.run][row.repeat].append(row)
    cells: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    scores: list[Score] = []
    for run, repeats in runs.items():
        complete = [_ordered(rows) for rows in repeats.values() if all(row.ratio is not None for row in rows)]
        if not complete:
            continue
        ratios = [[row.ratio or 0.0 for row in rows] for rows in complete]
        members = tuple(row.label for row in complete[0])
        middle = tuple(median(column) for column in zip(*ratios, strict=True))
        scores.append(Score(run, members, middle, describe([sum(together) for together in ratios])))
        if len(members) == _PAIR and all(row.label == row.workload for row in complete[0]):
            for first, second in ratios:
                cells[members[0]][members[1]].append(first)
                cells[members[1]][members[0]].append(second)
    matrix = {
        victim: {neighbour: describe(values) for neighbour, values in columns.items()}
        for victim, columns in cells.items()
    }
    return Form(matrix, tuple(sorted(scores, key=lambda score: (-score.score.median, score.run))))


def _ordered(rows: list[Row]) -> list[Row]:
    """In the order of the campaign file: the last part of an instance's name is its position."""
    return sorted(rows, key=lambda row: row.instance.rsplit(".", 1)[-1])


def _noise(rows: list[Row]) -> dict[str, dict[str, Description]]:
    solos: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.solo is not None:
            where = f"{row.run.partition(':')[0]} {row.pinning}"
            solos[row.label][where][row.repeat] = row.solo
    return {
        label: {where: describe(list(values.values())) for where, values in sorted(places.items())}
        for label, places in sorted(solos.items())
    }


def _runs(path: Path) -> tuple[dict[str, str], int | None]:
    """Pinning form of each run and how many runs were disturbed; a dataset of another origin has no such file."""
    if not path.exists():
        return {}, None
    names: dict[str, str] = {}
    disturbed: set[tuple[str, str]] = set()
    for _, entry in _lines(path, ("run", "repeat", "kind", "pinning", "disturbed")):
        names[entry["run"]] = entry["pinning"]
        if entry["disturbed"] == "1" and entry["kind"] != "calibration":
            disturbed.add((entry["run"], entry["repeat"]))
    return names, len(disturbed)


def _read(path: Path) -> list[Row]:
    rows: list[Row] = []
    columns = ("run", "instance", "workload", "pinning", "outcome", "solo", "colocated", "repeat")
    for line, entry in _lines(path, columns):
        if entry["outcome"] != "throughput":
            continue
        instance = entry["instance"]
        label, dot, position = instance.rpartition(".")
        row = Row(
            entry["run"], instance, entry["workload"],
            label if dot and position.isdecimal() else entry["workload"], entry["pinning"],
            _number(path, line, "solo", entry["solo"]), _number(path, line, "colocated", entry["colocated"]),
            entry["repeat"],
        )  # fmt: skip
        rows.append(row)
    return rows


def _lines(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or [])]
            if missing:
                raise LabError(f"{path}, line 1: column {missing[0]} is missing")
            for entry in reader:
                yield reader.line_num, {column: entry[column] or "" for column in columns}
    except OSError as error:
        raise LabError(f"{path} cannot be read ({error.strerror}): name a directory that lab run wrote") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} is not a CSV table ({error})") from None


def _number(path: Path, line: int, column: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise LabError(f"{path}, line {line}, column {column}: {text[:40]!r} is not a number of at least 0")
    return value
