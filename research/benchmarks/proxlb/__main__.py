"""ProxLB beside Cotenant's rebalance on the same cluster: moves, balance, victims and time.

    python -m research.benchmarks.proxlb --proxlb-python PYTHON [--seeds 10] [--busy 1.0] [--inventory FILE]
        [--at-once 8] [--json FILE]

PYTHON is an interpreter of an environment that has ProxLB (`pip install proxlb`); nothing is installed here. ProxLB runs
unchanged, as a dry run, against a stand-in of the Proxmox API on 127.0.0.1, by memory, by CPU and by pressure (PSI).
Cotenant is asked for a rebalance with at most as many moves as ProxLB makes in each mode. Every placement is judged by
Cotenant's own prior and by an event simulation that shares nothing with it. Without a file each seed makes another
cluster of 12 hosts and 150 VMs; with one, seeds draw other demand over time. All but times is simulated.
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
from models.physics.cpu_contention import compile_all
from research.benchmarks.clouds.runs import interval
from research.benchmarks.proxlb.asked import MODES, ProxlbError, WantedMoves, by_cotenant, by_proxlb
from research.benchmarks.proxlb.cluster import SimulatedCluster, made_up

Row = Mapping[str, float]
NOTHING, FREE = "nothing", "Cotenant, any number of moves"
JUDGED = "simulated"  # what begins so, and both spreads, is compared pair by pair


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 where ProxLB does not answer or the inventory cannot be used."""
    parser = argparse.ArgumentParser(
        prog="research.benchmarks.proxlb", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--proxlb-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--inventory", type=Path, metavar="FILE", help="a cluster, every instance with host and CPU demand")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--busy", type=float, default=1.0, help="what multiplies the demand of made-up clusters (1.0)")
    parser.add_argument("--at-once", type=int, default=8, help="dry runs of ProxLB, which sleep most of their time (8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures of every seed")
    options = parser.parse_args(arguments)
    try:
        clusters = clusters_of(options.inventory, options.seeds, options.busy)
        compile_all()
        found = compared(clusters, options.proxlb_python, options.at_once)
    except (InvalidInput, ValueError, ProxlbError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(table(found) + "\n" + paired_table(found))
    return 0


def clusters_of(inventory: Path | None, seeds: int, busy: float) -> list[SimulatedCluster]:
    """A cluster for each seed, from 1."""
    told = None if inventory is None else load_inventory(inventory)
    return [SimulatedCluster.of(told or made_up(seed, busy), seed) for seed in range(1, seeds + 1)]


def compared(clusters: Sequence[SimulatedCluster], python: Path, at_once: int) -> dict[str, list[Row]]:
    """By who decided, figures of each cluster. ProxLB's runs sleep and are waited for together, alone on the machine."""
    for cluster in clusters:
        cluster.simulated(cluster.places)  # before ProxLB runs, for the stand-in tells pressure by it
    with ThreadPoolExecutor(at_once) as pool:
        asked = {
            (at, mode): pool.submit(by_proxlb, cluster, mode, python)
            for at, cluster in enumerate(clusters)
            for mode in MODES
        }
        theirs = {key: future.result() for key, future in asked.items()}
    found: dict[str, list[Row]] = {}

    def add(name: str, cluster: SimulatedCluster, wanted: WantedMoves) -> None:
        times = {"seconds": wanted.seconds, "CPU seconds": wanted.cpu_seconds}
        row = {"moves": float(wanted.moves), **cluster.judged(wanted.places), **times}
        found.setdefault(name, []).append(row)

    for at, cluster in enumerate(clusters):
        sys.stderr.write(f"judging cluster {at + 1} of {len(clusters)}\n")
        add(NOTHING, cluster, WantedMoves(cluster.places, 0, 0.0, 0.0))
        for mode in MODES:
            add(proxlb(mode), cluster, theirs[at, mode])
            add(ours(mode), cluster, by_cotenant(cluster, theirs[at, mode].moves))
        add(FREE, cluster, by_cotenant(cluster))
    return found


def proxlb(mode: str) -> str:
    return f"ProxLB, {mode}"


def ours(mode: str) -> str:
    return f"Cotenant, at most as many moves as {proxlb(mode)}"


def table(found: Mapping[str, Sequence[Row]]) -> str:
    """Means over clusters with 95 % bootstrap intervals."""
    columns = list(next(iter(found.values()))[0])
    lines = ["| who decides | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, rows in found.items():
        lines.append(f"| {name} | " + " | ".join(_cell([row[column] for row in rows]) for column in columns) + " |")
    return "\n".join(lines) + "\n"


def paired_table(found: Mapping[str, Sequence[Row]]) -> str:
    """Cotenant less ProxLB on the same clusters, and who is better where the interval leaves no doubt; lower is better
    in every column."""
    columns = [one for one in next(iter(found.values()))[0] if one.startswith(JUDGED) or one.endswith("spread")]
    lines = ["| Cotenant less | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for mode in MODES:
        pairs = list(zip(found[ours(mode)], found[proxlb(mode)], strict=True))
        cells = [_better([mine[column] - theirs[column] for mine, theirs in pairs]) for column in columns]
        lines.append(f"| {proxlb(mode)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _better(differences: Sequence[float]) -> str:
    ends = interval(differences)
    if ends is None or ends[0] <= 0 <= ends[1]:
        return f"{_cell(differences)}: neither"
    return f"{_cell(differences)}: **{'Cotenant' if ends[1] < 0 else 'ProxLB'} better**"


def _cell(values: Sequence[float]) -> str:
    ends, mean = interval(values), f"{np.mean(values):.2f}"
    return mean if ends is None or ends[0] == ends[1] else f"{mean} [{ends[0]:.2f}, {ends[1]:.2f}]"


if __name__ == "__main__":
    sys.exit(main())
