"""Datasets of any size, simulated and labelled so, written to Parquet one row group at a time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from models.arrays import Floats, Ints

RUNS_AT_ONCE = 50_000
METRICS = ("cpu", "waiting", "block", "event", "switch", "pages_exchanged", "execution", "net_mbit", "disk_mb_s",
           "mem_bw_mb_s", "llc_misses", "ipc")  # fmt: skip
HIGHEST = (100.0, 20.0, 60.0, 5e4, 2e4, 8e3, 4e3, 400.0, 80.0, 6e3, 50.0, 3.0)
PLATFORMS = (("a", "kvm", 4), ("b", "kvm", 8), ("c", "lxc", 4), ("d", "xen", 8))
PINS = ("", "0:0", "0:0-1", "0:2")


@dataclass(frozen=True, slots=True)
class SimulatedCloud:
    """Runs of two and three instances; T/B is what sensitivity times pressure leaves, and a little noise.

    Both come from the metrics, but for a part that belongs to a workload and shows in none of them.
    """

    rows: int
    workloads: int = 200
    seed: int = 0
    noise: float = 0.02
    hidden: float = 0.05

    def write(self, path: Path) -> Path:
        """Write the dataset directory; returns it."""
        path.mkdir(parents=True)
        random = np.random.default_rng(self.seed)
        level = random.uniform(0.05, 1.0, (self.workloads, len(METRICS)))
        secret = random.normal(0.0, self.hidden, self.workloads)
        text = f"name: {path.name}\norigin: simulated\nmachine: none, made up for a benchmark\n"
        (path / "dataset.yaml").write_text(text, encoding="utf-8")
        platforms = [f"{name},{kind},{pcpus},65536,2600,10000" for name, kind, pcpus in PLATFORMS]
        header = "platform,kind,pcpus,memory_mb,cpu_mhz,nic_mbit"
        (path / "platforms.csv").write_text("\n".join([header, *platforms]) + "\n", encoding="utf-8")
        profiles = [
            f",w{workload},1,{'host' if key in {'event', 'switch'} else 'instance'},{key},{value * most:.6g},,1"
            for workload in range(self.workloads)
            for key, value, most in zip(METRICS, level[workload], HIGHEST, strict=True)
        ]
        header = "platform,workload,load,scope,metric,value,unit,repeat"
        (path / "profiles.csv").write_text("\n".join([header, *profiles]) + "\n", encoding="utf-8")
        self._write_runs(path / "colocations.parquet", random, level, secret)
        return path

    def _write_runs(self, path: Path, random: np.random.Generator, level: Floats, secret: Floats) -> None:
        writer, first, left = None, 0, self.rows
        try:
            while left > 0:
                size = np.where(random.random(RUNS_AT_ONCE) < 0.25, 3, 2)
                size = size[: int(np.searchsorted(np.cumsum(size), left)) + 1]
                table = self._runs(random, first, size, level, secret).slice(0, left)
                writer = writer or parquet.ParquetWriter(path, table.schema)
                writer.write_table(table)
                first, left = first + len(size), left - len(table)
        finally:
            if writer is not None:
                writer.close()

    def _runs(self, random: np.random.Generator, first: int, size: Ints, level: Floats, secret: Floats) -> pa.Table:
        """Some runs with `size` instances each."""
        rows = int(size.sum())
        run = np.repeat(np.arange(len(size)), size)
        opening = np.cumsum(size) - size
        workload = random.integers(0, self.workloads, rows)
        pin = random.choice(len(PINS), len(size), p=[0.4, 0.3, 0.2, 0.1])[run]
        cap = np.where(random.random(rows) < 0.1, 50.0, np.nan)
        pressure = level[workload] @ np.linspace(0.4, 0.05, len(METRICS))
        around = np.add.reduceat(pressure, opening)[run] - pressure
        tight = np.where(np.isin(pin, (1, 3)), 1.0, 0.4)
        sensitivity = (0.3 + level[workload, 0] * level[workload, 9]) * tight
        ratio = np.exp(secret[workload] - np.log1p(sensitivity * around) + random.normal(0.0, self.noise, rows))
        solo = 100.0 * (1 + workload)
        return pa.table(
            {
                "run": _named("r", first + run),
                "platform": _words([name for name, _, _ in PLATFORMS], random.integers(0, 4, len(size))[run]),
                "instance": _words(["vm0", "vm1", "vm2"], np.arange(rows) - opening[run]),
                "workload": _words([f"w{number}" for number in range(self.workloads)], workload),
                "load": np.ones(rows),
                "vcpus": np.ones(rows, dtype=np.int32),
                "pinning": _words(PINS, pin),
                "driver_cpus": pa.nulls(rows, pa.string()),
                "cap_percent": pa.array(cap, from_pandas=True),
                "weight": pa.nulls(rows, pa.int32()),
                "net_mode": pa.nulls(rows, pa.string()),
                "net_rate_mbit": pa.nulls(rows, pa.float64()),
                "disk_limit_mb_s": pa.nulls(rows, pa.float64()),
                "outcome": _words(["throughput"], np.zeros(rows, dtype=np.int64)),
                "solo": solo,
                "colocated": solo * np.minimum(ratio, 1.05),
                "unit": _words(["requests/s"], np.zeros(rows, dtype=np.int64)),
                "repeat": np.ones(rows, dtype=np.int32),
            }
        )


def _words(words: list[str] | tuple[str, ...], code: Ints) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(words, pa.string()))


def _named(prefix: str, number: Ints) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(number).cast(pa.string()), "")
