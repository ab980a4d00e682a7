"""ProxLB beside a rebalance of Cotenant on the same cluster: moves, balance, victims and time.

    python -m research.benchmarks.proxlb --proxlb-python PYTHON [--seeds 10] [--runs 1] [--busy 1.0] [--inventory FILE]

PYTHON is that of an environment with ProxLB (`pip install proxlb`); nothing is installed here. ProxLB runs unchanged
as a dry run against a stand-in of the Proxmox API on 127.0.0.1: by memory, by CPU, and by pressure of CPU (psi).
Cotenant may make at most as many moves as ProxLB made. Its prior and an event simulation, which shares nothing with it,
judge every placement. Each seed makes another cluster, or draws other demand over time for that of a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from advisor.errors import InvalidInput
from advisor.inventories.static import load_inventory
from research import markdown
from research.benchmarks.clouds.runs import interval
from research.benchmarks.proxlb.asked import MODES, ProxlbError, Rebalanced, by_cotenant, by_proxlb
from research.benchmarks.proxlb.cluster import SimulatedCluster, made_up

Figures = Mapping[str, Sequence[Mapping[str, float]]]
"""By who decides, what was found of each cluster."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 where ProxLB does not answer or the inventory cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxlb-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=int, default=1, help="of ProxLB, each after the moves of the former (1)")
    parser.add_argument("--busy", type=float, default=1.0, help="what multiplies the demand of made-up clusters (1.0)")
    parser.add_argument("--inventory", type=Path, metavar="FILE", help="every instance with its host and cpu_percent")
    parser.add_argument("--at-once", type=int, default=8, help="dry runs, which sleep most of their time (8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found of every cluster")
    options = parser.parse_args(arguments)
    try:
        told = load_inventory(options.inventory) if options.inventory else None
        seeds = range(1, options.seeds + 1)
        clusters = [SimulatedCluster.of(told or made_up(seed, options.busy), seed) for seed in seeds]
        found = compared(clusters, options.proxlb_python, options.runs, options.at_once)
    except (InvalidInput, ValueError, ProxlbError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(table(found) + "\n" + paired_table(found))
    return 0


def compared(clusters: Sequence[SimulatedCluster], python: Path, runs: int, at_once: int) -> Figures:
    """Figures of every cluster; all runs of ProxLB come first, so that nothing else works meanwhile."""
    for cluster in clusters:
        cluster.simulated()  # once, and not in three threads
    with ThreadPoolExecutor(at_once) as pool:
        asked = {mode: [pool.submit(by_proxlb, one, mode, python, runs) for one in clusters] for mode in MODES}
    theirs = {mode: [one.result() for one in futures] for mode, futures in asked.items()}
    found = {"nobody": _judged([Rebalanced(cluster) for cluster in clusters])}
    for mode, wanted in theirs.items():
        found[proxlb(mode)] = _judged(wanted)
        pairs = zip(clusters, wanted, strict=True)
        found[ours(mode)] = _judged([by_cotenant(cluster, one.moves) for cluster, one in pairs])
    return found


def _judged(wanted: Sequence[Rebalanced]) -> list[Mapping[str, float]]:
    return [
        {"moves": one.moves, **one.cluster.judged(), "seconds": one.seconds, "CPU seconds": one.cpu_seconds}
        for one in wanted
    ]


def proxlb(mode: str) -> str:
    return f"ProxLB, {mode}"


def ours(mode: str) -> str:
    return f"Cotenant, at most as many moves as {proxlb(mode)}"


def table(found: Figures) -> str:
    """Means over clusters with 95 % bootstrap intervals."""
    columns = list(found["nobody"][0])
    rows = [[name, *(_cell([one[column] for one in each]) for column in columns)] for name, each in found.items()]
    return markdown.table(["who decides", *columns], rows)


def paired_table(found: Figures) -> str:
    """Cotenant less ProxLB on the same clusters, and who is better if the interval says so; lower is better."""
    columns = [one for one in found["nobody"][0] if one.startswith("simulated") or one.endswith("spread")]
    rows = []
    for mode in MODES:
        pairs = list(zip(found[ours(mode)], found[proxlb(mode)], strict=True))
        cells = [_better([mine[column] - theirs[column] for mine, theirs in pairs]) for column in columns]
        rows.append([proxlb(mode), *cells])
    return markdown.table(["Cotenant less", *columns], rows)


def _better(differences: Sequence[float]) -> str:
    low, high = interval(differences) or (-np.inf, np.inf)
    better = "**Cotenant better**" if high < 0 else "**ProxLB better**" if low > 0 else "neither"
    return f"{_cell(differences)}: {better}"


def _cell(values: Sequence[float]) -> str:
    ends, mean = interval(values), f"{np.mean(values):.2f}"
    return mean if ends is None or ends[0] == ends[1] else f"{mean} [{ends[0]:.2f}, {ends[1]:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
