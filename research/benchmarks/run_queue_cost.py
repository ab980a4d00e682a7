"""What watching run queues costs: CPU time that cotenant-run-queue's BPF program takes for each switch.

    python -m research.benchmarks.run_queue_cost [--json] [--pairs N] [--groups N] [--round-trips N]

In each control group two processes hand a byte to and fro (`perf bench sched pipe`), all on one CPU, at full speed.
The kernel counts what the program takes (kernel.bpf_stats_enabled), and what an empty one does in its place, in turns:
the counting itself reads a clock. The figure is the median of the pairs' differences with its 95 % interval (order
statistics). What the kernel does to call a program, empty or not, is in none. Needs root, `make run-queue`, and perf.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from lab.control_groups import GroupMaker
from lab.errors import LabError
from lab.processes import LabProcess, wait_until
from lab.resource_registry import ResourceRegistry
from lab.statistics import describe
from profiler.backends.run_queue import PROGRAM
from profiler.observed import IsolationSettings
from profiler.parse.run_queue import RunQueueCounts, parse_run_queue
from research.benchmarks.agent_cost import circumstances

BUILT = Path("build") / PROGRAM
RATE = 100_000  # switches/s that the figures are told for
LIMIT_PERCENT = 1.0  # of one CPU, at that rate
NETWORK = "/proc/self/ns/net"  # the host's own
FIRST_S = 10.0  # until its first line
LONGEST_S = 120.0  # of one half of a pair


def main() -> None:
    """Print one sentence, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--groups", type=int, default=1, help="that switch at the same time (1)")
    parser.add_argument("--round-trips", type=int, default=200_000, help="of all in each half of a pair (200000)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    program = shutil.which(PROGRAM) or (str(BUILT.resolve()) if BUILT.exists() else None)
    if program is None or shutil.which("perf") is None:
        sys.exit("run_queue_cost: it needs make run-queue, and perf (apt-get install linux-perf)")
    try:
        found = measure(program, options.pairs, options.groups, options.round_trips)
    except LabError as error:
        sys.exit(f"run_queue_cost: {error}")
    document = {**circumstances(), **found}
    if options.json:
        json.dump(document, sys.stdout, indent=1)
        print()
    else:
        _show(document)


def _show(document: dict[str, Any]) -> None:
    ns = document["ns"]
    Console(highlight=False, width=None if sys.stdout.isatty() else 160).print(
        f"{ns['median']:.0f} ns for each switch (95 % interval {ns['lower']:.0f} to {ns['upper']:.0f}, {ns['count']}"
        f" interleaved pairs) beyond the {document['empty_ns']['median']:.0f} ns that are counted for an empty program,"
        f" which is {document['percent']:.2f} % of a CPU at {RATE:,} switches/s; {document['groups']} groups,"
        f" {document['switches_per_s']:,.0f} switches/s; its loader took {document['own_percent']:.2f} % of a CPU;"
        f" {document['machine']}; load of the host {document['load']:.2f}; {document['date']}"
    )


def measure(program: str, pairs: int, groups: int, round_trips: int) -> dict[str, Any]:
    """ns per switch in interleaved pairs, and what the program that loads and prints takes."""
    empty_ns: list[float] = []
    more_ns: list[float] = []
    rates: list[float] = []
    own: list[float] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, _groups(Path(folder), groups) as joins:
        for pair in range(pairs):
            ns: dict[bool, float] = {}
            for empty in (True, False) if pair % 2 else (False, True):
                first, last, seconds, own_s = _half(program, empty, joins, round_trips // groups, Path(folder))
                ns[empty] = _since(last.run_ns, first.run_ns) / max(1, _since(last.runs, first.runs))
                if not empty:
                    rates.append((last.switches - first.switches) / seconds)
                    own.append(own_s / seconds * 100)
            empty_ns.append(ns[True])
            more_ns.append(ns[False] - ns[True])
    found = describe(more_ns)
    percent = found.median * RATE / 1e9 * 100
    return {
        "groups": groups, "ns": asdict(found), "empty_ns": asdict(describe(empty_ns)), "percent": percent,
        "met": percent < LIMIT_PERCENT, "switches_per_s": describe(rates).median, "own_percent": describe(own).median,
        "load": os.getloadavg()[0],
    }  # fmt: skip


def _since(last: int | None, first: int | None) -> int:
    return (last or 0) - (first or 0)


@contextmanager
def _groups(folder: Path, count: int) -> Iterator[list[list[str]]]:
    """Control groups on the last CPU, as the lab makes them: the files that join each."""
    maker = GroupMaker()
    maker.prepare()
    registry = ResourceRegistry(folder / "state")
    try:
        names = [registry.group(f"pipe{number}") for number in range(count)]
        for name in names:
            registry.made("group", name)
        yield [maker.make(name, ((os.cpu_count() or 1) - 1,), IsolationSettings(), None) for name in names]
    finally:
        registry.remove_run()
        registry.close()


def _half(
    program: str, empty: bool, joins: Sequence[list[str]], round_trips: int, folder: Path
) -> tuple[RunQueueCounts, RunQueueCounts, float, float]:
    """Counts before and after all groups switched that often, the seconds between, and CPU seconds of the program."""
    pipes: list[LabProcess] = []
    argv = [program, "--cost", "--every", "0.1", *(["--empty"] if empty else [])]
    printed = folder / "lines"  # a file, not a pipe that would be full while nobody reads
    with printed.open("w") as output, subprocess.Popen(argv, stdout=output) as process:
        try:
            if not wait_until(lambda: "\n" in printed.read_text(), FIRST_S):
                raise LabError(f"{program} printed nothing")
            began_s = _run_s(process.pid)
            pipes = [LabProcess(_pipe(round_trips), groups=join, network=NETWORK, directory=folder) for join in joins]
            if not wait_until(lambda: all(pipe.returncode is not None for pipe in pipes), LONGEST_S):
                raise LabError(f"perf took longer than {LONGEST_S:g} s")
            for pipe in pipes:
                pipe.check()
            own_s = _run_s(process.pid) - began_s
        finally:
            process.terminate()
            for pipe in pipes:
                pipe.stop(0)
    lines = [parse_run_queue(text) for text in printed.read_text().splitlines()]
    return lines[0], lines[-1], sum(one.seconds for one in lines[1:]), own_s


def _pipe(round_trips: int) -> list[str]:
    return ["perf", "bench", "sched", "pipe", "-l", str(round_trips)]


def _run_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


if __name__ == "__main__":
    main()
