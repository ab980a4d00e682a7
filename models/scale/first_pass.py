"""First pass over a dataset's co-locations: checks every row, counts runs, and chooses a sample of whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from models.arrays import Hashes, Ints
from models.data.dataset import Dataset, DatasetError, load_dataset
from models.data.tables import find_table
from models.features.probe_features import with_probe_features
from models.scale.columns import mixed
from models.scale.run_rows import read_rows
from models.scale.run_stream import RunBatch, read_run_batches
from models.scale.scenes import highest_cpus, pairs, ratios

ROWS_AT_ONCE = 32_768


@dataclass(frozen=True, slots=True)
class FirstPass:
    """A dataset whose table of co-locations was read once without an error; its `colocations` are empty.

    Per run, (K,): `key` hash of platform, run and repeat; `pair` hash of its workloads; `measured` how many of its
    instances have a ratio. `rows` is the length of the table.
    """

    dataset: Dataset
    table: Path | None
    rows: int
    key: Hashes
    pair: Hashes
    measured: Ints


def survey_of(path: Path) -> FirstPass:
    """Read and check a dataset directory without keeping its co-locations; DatasetError at the first wrong cell.

    The platforms get as many pCPUs as somebody was pinned to, as `load_dataset` gives them.
    """
    dataset = with_probe_features(load_dataset(path, colocations=False))
    table = find_table(dataset.path, "colocations")
    parts: list[tuple[Hashes, Hashes, Ints, Ints]] = []
    rows, most = 0, {name: host.pcpus for name, host in dataset.platforms.items()}
    for piece in read_run_batches(table, ROWS_AT_ONCE) if table else ():
        read = read_rows(piece, dataset.platforms)
        told = ~(np.isnan(ratios(read, "throughput")) & np.isnan(ratios(read, "latency")))
        measured = np.bincount(read.run[read.first[told]], minlength=len(piece.key))
        parts.append((piece.key, pairs(read), measured, piece.line + piece.start[:-1]))
        rows += len(piece.batch)
        for name, cpu in highest_cpus(read).items():
            most[name] = max(most[name], cpu + 1)
    empty = np.zeros(0, dtype=np.uint64)
    parts = parts or [(empty, empty, empty.astype(np.int64), empty.astype(np.int64))]
    key, pair, measured, line = (np.concatenate(found) for found in zip(*parts, strict=True))
    if table:
        _check_together(table, key, line)
    platforms = {name: replace(host, pcpus=most[name]) for name, host in dataset.platforms.items()}
    return FirstPass(replace(dataset, platforms=platforms), table, rows, key, pair, measured)


def choose(surveys: Sequence[FirstPass], most: int, seed: int) -> list[Hashes]:
    """Keys of whole runs, by dataset, sorted: about `most` measured rows, pair by pair as evenly as there are runs.

    Every pair of workloads gives one run before any gives a second; which ones is drawn by `seed`.
    """
    sizes = [len(survey.key) for survey in surveys]
    names = ("key", "pair", "measured")
    key, pair, measured = (np.concatenate([getattr(one, name) for one in surveys]) for name in names)
    draw = mixed(key ^ mixed(np.array([seed], dtype=np.uint64)))
    order = np.lexsort((draw, pair))
    opening = np.diff(pair[order], prepend=pair[order][:1] + np.uint64(1)) != 0
    place = np.arange(len(order))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(opening, place, 0))
    turn = np.lexsort((draw, rank))
    chosen = np.zeros(len(order), dtype=bool)
    chosen[turn[np.cumsum(measured[turn]) <= most]] = True
    chosen &= measured > 0
    return [np.sort(part[picked]) for part, picked in zip(*(_split(v, sizes) for v in (key, chosen)), strict=True)]


def _split(values: NDArray[np.generic], sizes: Sequence[int]) -> list[NDArray[np.generic]]:
    return np.split(values, np.cumsum(sizes)[:-1])


def _check_together(table: Path, key: Hashes, line: Ints) -> None:
    """Raise DatasetError where the rows of a run do not stand together."""
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[order][1:] == key[order][:-1]) + 1
    if len(again):
        at = int(line[order[again]].min())
        raise DatasetError(
            f"{table.name}, line {at}, column run: the run began further up, and in a table of this size its rows must "
            "stand together; sort the table by platform, run and repeat"
        )


def picked(piece: RunBatch, keys: Hashes) -> Ints:
    """Which runs of a batch are among the sorted keys."""
    return np.flatnonzero(np.isin(piece.key, keys))
