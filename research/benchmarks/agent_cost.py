"""What the agent costs: 100 instances, a reading per second, beside Debian's node exporter on the same host.

    python -m research.benchmarks.agent_cost [--json] [--periods N] [--seconds S] [--instances N]

Real containers, made for it and removed after it (root). Periods in which both programs are scraped every 15 s and
periods in which they are scraped every second take turns; the figures are medians of periods, each from the kernel's
accounting (utime and stime of /proc/PID/stat, VmHWM).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lab.errors import LabError
from research.benchmarks.light_containers import LightContainers
from research.benchmarks.measuring import circumstances
from research.benchmarks.watched_processes import Scraper, WatchedProgram, agent, node_exporter

SCRAPES_S = (15.0, 1.0)
WARM_UP_S = 12.0  # the first window, and everything that is looked at once
PORTS = 19405, 19100
LIMITS = {"cpu_percent": 1.0, "peak_mb": 60.0}


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--periods", type=int, default=4, help="of each kind of scraping (4)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of one period (30)")
    parser.add_argument(
        "--disk-limits",
        action="store_true",
        help="give every container a disk limit: then kernels count disk bytes by group, as version 2 always does",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        document = {**circumstances(), **measure(options)}
    except (LabError, RuntimeError) as error:
        sys.exit(f"agent_cost: {error}")
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        _show(document)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both programs beside real containers; periods of both kinds of scraping take turns."""
    instances, periods, seconds = options.instances, options.periods, options.seconds
    limit = 10_000.0 if options.disk_limits else None
    with tempfile.TemporaryDirectory() as folder, LightContainers(instances, disk_limit_mb_s=limit) as crowd:
        programs = [agent(PORTS[0], "--backend", "lxc"), node_exporter(PORTS[1], Path(folder))]
        try:
            for program in programs:
                program.wait()
            time.sleep(WARM_UP_S)
            measured = [_period(programs, scrape_s, seconds) for scrape_s in islice(cycle(SCRAPES_S), 2 * periods)]
            peaks = {program.name: program.peak_mb for program in programs}
            children = {program.name: program.children_s for program in programs}
        finally:
            for program in programs:
                program.stop()
    rows = [
        {**_row(program.name, scrape_s, measured), "peak_mb": peaks[program.name], "children_s": children[program.name]}
        for program in programs
        for scrape_s in SCRAPES_S
    ]
    counted = "disk bytes counted by group" if options.disk_limits else "disk bytes read from every task"
    what = f"{instances} real containers with {crowd.processes} processes, {counted}, one reading per second"
    return {"what": what, "seconds": seconds, "periods": periods, "rows": rows}


def _period(programs: Sequence[WatchedProgram], scrape_s: float, seconds: float) -> dict[str, Any]:
    """CPU time of each program in one period, in percent of one core, and what its scrapes were like."""
    before, begin = [program.cpu_s for program in programs], time.monotonic()
    with Scraper(programs, scrape_s) as scraper:
        time.sleep(seconds)
    passed = time.monotonic() - begin
    return {
        "scrape_s": scrape_s,
        "cpu_percent": {
            program.name: 100 * (program.cpu_s - start) / passed
            for program, start in zip(programs, before, strict=True)
        },
        "scrapes": scraper.scrapes,
        "load": os.getloadavg()[0],
    }


def _row(name: str, scrape_s: float, measured: Sequence[dict[str, Any]]) -> dict[str, Any]:
    periods = [period for period in measured if period["scrape_s"] == scrape_s]
    percents = [period["cpu_percent"][name] for period in periods]
    scrapes = [scrape for period in periods for scrape in period["scrapes"][name]]
    return {
        "program": name,
        "scraped_every_s": scrape_s,
        "cpu_percent": statistics.median(percents),
        "cpu_percent_periods": [round(percent, 3) for percent in percents],
        "scrape_ms": 1000 * statistics.median(scrape.seconds for scrape in scrapes),
        "page_kb": statistics.median(scrape.size for scrape in scrapes) / 1024,
        "load": statistics.median(period["load"] for period in periods),
    }


def _show(document: dict[str, Any]) -> None:
    table = Table(title=f"{document['what']}; {document['machine']}; {document['date']}", title_justify="left")
    table.add_column("program")
    for column in ("scraped every", "CPU, % of one core", "periods", "peak memory, MB", "scrape, ms", "page, KB"):
        table.add_column(column, justify="right")
    for row in document["rows"]:
        table.add_row(
            row["program"], f"{row['scraped_every_s']:g} s",
            f"{row['cpu_percent']:.2f}", " ".join(f"{one:.2f}" for one in row["cpu_percent_periods"]),
            f"{row['peak_mb']:.1f}", f"{row['scrape_ms']:.1f}", f"{row['page_kb']:.0f}",
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    own = document["rows"][0]
    kept = all(own[name] < limit for name, limit in LIMITS.items())
    console.print(
        f"the agent {'keeps' if kept else 'does not keep'} under {LIMITS['cpu_percent']:g} % of one core and"
        f" {LIMITS['peak_mb']:g} MB, scraped every {own['scraped_every_s']:g} s;"
        f" programs that it started took {own['children_s']:.2f} s of CPU time; load of the host {own['load']:.2f}"
    )


if __name__ == "__main__":
    main()
