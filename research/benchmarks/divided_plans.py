"""A plan of a large cloud: in groups of hosts searched in processes, as the product does it, or by one search.

    python -m research.benchmarks.divided_plans [--hosts 1000] [--vms 15] [--kind rebalance] [--seconds 60]
        [--undivided]

The inventory is that of `research.benchmarks.large_cloud` (simulated, 64 CPUs a host, every VM with a demand of its
own, hosts 30 to 110 % busy), the analytic model answers. Searches end by their work, not by the wall clock. Groups
together have twice the work of the limit, so one search compares at twice the `--seconds`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import time
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

from advisor.domain import PlanKind, PlanRequest
from advisor.planning import planner
from advisor.planning.assignment import divided
from advisor.prediction.active import ActivePredictor
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from research.arena.contest import NOW
from research.benchmarks.large_cloud import cloud
from research.benchmarks.measuring import circumstances

UNDIVIDED, PATIENCE = 10**9, 1000.0  # hosts of a group; limits that the wall clock gives a search


def planned(hosts: int, vms: int, kind: PlanKind, seconds: float, most: int) -> dict[str, Any]:
    """The plan's figures, and CPU time here and in processes, s."""
    snapshot = ClusterSnapshot.build(cloud(hosts, vms), seen={}, pending=(), taken_at=NOW)
    prior = ActivePredictor(PriorPredictor())
    empty = tuple(host.id for host in snapshot.hosts[:5]) if kind == "evacuate" else ()
    request = PlanRequest(kind=kind, time_limit_s=seconds, empty=empty)
    cpu, wall = time.process_time(), time.perf_counter()
    with patch.object(divided, "GROUP_HOSTS", most), patch.object(planner, "SEARCHED", PATIENCE):
        plan = planner.plan(snapshot, prior, request, now=NOW, fresh_s=math.inf, models=lambda _: prior)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert plan.search is not None
    return {
        "time_s": time.perf_counter() - wall,
        "cpu_here_s": time.process_time() - cpu,
        "cpu_processes_s": children.ru_utime + children.ru_stime,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "steps": len(plan.steps),
        "stages": 1 + max((step.stage for step in plan.steps), default=-1),
        "search": asdict(plan.search),
        "before": None if plan.sums_before is None else asdict(plan.sums_before),
        "after": None if plan.sums_after is None else asdict(plan.sums_after),
        "notes": plan.notes,
    }


def main() -> int:
    """Print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--vms", type=int, default=15, help="of each host")
    parser.add_argument("--kind", choices=("rebalance", "consolidate", "evacuate", "repair"), default="rebalance")
    parser.add_argument("--seconds", type=float, default=60.0, help="the time limit, as work")
    parser.add_argument("--undivided", action="store_true", help="by one search")
    options = parser.parse_args()
    most = UNDIVIDED if options.undivided else divided.GROUP_HOSTS
    found = planned(options.hosts, options.vms, options.kind, options.seconds, most)
    print(json.dumps({**circumstances(), "load": os.getloadavg()[0], **vars(options), **found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
