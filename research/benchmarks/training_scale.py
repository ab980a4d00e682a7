"""Time and peak memory of training on large tables, each size in a process of its own.

    python -m research.benchmarks.training_scale [--json] [--rows N ...] [--workloads W] [--sample N] [--workers N]

The tables are simulated (research/benchmarks/simulated_cloud.py). Peak memory is the kernel's (ru_maxrss of the child);
with --workers the boosters are trained by so many Dask workers on loopback, whose memory stands apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from research.benchmarks.simulated_cloud import METRICS, SimulatedCloud

LIMIT_GB = 8.0
CLOSE_TO = 0.05  # a step shorter than this share of all is not listed in the table


def main() -> None:
    """Print a table, or JSON; exit code 1 when a training took more than LIMIT_GB."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--workloads", type=int, default=200)
    parser.add_argument("--sample", type=int, default=2000, metavar="N", help="rows for judging and effects (2000)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="train on a local Dask cluster")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scheduler", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        json.dump(_train(options.train, options.scheduler, options.sample), sys.stdout)
        return
    found = [_measure(rows, options) for rows in options.rows]
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.release()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "origin": "simulated",
        "metrics": len(METRICS),
        "workloads": options.workloads,
        "workers": options.workers,
        "trainings": found,
    }
    if options.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        _show(document)
    sys.exit(any(one["peak_gb"] > LIMIT_GB for one in found))


def _measure(rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Write a table, train on it in a child, remove it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-scale-")))
        begin = time.monotonic()
        SimulatedCloud(rows, options.workloads).write(folder / "cloud")
        written_s = time.monotonic() - begin
        command = [
            sys.executable,
            "-m",
            "research.benchmarks.training_scale",
            "--train",
            str(folder),
            "--sample",
            str(options.sample),
        ]
        if options.workers:
            from distributed import LocalCluster

            cluster = LocalCluster(
                options.workers, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            )
            command += ["--scheduler", stack.enter_context(cluster).scheduler_address]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        size = (folder / "cloud" / "colocations.parquet").stat().st_size
    return {"rows": rows, "table_mb": size / 1e6, "written_s": written_s, **json.loads(done.stdout)}


def _train(folder: Path, scheduler: str | None, sample: int) -> dict[str, Any]:
    """Train as the command does; seconds by step and this process's peak memory."""
    from models import scale, training
    from models.learning import artifact

    scale.LARGE = 0  # small tables too, so that sizes compare
    scale.SAMPLE_ROWS = sample

    steps: dict[str, float] = {}
    last: list[Any] = ["reading datasets", time.monotonic()]

    def note(what: str, _done: float) -> None:
        now = time.monotonic()
        steps[last[0]] = steps.get(last[0], 0.0) + now - last[1]
        last[:] = [what, now]

    begin = time.monotonic()
    path = training.train([folder / "cloud"], folder / "models", note, scheduler=scheduler)
    card = artifact.read_card(path)
    return {
        "seconds": time.monotonic() - begin,
        "steps": {what: round(seconds, 2) for what, seconds in steps.items()},
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
        "figures": card["figures"]["throughput"],
        "scale": card["scale"],
    }


def _show(document: dict[str, Any]) -> None:
    title = f"simulated, {document['workloads']} workloads, {document['metrics']} metrics"
    if document["workers"]:
        title += f", boosters on {document['workers']} Dask workers"
    table = Table(title=f"{title}; {document['machine']}; {document['date']}", title_justify="left")
    for column in ("rows", "table, MB", "features", "peak memory, GB", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("of them")
    for one in document["trainings"]:
        long = [f"{what} {s:.0f}" for what, s in one["steps"].items() if s > CLOSE_TO * one["seconds"]]
        table.add_row(
            f"{one['rows']:,}", f"{one['table_mb']:.1f}", str(one["scale"]["features"]), f"{one['peak_gb']:.2f}",
            f"{one['seconds']:.0f}", ", ".join(long),
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(table)


if __name__ == "__main__":
    main()
