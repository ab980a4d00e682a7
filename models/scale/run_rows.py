"""Rows of whole runs as arrays, checked as strictly as by the row-by-row reader, which words all errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.dataset import OUTCOMES, RATIO_OUTCOMES, colocations_from
from models.scale.columns import DictionaryColumn, codes, empty, no_id, numbers, text, unprintable, words
from models.scale.run_stream import NUMBERS, TEXTS, RunBatch
from profiler.observed import MAX_CPUS, MAX_WEIGHT, NET_MODES, Host, Pinning, check_id, parse_cpus

T = TypeVar("T")

SATURATED, MAX_LOAD = 1.0, 10.0  # profiler.observed.Instance


@dataclass(frozen=True, slots=True)
class RunRows:
    """R rows of K runs with E instances, an instance of a run being one entry.

    Per row, (R,): words and numbers as they stand in the table, nan = empty; `load` and `vcpus` with their defaults;
    `run` 0..K-1; `entry` 0..E-1 in order of appearance. `first` (E,) is the first row of an entry; `slot` (E,) its
    place in its run. `pins`, `driver` are what the words of `pinning` and `driver_cpus` say, None = nothing.
    """

    platform: DictionaryColumn
    workload: DictionaryColumn
    pinning: DictionaryColumn
    driver_cpus: DictionaryColumn
    net_mode: DictionaryColumn
    outcome: DictionaryColumn
    load: Floats
    vcpus: Floats
    cap_percent: Floats
    weight: Floats
    net_rate_mbit: Floats
    disk_limit_mb_s: Floats
    solo: Floats
    colocated: Floats
    pins: tuple[Pinning | None, ...]
    driver: tuple[tuple[int, ...] | None, ...]
    run: Ints
    entry: Ints
    first: Ints
    slot: Ints


def read_rows(piece: RunBatch, platforms: Mapping[str, Host]) -> RunRows:
    """Check and convert a batch; DatasetError names file, line and column of its first wrong cell.

    Rows that look wrong are read again by the row-by-row reader, which decides and words the error.
    """
    rows, doubtful = _convert(piece, platforms)
    colocations_from(piece.rows(np.unique(rows.run[doubtful])), platforms)
    return rows


def _convert(piece: RunBatch, platforms: Mapping[str, Host]) -> tuple[RunRows, Bools]:
    batch = piece.batch
    cells = {column: text(batch, column) for column in TEXTS}
    doubtful = np.logical_or.reduce([unprintable(cells[column]) for column in TEXTS])
    values: dict[str, Any] = {}
    for column in NUMBERS:
        values[column], wrong = numbers(batch, column)
        doubtful |= wrong
    names: dict[str, Any] = {
        column: words(cells[column])
        for column in ("platform", "workload", "pinning", "driver_cpus", "net_mode", "outcome")
    }
    pins, bad_pins = _each(names["pinning"].words, Pinning.parse)
    driver, bad_driver = _each(names["driver_cpus"].words, lambda word: parse_cpus(word) if word else ())
    pinned = names["pinning"].pick([len(pin.cpus) if pin else 1 for pin in pins])
    values["load"] = np.where(np.isnan(values["load"]), SATURATED, values["load"])
    values["vcpus"] = np.where(np.isnan(values["vcpus"]), pinned, values["vcpus"])
    doubtful |= names["pinning"].pick(bad_pins) | names["driver_cpus"].pick(bad_driver) | no_id(cells["instance"])
    doubtful |= _wrong(names, values, pinned, platforms) | empty(cells["run"])
    run = np.repeat(np.arange(len(piece.key)), np.diff(piece.start))
    entry, first, slot = _entries(run, codes(cells["instance"]), piece.start)
    rows = RunRows(**names, **values, pins=pins, driver=driver, run=run, entry=entry, first=first, slot=slot)
    return rows, doubtful | _contradicts(rows)


def _wrong(
    names: Mapping[str, DictionaryColumn], values: Mapping[str, Floats], pinned: Ints, known: Mapping[str, Host]
) -> Bools:
    """Rows that break a rule of one row; (R,)."""
    _, bad_workload = _each(names["workload"].words, lambda word: check_id(word, "workload"))
    ratio = names["outcome"].pick([word in RATIO_OUTCOMES for word in names["outcome"].words], bool)
    load, vcpus, weight = values["load"], values["vcpus"], values["weight"]
    weighted = ~np.isnan(weight)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            names["platform"].pick([word not in known for word in names["platform"].words], bool)
            | names["workload"].pick(bad_workload)
            | names["outcome"].pick([word not in OUTCOMES for word in names["outcome"].words], bool)
            | names["net_mode"].pick([(word or "none") not in NET_MODES for word in names["net_mode"].words], bool)
            | (ratio & (values["solo"] == 0))
            | ~((load > 0) & (load <= MAX_LOAD))
            | ~((vcpus >= pinned) & (vcpus >= 1) & (vcpus <= MAX_CPUS) & (vcpus == np.floor(vcpus)))
            | (weighted & ~((weight >= 1) & (weight <= MAX_WEIGHT) & (weight == np.floor(weight))))
        )


def _contradicts(rows: RunRows) -> Bools:
    """Rows that contradict the first row of their instance or run, or repeat an outcome; (R,)."""
    first = rows.first[rows.entry]
    found = np.zeros(len(rows.run), dtype=bool)
    for name in ("load", "vcpus", "cap_percent", "weight", "net_rate_mbit", "disk_limit_mb_s"):
        value = getattr(rows, name)
        found |= ~((value == value[first]) | (np.isnan(value) & np.isnan(value[first])))
    for name in ("workload", "pinning", "net_mode"):
        code = getattr(rows, name).code
        found |= code != code[first]
    opening = np.flatnonzero(np.diff(rows.run, prepend=-1))
    found |= rows.driver_cpus.code != rows.driver_cpus.code[opening][rows.run]
    outcome_key = rows.entry * max(len(rows.outcome.words), 1) + rows.outcome.code
    found[np.setdiff1d(np.arange(len(outcome_key)), np.unique(outcome_key, return_index=True)[1])] = True
    return found


def _entries(run: Ints, instance: Ints, start: Ints) -> tuple[Ints, Ints, Ints]:
    """Number the instances of runs in order of appearance: entry of each row, first row and slot of each entry."""
    wide = int(instance.max(initial=0)) + 1
    _, first, entry = np.unique(run * wide + instance, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    first = first[order]
    opening = np.searchsorted(first, start[:-1])  # the first entry of each run
    return number[entry], first, np.arange(len(first)) - opening[run[first]]


def _each(found: Sequence[str], read: Callable[[str], T]) -> tuple[tuple[T | None, ...], Bools]:
    """Parse every word; returns values, None where a word is wrong, and which words are wrong."""
    values: list[T | None] = []
    wrong = np.zeros(len(found), dtype=bool)
    for at, word in enumerate(found):
        try:
            values.append(read(word))
        except ValueError:
            values.append(None)
            wrong[at] = True
    return tuple(values), wrong
