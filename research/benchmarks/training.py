"""Training by rows: time and memory here, in processes and on a Dask cluster, and whether the model is the same.

    python -m research.benchmarks.training [--rows 100000,1000000] [--processes 1,2] [--cluster tcp://host:port]

Rows are simulated windows of 2,000 hosts: shares that fall below the analytic ones by what two of the features and the
host say, with 3 % of noise. Each training runs in a process of its own. Printed are its wall time, the CPU time and the
most resident memory of this process and of the largest of its children, the error on left-out hosts beside the analytic
model's, and a digest of the fitted trees. Worker processes of a cluster are not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import time
from typing import Any

import numpy as np

from models.executor import executor
from models.features.examples import Examples
from models.learning.fitting import fit_target
from research.benchmarks.measuring import apart, circumstances

HOSTS, COLUMNS, MACHINES, NOISE = 2000, 53, 7, 0.03
DAYS_S = 14 * 86_400.0


def simulated(rows: int) -> Examples:
    """So many windows with made-up features."""
    random = np.random.default_rng(0)
    x = 0.3 * random.normal(size=(rows, COLUMNS))
    x[:, 0] = -0.5 * np.abs(x[:, 0])
    x[:, COLUMNS // 2 :][random.random((rows, COLUMNS - COLUMNS // 2)) < 0.4] = np.nan
    base, host = np.exp(x[:, 0]), random.integers(0, HOSTS, rows)
    of_host = 0.02 * random.normal(size=HOSTS)
    learned = -0.2 * np.maximum(x[:, 1], 0) * (x[:, 2] > 0) + 0.1 * x[:, 0] + of_host[host]
    names = [f"h{number}" for number in host.tolist()]
    return Examples(
        x=x,
        names=("analytic", *(f"column {number}" for number in range(1, COLUMNS))),
        monotone=np.zeros(COLUMNS, dtype=np.int8),
        ratio=np.clip(base * np.exp(learned + NOISE * random.normal(size=rows)), 1e-3, 1.0),
        base=base,
        victim=tuple(f"i{number % 4000}" for number in range(rows)),
        neighbours=((),) * rows,
        pair=tuple(names),
        platform=tuple(f"windows/m{number % MACHINES}" for number in host.tolist()),
        setting=("",) * rows,
        run=tuple(f"w{number}" for number in range(rows)),
        size=np.full(rows, 10),
        ends_s=random.uniform(0, DAYS_S, rows),
        importance=random.uniform(0.2, 2.0, rows),
    )


def measured(rows: int, processes: int, cluster: str | None) -> dict[str, Any]:
    """One training."""
    examples = simulated(rows)
    held_mb = _most_mb(resource.RUSAGE_SELF)
    wall, cpu = time.perf_counter(), time.process_time()
    with executor(processes, cluster) as run:
        fitted = fit_target(examples, "share", run=run)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    trees = "" if fitted.learner is None else json.dumps(fitted.learner.trees.to_json())
    left_out = fitted.figures["unseen_host"]
    return {
        "rows": rows,
        "where": cluster or f"{processes} processes",
        "wall_s": round(wall, 1),
        "cpu_s": round(cpu + children.ru_utime + children.ru_stime, 1),
        "rows_mb": round(held_mb),
        "most_mb": round(_most_mb(resource.RUSAGE_SELF)),
        "most_of_a_child_mb": round(_most_mb(resource.RUSAGE_CHILDREN)),
        "mae": left_out["mae"],
        "mae_analytic": left_out["mae_prior"],
        "trees": hashlib.sha256(trees.encode()).hexdigest()[:12],
    }


def _most_mb(of: int) -> float:
    """The most resident memory of this process, or of the largest one that it started and that ended."""
    return resource.getrusage(of).ru_maxrss / 1024


def main() -> None:
    """Print one line of JSON for each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="100000,1000000")
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--cluster", metavar="URL")
    parser.add_argument("--one", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    of_cluster = ["--cluster", options.cluster] if options.cluster else []
    if options.one:
        rows, processes = options.one
        print(json.dumps(measured(rows, processes, options.cluster)))
        return
    for size in options.rows.split(","):
        for count in ["1"] if options.cluster else options.processes.split(","):
            row = apart("training", "--one", size, count, *of_cluster)
            print(json.dumps({**circumstances(), **row}), flush=True)


if __name__ == "__main__":
    main()
