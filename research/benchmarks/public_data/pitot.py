"""Pitot's WebAssembly programs in pairs on device x runtime platforms, as a dataset; nothing about writing it."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from models.data.tables import DatasetError, TableRow, read_rows
from research.benchmarks.public_data.dataset_writer import Cell, Cells, Converted, metric
from research.benchmarks.public_data.strict_cells import positive, workload_id

META = {
    "name": "pitot-wasm-pairs",
    "origin": "measured",
    "licence": "MIT",
    "source": "github.com/WiseLabCMU/pitot, commit b94541c2 (part)",
    "notes": (
        "Pairs of WebAssembly programs on devices; a platform is a runtime on a device. Two pCPUs per device and one"
        " vCPU per program are assumed: the source does not say how many there are, nor who was pinned where. solo is"
        " the source's time of the program alone on that platform, one value for all runs. op_x<code> is"
        " ln(1 + how often the program executes that op-code). Cache sizes and frequencies are the source's features"
        " with its scaling undone; those of caches are sums over cores. A run whose second time is empty was measured"
        " for one of the two. Runs that the source lists twice with the same times are one run here."
    ),
}
NS = 1e-9
# How the source scales platform features (collect/platforms.py of its repository): sizes are log2(bytes) less an
# offset, the frequency is ln(MHz) - 7. Column -> ours, and its value from the source's.
SCALED: Mapping[str, tuple[str, Callable[[float], float]]] = {
    "cpufreq": ("cpu_mhz", lambda value: math.exp(value + 7)),
    "l1d_size": ("l1d_kb", lambda value: 2 ** (value + 16 - 10)),
    "l1i_size": ("l1i_kb", lambda value: 2 ** (value + 16 - 10)),
    "l2_size": ("l2_mb", lambda value: 2 ** (value + 21 - 20)),
    "l2_line": ("l2_line", lambda value: 2 ** (value + 10)),
    "l3_size": ("l3_mb", lambda value: 2 ** (value + 21 - 20)),
}
UNKNOWN = {"l2_assoc": "l2_assoc=0"}  # group of indicators -> the one that says that none is known

Solo = dict[tuple[str, str], float]  # (platform, workload) -> seconds
Times = tuple[float | None, float | None]  # of the two of a run, in seconds; None = not measured
Pair = tuple[str, str, str]  # platform and two workloads in order


def convert(source: Path) -> Converted:
    """Read the source's folder; DatasetError names the file, line and column of what is wrong."""
    platforms = [_platform(row) for row in read_rows(source / "platform_features.csv.gz", ("platform",))]
    solo = _solo(source / "solo.csv.gz")
    profiles = [*_op_codes(source / "workload_features.csv.gz")]
    profiles += [metric(name, "solo_runtime_s", value, "s", platform) for (platform, name), value in solo.items()]
    colocations = list(_colocations(source / "pairs.csv.gz", solo))
    known = {row["platform"] for row in platforms}
    for name in [row["platform"] for row in (*profiles, *colocations) if row["platform"]]:
        if name not in known:
            raise DatasetError(f"platform_features.csv.gz has no line for platform {name}, which the times name")
    return Converted(META, platforms, profiles, colocations)


def _platform(row: TableRow) -> Cells:
    """A line of platform features with the scaling undone, what the source marks as absent left out."""
    cells: dict[str, Cell] = {
        "platform": row.text("platform", required=True), "kind": "bare metal", "pcpus": 2,
    }  # fmt: skip
    for column in row.cells:
        if column == "platform" or column.endswith(":ind") or column in UNKNOWN.values():
            continue
        group = column.split("=")[0]
        absent = f"{group}:ind" if f"{group}:ind" in row.cells else ""
        if (absent and not _indicator(row, absent)) or (group in UNKNOWN and _indicator(row, UNKNOWN[group])):
            continue
        if column in SCALED:
            name, unscale = SCALED[column]
            cells[name] = float(f"{unscale(_feature(row, column)):.4g}")  # the source has four digits
        else:
            cells[re.sub(r"\W+", "_", column)] = _indicator(row, column)
    return cells


def _feature(row: TableRow, column: str) -> float:
    value = row.number(column, low=None, required=True)
    if value is None or abs(value) > 32:
        raise row.error(column, f"{row.text(column)} is no scaled size or frequency")
    return value


def _indicator(row: TableRow, column: str) -> int:
    """1 for yes, 0 for no; the source writes 1 and -1."""
    value = row.number(column, low=None, required=True)
    if value not in {1, -1}:
        raise row.error(column, f"{row.text(column)} is neither 1 nor -1")
    return int(value == 1)


def _op_codes(path: Path) -> Iterator[Cells]:
    for row in read_rows(path, ("workload",)):
        name = workload_id(row, "workload")
        for column in row.cells:
            if column != "workload":
                yield metric(name, column, row.number(column, required=True) or 0.0, "ln(1+count)")


def _solo(path: Path) -> Solo:
    found: Solo = {}
    for row in read_rows(path, ("platform", "workload", "solo_ns")):
        key = (row.text("platform", required=True), workload_id(row, "workload"))
        if key in found:
            raise row.error("workload", f"{key[1]} stands twice for {key[0]}")
        found[key] = _seconds(row, "solo_ns")
    return found


def _seconds(row: TableRow, column: str) -> float:
    return float(f"{positive(row, column) * NS:.9g}")  # more digits than the source has


def _colocations(path: Path, solo: Solo) -> Iterator[Cells]:
    for (platform, *names), runs in _runs(path, solo).items():
        for repeat, times in enumerate(runs, start=1):
            for number, (name, time) in enumerate(zip(names, times, strict=True), start=1):
                yield {
                    "run": "+".join(names), "platform": platform, "instance": f"{name}.{number}", "workload": name,
                    "load": 1, "vcpus": 1, "outcome": "runtime_s", "solo": solo.get((platform, name), ""),
                    "colocated": "" if time is None else time, "unit": "s", "repeat": repeat,
                }  # fmt: skip


def _runs(path: Path, solo: Solo) -> dict[Pair, list[Times]]:
    """The runs of every pair, each once.

    The source lists both of a run one by one: the n-th time of A beside B belongs to the n-th of B beside A; of a
    program beside itself, two times in a row are one run.
    """
    listed: dict[Pair, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in read_rows(path, ("platform", "workload", "neighbour", "runtime_ns", "solo_ns")):
        platform = row.text("platform", required=True)
        name, neighbour = workload_id(row, "workload"), workload_id(row, "neighbour")
        if solo.get((platform, name)) != _seconds(row, "solo_ns"):
            raise row.error("solo_ns", f"is not what solo.csv.gz says of {name} on {platform}")
        first, second = sorted((name, neighbour))
        times = listed[platform, first, second]
        side = len(times[0]) > len(times[1]) if first == second else name == second
        times[side].append(_seconds(row, "runtime_ns"))
    return {pair: list(dict.fromkeys(zip_longest(*times))) for pair, times in listed.items()}
