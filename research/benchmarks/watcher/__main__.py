"""Strategies of OpenStack Watcher beside plans of Cotenant on the same cluster: moves, hosts, balance and victims.

    python -m research.benchmarks.watcher --watcher-python PYTHON [--seeds 10] [--busy 1.0] [--json FILE]

PYTHON is that of an environment with Watcher (`pip install python-watcher`); nothing is installed here. Its strategies
run unchanged in Watcher's own classes, on a compute data model that is read from Watcher's XML and with a datasource
that gives each mean. `workload_balance`, which makes one move in each audit, is audited again and again. Cotenant's
prior and an event simulation, which shares nothing with it, judge every placement. Each seed makes another cluster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from research.arena.clusters import SimulatedCluster, made_up
from research.arena.contest import Found, differences
from research.arena.rebalances import STAY, Rebalanced, by_cotenant, cell, table
from research.benchmarks.watcher.asked import WatcherAudit, WatcherError, by_watcher

BALANCE_75 = "workload_balance, 75 %"
AUDITS = {
    "workload_stabilization": WatcherAudit("workload_stabilization"),
    "workload_balance": WatcherAudit("workload_balance", most=20),  # from 25 % of a host's CPUs on
    BALANCE_75: WatcherAudit("workload_balance", {"threshold": 75.0}, most=20),
    "vm_workload_consolidation": WatcherAudit("vm_workload_consolidation"),
}
REBALANCE, CONSOLIDATE = "Cotenant, rebalance", "Cotenant, consolidate"
CONSOLIDATE_95 = f"{CONSOLIDATE}, keep_ratio 0.95"
PAIRS = (
    (REBALANCE, "workload_stabilization"),
    (REBALANCE, BALANCE_75),
    (CONSOLIDATE, "vm_workload_consolidation"),
    (CONSOLIDATE_95, "vm_workload_consolidation"),
)
SHORT = "simulated short, %"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; 1 where Watcher does not answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--watcher-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--busy", type=float, default=1.0, help="what multiplies the demand of clusters (1.0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found of every cluster")
    options = parser.parse_args(arguments)
    seeds = range(1, options.seeds + 1)
    clusters = [SimulatedCluster.of(made_up(seed, options.busy), seed) for seed in seeds]
    try:
        found = compared(clusters, options.watcher_python)
    except (WatcherError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.stdout.write(table(found) + "\n" + paired(found))
    return 0


def compared(clusters: Sequence[SimulatedCluster], python: Path) -> Found:
    """Figures of every cluster, by who decides."""
    theirs = {name: [by_watcher(one, audit, python) for one in clusters] for name, audit in AUDITS.items()}
    ours = {
        REBALANCE: [by_cotenant(one, None) for one in clusters],
        CONSOLIDATE: [by_cotenant(one, None, "consolidate") for one in clusters],
        CONSOLIDATE_95: [by_cotenant(one, None, "consolidate", keep_ratio=0.95) for one in clusters],
    }
    stay = {STAY: [Rebalanced(one) for one in clusters]}
    return {name: [one.judged() for one in each] for name, each in {**stay, **theirs, **ours}.items()}


def paired(found: Found) -> str:
    """Cotenant less Watcher on the same clusters: points of instance-time that is short, and hosts."""
    lines = []
    for mine, other in PAIRS:
        differing = [f"{column} {cell(differences(found, mine, other, column))}" for column in (SHORT, "hosts")]
        lines.append(f"{mine} less {other}: {'; '.join(differing)}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
