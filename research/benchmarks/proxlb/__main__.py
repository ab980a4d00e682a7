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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from advisor.errors import InvalidInput
from advisor.inventories.static import load_inventory
from research import markdown
from research.arena.clusters import SimulatedCluster, made_up
from research.arena.contest import Found, differences, interval
from research.arena.rebalances import STAY, Rebalanced, by_cotenant, cell, table
from research.benchmarks.proxlb.asked import MODES, ProxlbError, by_proxlb


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
        given = load_inventory(options.inventory) if options.inventory else None
        seeds = range(1, options.seeds + 1)
        clusters = [SimulatedCluster.of(given or made_up(seed, options.busy), seed) for seed in seeds]
        found = compared(clusters, options.proxlb_python, options.runs, options.at_once)
    except (InvalidInput, ValueError, ProxlbError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(table(found) + "\n" + paired_table(found))
    return 0


def compared(clusters: Sequence[SimulatedCluster], python: Path, runs: int, at_once: int) -> Found:
    """Figures of every cluster; all runs of ProxLB come first, so that nothing else works meanwhile."""
    for cluster in clusters:
        cluster.simulated()  # once, and not in three threads
    with ThreadPoolExecutor(at_once) as pool:
        asked = {mode: [pool.submit(by_proxlb, one, mode, python, runs) for one in clusters] for mode in MODES}
    theirs = {mode: [one.result() for one in futures] for mode, futures in asked.items()}
    found = {STAY: [Rebalanced(cluster).judged() for cluster in clusters]}
    for mode, wanted in theirs.items():
        found[proxlb(mode)] = [one.judged() for one in wanted]
        pairs = zip(clusters, wanted, strict=True)
        found[ours(mode)] = [by_cotenant(cluster, one.moves).judged() for cluster, one in pairs]
    return found


def proxlb(mode: str) -> str:
    return f"ProxLB, {mode}"


def ours(mode: str) -> str:
    return f"Cotenant, at most as many moves as {proxlb(mode)}"


def paired_table(found: Found) -> str:
    """Cotenant less ProxLB on the same clusters, and who is better if the interval says so; lower is better."""
    columns = [one for one in found[STAY][0] if one.startswith("simulated") or one.endswith("spread")]
    rows = []
    for mode in MODES:
        cells = [_better(differences(found, ours(mode), proxlb(mode), column)) for column in columns]
        rows.append([proxlb(mode), *cells])
    return markdown.table(["Cotenant less", *columns], rows)


def _better(values: Sequence[float]) -> str:
    low, high = interval(values) or (-np.inf, np.inf)
    better = "**Cotenant better**" if high < 0 else "**ProxLB better**" if low > 0 else "neither"
    return f"{cell(values)}: {better}"


if __name__ == "__main__":
    sys.exit(main())
