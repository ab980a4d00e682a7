"""Small made-up sources in the shapes of the public ones, and ways to damage them; no measurement is copied here."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from models.data.dataset import Dataset, load_dataset
from research.benchmarks.public_data.dataset_writer import Converted, write_whole

Rows = Sequence[Sequence[object]]


def table(path: Path, header: str, rows: Rows) -> None:
    """Write a CSV table, packed where its name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def loaded(converted: Converted, folder: Path) -> Dataset:
    """What was converted, written below a folder and read again."""
    write_whole(converted, folder / "out")
    return load_dataset(folder / "out")


def damage(path: Path, old: str, new: str) -> None:
    """Replace the first `old` in a file that must hold it."""
    packed = path.suffix == ".gz"
    text = (gzip.decompress(path.read_bytes()) if packed else path.read_bytes()).decode()
    assert old in text
    changed = text.replace(old, new, 1).encode()
    path.write_bytes(gzip.compress(changed) if packed else changed)


def spec(folder: Path) -> Path:
    """Programs 1.a and 2.b, a pair in either order and 1.a with itself, a reporter with two modes."""
    pairs = [("1.a", "2.b", 1, 1, 0.9, 0.8), ("2.b", "1.a", 1, 1, 0.82, 0.92), ("1.a", "1.a", 1, 1, 0.7, 0.75)]
    table(folder / "pairs.csv", "name1,name2,expected1,expected2,actual1,actual2", pairs)
    table(folder / "sensitivity" / "1_a.csv", "footprint_mb,perf", [(0, 10), (4, 12.5), (8, 20)])
    table(folder / "sensitivity" / "2_b.csv", "footprint_mb,perf", [(0, 30), (4, 30), (8, 40)])
    table(folder / "reporter_sensitivity.csv", "bubble_mb,avg,rand,stream", [(0, 15, 10, 20), (4, 20, 16, 24)])
    table(folder / "contentiousness.csv", "workload,avg,rand,stream", [("1.a", 20, 12.5, 27.5), ("2.b", 15, 10, 20)])
    return folder


PITOT_RUNS = [
    ("rt:d1", "s/a", "s/b", 200, 100),
    ("rt:d1", "s/b", "s/a", 50, 40),
    ("rt:d1", "s/a", "s/a", 150, 100),
    ("rt:d1", "s/a", "s/a", 160, 100),
    ("rt:d2", "s/a", "s/b", 90, 60),  # s/b was not measured here, nor ever alone
    ("rt:d1", "s/b", "s/a", 55, 40),  # a repeat, the other way round
    ("rt:d1", "s/a", "s/b", 210, 100),
    ("rt:d1", "s/a", "s/b", 200, 100),  # the first run once more
    ("rt:d1", "s/b", "s/a", 50, 40),
]


def pitot(folder: Path, runs: Rows = PITOT_RUNS) -> Path:
    """Programs s/a and s/b on two devices, the second without known caches."""
    table(folder / "pairs.csv.gz", "platform,workload,neighbour,runtime_ns,solo_ns", runs)
    solo = [("rt:d1", "s/a", 100), ("rt:d1", "s/b", 40), ("rt:d2", "s/a", 60)]
    table(folder / "solo.csv.gz", "platform,workload,solo_ns", solo)
    header = "platform,uarch=x-1,cpufreq,l2_size,l2_size:ind,l2_assoc=0,l2_assoc=6,runtime=rt"
    platforms = [("rt:d1", 1, 0.5, -1, 1, -1, 1, 1), ("rt:d2", -1, -1.5, 0, -1, 1, -1, 1)]
    table(folder / "platform_features.csv.gz", header, platforms)
    table(folder / "workload_features.csv.gz", "workload,op_x0B,op_xFC", [("s/a", 0, 1.5), ("s/b", 2.5, 0)])
    return folder


A, B, C = "('Net-9 (batch size 16)', 1)", "('A3C', 1)", "('Net-9 (batch size 512)', 1)"
GAVEL: Mapping[str, object] = {
    "k80": {A: {"null": 4.0, A: [2.0, 2.0], "('Net-9 (batch size 16)', 2)": [1.0, 1.0]}},
    "p100": {
        A: {"null": 10.0, A: [5.0, 5.0], B: [8.0, 1.0], C: [0.0, 0.0]},
        B: {"null": 2.0, A: [1.0, 8.0], B: [0.0, 0.0], C: [1.5, 0.5]},
        C: {"null": 1.0, A: [0.0, 0.0], B: [0.4, 1.4], C: [0.0, 0.0]},
        "('Net-9 (batch size 16)', 2)": {"null": 19.0, A: [9.0, 4.0]},
    },
}


def gavel(folder: Path, speeds: Mapping[str, object] = GAVEL) -> Path:
    """Three jobs on one GPU; of B with C the two entries differ, so they were measured twice."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "physical_cluster_throughputs.json").write_text(json.dumps(speeds, indent=1))
    return folder
