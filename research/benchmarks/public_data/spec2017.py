"""SPEC CPU2017 programs in pairs on one socket, with memory-bubble sweeps, as a dataset; nothing about writing it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from models.data.tables import DatasetError, TableRow, read_rows
from research.benchmarks.public_data.dataset_writer import Cells, Converted, metric
from research.benchmarks.public_data.strict_cells import positive, workload_id

META = {
    "name": "spec2017-pairs",
    "origin": "measured",
    "licence": "MIT",
    "source": "github.com/Bruno-Dzk/resource-contention, commit 709dc164, results_archive/test_results (part)",
    "notes": (
        "Pairs of SPEC CPU2017 programs, the first on cores 0-2, the second on cores 3-5 of one socket. The source"
        " gives T/B only, therefore throughput with solo 1. The machine is not described: six cores are the least it"
        " has. bubble_<level>mb is the T/B of a program beside a memory bubble of that size; bubble_rand_ and"
        " bubble_stream_ are the two access patterns where the source has them apart, without one the mean of their"
        " times. bubble_reporter is the T/B of the probe program beside the workload; the workload `reporter` is that"
        " probe program. Level 0 is the reference and therefore no metric."
    ),
}
PLATFORM = "six-cores"
REPORTER = "reporter"
PINNINGS = ("0:0|1:1|2:2", "0:3|1:4|2:5")
MODES = {"perf": "", "avg": "", "rand": "rand_", "stream": "stream_"}  # column of times -> part of a metric's name

Times = dict[str, dict[float, float]]  # mode -> level in MB -> time
Modes = dict[str, float]  # mode -> time


def convert(source: Path) -> Converted:
    """Read the source's folder; DatasetError names the file, line and column of what is wrong."""
    colocations = list(_colocations(source / "pairs.csv"))
    workloads = list(dict.fromkeys(str(row["workload"]) for row in colocations))
    reporter = _sweep(source / "reporter_sensitivity.csv", "bubble_mb")
    beside = _beside(source / "contentiousness.csv")
    profiles = list(_curves(REPORTER, reporter))
    for workload in workloads:
        if workload not in beside:
            raise DatasetError(f"contentiousness.csv has no line for {workload}, which pairs.csv names")
        times = _sweep(source / "sensitivity" / f"{workload.replace('.', '_')}.csv", "footprint_mb")
        profiles += [_metric(workload, "solo_runtime_s", times[""][0.0], "s"), *_curves(workload, times)]
        for mode, time in beside[workload].items():
            profiles.append(_metric(workload, f"bubble_{mode}reporter", _alone(reporter, mode) / time))
    platform: Cells = {"platform": PLATFORM, "kind": "bare metal", "pcpus": 6}
    return Converted(META, [platform], profiles, colocations)


def _colocations(path: Path) -> Iterator[Cells]:
    """Two rows per pair; a pair that stands in several lines, in either order, was measured as often."""
    repeats: dict[frozenset[str], int] = {}
    for row in read_rows(path, ("name1", "name2", "actual1", "actual2")):
        names = [workload_id(row, "name1"), workload_id(row, "name2")]
        repeat = repeats[frozenset(names)] = repeats.get(frozenset(names), 0) + 1
        for number, (name, pinning) in enumerate(zip(names, PINNINGS, strict=True), start=1):
            yield {
                "run": "+".join(sorted(names)), "platform": PLATFORM, "instance": f"{name}.{number}", "workload": name,
                "load": 1, "vcpus": 3, "pinning": pinning, "outcome": "throughput", "solo": 1,
                "colocated": positive(row, f"actual{number}"), "unit": "solo speed", "repeat": repeat,
            }  # fmt: skip


def _sweep(path: Path, level_column: str) -> Times:
    """Times by mode and bubble size, the size 0 among them."""
    times: Times = {}
    for row in read_rows(path, (level_column,)):
        level = row.number(level_column, required=True) or 0.0
        for mode, time in _times(row).items():
            if level in times.setdefault(mode, {}):
                raise row.error(level_column, f"{level:g} stands twice")
            times[mode][level] = time
    if any(0.0 not in by_level for by_level in times.values()) or "" not in times:
        raise DatasetError(f"{path.name} has no line with {level_column} 0, the time alone")
    return times


def _beside(path: Path) -> dict[str, Modes]:
    """The probe program's time beside each workload, by workload and mode."""
    found: dict[str, Modes] = {}
    for row in read_rows(path, ("workload", "avg")):
        workload = workload_id(row, "workload")
        if workload in found:
            raise row.error("workload", f"{workload} stands twice")
        found[workload] = _times(row)
    return found


def _times(row: TableRow) -> Modes:
    """Every column of times in this row by mode; DatasetError where none is the time over all modes."""
    times = {MODES[column]: positive(row, column) for column in MODES if column in row.cells}
    if "" not in times:
        raise row.error("avg", "is missing: a column avg or perf must hold the time")
    return times


def _alone(times: Times, mode: str) -> float:
    if mode not in times:
        raise DatasetError(f"reporter_sensitivity.csv has no column {mode.rstrip('_')}, contentiousness.csv has it")
    return times[mode][0.0]


def _curves(workload: str, times: Times) -> Iterator[Cells]:
    """T/B beside every bubble but the empty one."""
    for mode, by_level in times.items():
        for level, time in sorted(by_level.items()):
            if level:
                yield _metric(workload, f"bubble_{mode}{level:g}mb", by_level[0.0] / time)


def _metric(workload: str, name: str, value: float, unit: str = "solo speed") -> Cells:
    return metric(workload, name, value, unit, platform=PLATFORM)
