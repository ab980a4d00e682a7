"""Cells at once: real services with a database each behind a front, asked about one VM after the other.

    python -m research.benchmarks.cells [--cells 10] [--hosts 1000] [--vms 30] [--questions 10] [--json]

The inventory is that of `research.benchmarks.large_cloud` (simulated, 64 CPUs a host, every VM with a demand of its
own), written once to an SQLite database of which every cell has a copy. Services, front and asker share the CPUs of
one machine, so that CPU time of a question over all cells says more than its time: with CPUs of its own each cell would
take its part at the same time as the others. Questions are about VMs of which no two are alike. Then one cell is
stopped (SIGSTOP), which is a slow one, and another one killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from advisor.service import Advisor
from advisor.settings import Settings
from research.benchmarks.http_load import instance_body
from research.benchmarks.large_cloud import cloud
from research.benchmarks.measuring import circumstances, cpu_s
from research.benchmarks.unlike_hosts import new_vm
from tests.servers import running
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.service import Service

START_S = 600.0  # all start at once
WAIT_S = 60.0  # for all cells of a machine that they share


@contextmanager
def cells(count: int, hosts: int, vms: int, folder: Path) -> Iterator[list[Service]]:
    """So many services that have read their clouds."""
    first = folder / "first.sqlite3"
    with Advisor(Settings(database=sqlite_with_tables(first), state_dir=folder)) as advisor:
        advisor.inventory.put(cloud(hosts, vms), mode="replace", generation=None)
    with ExitStack() as opened:
        services = []
        for number in range(count):
            own = folder / f"cell{number}"
            own.mkdir()
            shutil.copy(first, own / "db.sqlite3")
            services.append(Service(f"sqlite:///{own / 'db.sqlite3'}", own, fresh_s="86400"))
            opened.callback(services[-1].running.stop)
        threads = opened.enter_context(ThreadPoolExecutor(count))  # services end with the thread that started them
        list(threads.map(_ready, services))
        yield services


def _ready(service: Service) -> None:
    """Start it and let it read its cloud."""
    service.start()
    body = {"instance": instance_body(new_vm(np.random.default_rng(0), "warm")), "dry_run": True}
    answer = service.ask("POST", "/v1/placements", body, timeout=600)
    if answer.status != 200:
        raise RuntimeError(f"{service.url}: {answer.status} {answer.body!r}")


def asked(
    front: Service, everyone: Sequence[Service], questions: int, random: np.random.Generator, name: str
) -> dict[str, Any]:
    """Medians over questions, ms: time, CPU of the front, CPU of all cells, of the cell that took most; and states."""
    rows, states = [], []
    for number in range(questions):
        body = {"instance": instance_body(new_vm(random, f"{name}-{number}")), "dry_run": True}
        before = [cpu_s(pid(one)) for one in (front, *everyone)]
        begun = time.perf_counter()
        answer = front.ask("POST", "/v1/cells/placements", body, timeout=600)
        took = time.perf_counter() - begun
        spent = [cpu_s(pid(one)) - was for one, was in zip((front, *everyone), before, strict=True)]
        if answer.status != 200:
            raise RuntimeError(f"{answer.status} {answer.body!r}")
        states.append(sorted(cell["state"] for cell in answer.body["cells"]))
        rows.append((took, spent[0], sum(spent[1:]), max(spent[1:])))
    wall, of_front, of_cells, of_most = (1000 * statistics.median(column) for column in zip(*rows, strict=True))
    return {
        "time_ms": wall, "worst_ms": 1000 * max(row[0] for row in rows), "front_cpu_ms": of_front,
        "cells_cpu_ms": of_cells, "one_cell_cpu_ms": of_most, "states": states[-1], "first_ms": 1000 * rows[0][0],
    }  # fmt: skip


def pid(service: Service) -> int:
    """Of a service that was started."""
    process = service.running.process
    assert process is not None
    return process.pid


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All questions."""
    random = np.random.default_rng(7)
    document: dict[str, Any] = {**circumstances(), "cells": options.cells, "hosts": options.hosts, "vms": options.vms}
    with cells(options.cells, options.hosts, options.vms, folder) as services, ExitStack() as opened:
        document["load"] = os.getloadavg()[0]
        named = ",".join(f"c{at}=http://127.0.0.1:{one.port}" for at, one in enumerate(services))
        fronts = []
        for at, wait_s in enumerate((WAIT_S, options.wait)):
            own = folder / f"front{at}"
            own.mkdir()
            front = Service(sqlite_with_tables(own / "db.sqlite3"), own, cells=named, cells_wait_s=str(wait_s))
            opened.callback(front.running.stop)
            fronts.append(front.start())
        document["all"] = asked(fronts[0], services, options.questions, random, "all")
        print(json.dumps(document), file=sys.stderr, flush=True)
        services[1].kill()
        os.kill(pid(services[0]), signal.SIGSTOP)
        try:
            document["one slow, one dead"] = asked(fronts[1], services[2:], options.questions, random, "some")
        finally:
            os.kill(pid(services[0]), signal.SIGCONT)
    return document


def main() -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10)
    parser.add_argument("--hosts", type=int, default=1000, help="of each cell")
    parser.add_argument("--vms", type=int, default=30, help="of each host")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--wait", type=float, default=2.0, help="for a cell, s, where one is slow and one dead")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    running.START_S = START_S
    with tempfile.TemporaryDirectory() as folder:
        document = measured(options, Path(folder))
    print(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
