"""Balancers of other systems beside plans of Cotenant on clouds with rules: moves, rules, hosts, victims and time.

    python -m research.benchmarks.peers --environments DIR [--size "12 x 150" | --cloud FILE] [--seeds 8] [--busy 2.0]
        [--only NAME]

DIR has an environment each for proxlb, watcher and kronos (`make peers`); whoever has none there is left out. ProxLB,
its solver, Watcher's strategies and Kronos run unchanged; the rules of Proxmox VE, Incus and OneDRS are written anew
(`research.arena.balancers`). A zone is a cluster of its own for each of them, and Cotenant is asked about the whole
cloud. All documents tell the same mean demands; Cotenant reads from them, too, by how much demand varies, and once more
means alone. Behind each peer stands what Cotenant reaches with at most as many moves.

An event simulation, which shares no code with the analytic model, judges how much CPU time instances get; rules and
whether each move can be made at its moment are checked by `research.arena.moments`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from advisor.domain import Inventory
from advisor.inventories.static import load_inventory
from research import markdown
from research.arena.balancers import BALANCERS, decided
from research.arena.clusters import SimulatedCluster
from research.arena.moments import ZONE, checked
from research.arena.rebalances import STAY, Rebalanced, by_cotenant, cell
from research.arena.ruled import SIZES, means_of, metered, ruled
from research.benchmarks.peers.asked import PeerError, by_kronos, by_solver
from research.benchmarks.proxlb.asked import ProxlbError, by_proxlb
from research.benchmarks.watcher.__main__ import AUDITS
from research.benchmarks.watcher.asked import WatcherError, by_watcher

Ask = Callable[[SimulatedCluster], Rebalanced]
Row = Mapping[str, float]
PACKING = "pack", "vm_workload_consolidation"  # in the names of those that empty hosts
AT_MOST = "Cotenant, at most as many moves"
LIMIT_S = 600.0  # of a plan: more than its search needs, so that a busy machine does not decide
COTENANT, MEANS, CONSOLIDATE = "Cotenant, rebalance", "Cotenant, rebalance, means alone", "Cotenant, consolidate"


@dataclass(frozen=True, slots=True)
class Contest:
    """A cloud with what is metered, as every peer sees it by zones, and what was found so far."""

    cloud: SimulatedCluster
    zones: tuple[SimulatedCluster, ...]
    means: Inventory
    rows: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, means: Inventory, seed: int) -> Contest:
        """Demand over time is drawn once; every document is of the same."""
        cloud = SimulatedCluster.of(metered(means), seed)
        hosts: dict[str, set[str]] = {}
        for host in means.hosts:
            hosts.setdefault(host.labels.get(ZONE, ""), set()).add(host.id)
        return cls(cloud, tuple(cloud.part(some) for _, some in sorted(hosts.items())), means)

    def by_zone(self, ask: Ask) -> Rebalanced:
        """The moves of a peer in each zone, one after the other."""
        parts = [ask(zone) for zone in self.zones]
        stages = tuple(stage for part in parts for stage in part.stages)
        after = {**self.cloud.places, **{name: host for stage in stages for name, host in stage}}
        seconds, cpu_seconds = (sum(getattr(part, name) for part in parts) for name in ("seconds", "cpu_seconds"))
        return Rebalanced(self.cloud.after(after), sum(part.moves for part in parts), seconds, cpu_seconds, stages)

    def judged(self, wanted: Rebalanced) -> Row:
        """What comes of it."""
        rules = checked(self.means, wanted.stages)
        outcomes = [one for host in wanted.cluster.simulated().values() for one in host.outcome.instances.values()]
        return {
            "moves": wanted.moves,
            "rules broken": rules.broken,
            "moves impossible at their moment": rules.impossible,
            "hosts": len(set(wanted.cluster.places.values())),
            "contended, %": 100 * float(np.mean([one.short_95 for one in outcomes])),
            "most affected, CPU delivered": min(one.share for one in outcomes),
            "below 0.9": sum(one.share < 0.9 for one in outcomes),
            "CPU s": wanted.cpu_seconds,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; a peer that fails or takes too long has a line below it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=Path("var/peers"), metavar="DIR")
    parser.add_argument("--cloud", type=Path, metavar="FILE", help="a snapshot in place of drawn clouds")
    parser.add_argument("--size", choices=SIZES, default="12 x 150")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--busy", type=float, default=2.0, help="what multiplies the demand (2.0)")
    parser.add_argument("--only", action="append", metavar="NAME", help="rows whose names contain this")
    parser.add_argument("--most-seconds", type=float, default=900.0, help="of each question to a peer (900)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found of every cloud")
    options = parser.parse_args(arguments)
    asks, failed, found = peers(options.environments.resolve(), options.most_seconds), dict[str, str](), list[Contest]()
    recorded = means_of(load_inventory(options.cloud)) if options.cloud else None
    for seed in range(1, options.seeds + 1):
        drawn = recorded or ruled(seed, SIZES[options.size], options.busy)
        contest = Contest.of(drawn, seed)
        play(contest, {name: ask for name, ask in asks.items() if name not in failed}, failed, options.only)
        found.append(contest)
        if options.json:
            options.json.write_text(json.dumps([one.rows for one in found], indent=1), encoding="utf-8")
    sys.stdout.write(table(found) + "".join(f"\n{name}: {why}\n" for name, why in failed.items()))
    return 0


def peers(environments: Path, seconds: float) -> dict[str, Ask]:
    """Who can be asked here, by name."""
    python = {name: environments / name / "bin" / "python" for name in ("proxlb", "watcher", "kronos")}
    found: dict[str, Ask] = {}
    if python["proxlb"].exists():
        found |= {
            f"ProxLB, {mode}": partial(by_proxlb, mode=mode, python=python["proxlb"]) for mode in ("memory", "cpu")
        }
        found |= {
            f"ProxLB's solver, {method}": partial(by_solver, method=method, python=python["proxlb"], seconds=seconds)
            for method in ("cpu", "memory")
        }
    if python["watcher"].exists():
        found |= {
            f"Watcher, {name}": partial(by_watcher, audit=audit, python=python["watcher"])
            for name, audit in AUDITS.items()
        }
    if python["kronos"].exists():
        found |= {
            f"Kronos, {mode}": partial(by_kronos, mode=mode, python=python["kronos"], seconds=seconds)
            for mode in ("spread", "pack")
        }
    return found | {name: partial(decided, balancer) for name, balancer in BALANCERS.items()}


def play(contest: Contest, asks: Mapping[str, Ask], failed: dict[str, str], only: Sequence[str] | None) -> None:
    """Ask everyone, and Cotenant after each peer that moves something."""
    rows, plan = contest.rows, partial(by_cotenant, time_limit_s=LIMIT_S)
    rows[STAY] = contest.judged(Rebalanced(contest.cloud))
    for name, ask in asks.items():
        if only and not any(part in name for part in only):
            continue
        try:
            wanted = contest.by_zone(ask)
        except (PeerError, ProxlbError, WatcherError, OSError) as error:
            failed[name] = str(error)
            continue
        rows[name] = contest.judged(wanted)
        if not any(word in name for word in PACKING):
            rows[f"{AT_MOST}: {name}"] = contest.judged(plan(contest.cloud, wanted.moves))
    means_alone = replace(contest.cloud, inventory=contest.means)
    rows[COTENANT] = contest.judged(plan(contest.cloud, None))
    rows[MEANS] = contest.judged(plan(means_alone, None))
    rows[CONSOLIDATE] = contest.judged(plan(contest.cloud, None, "consolidate"))


def table(found: Sequence[Contest]) -> str:
    """Means over clouds with 95 % bootstrap intervals, of those that all clouds have."""
    names = [name for name in found[0].rows if all(name in contest.rows for contest in found)]
    columns = list(found[0].rows[STAY])
    rows = [[name, *(cell([one.rows[name][column] for one in found]) for column in columns)] for name in names]
    return markdown.table(["decided by", *columns], rows)


if __name__ == "__main__":
    sys.exit(main())
