"""Which moves Kronos and ProxLB's solver want on a cluster; each runs unchanged in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from research.arena.clusters import SimulatedCluster
from research.arena.rebalances import Rebalanced
from research.benchmarks.proxlb.asked import MOST_PRINTED

HERE = Path(__file__).parent
KRONOS, SOLVER = HERE / "inside_kronos.py", HERE / "inside_proxlb_solver.py"
CYCLES = 20  # of Kronos, each of at most a hundred moves


class PeerError(Exception):
    """A peer did not answer, or not in time."""


def by_kronos(cluster: SimulatedCluster, mode: str, python: Path, seconds: float) -> Rebalanced:
    """The moves of Kronos, `spread` by CPU or `pack`, until it has none."""
    return _asked(cluster, KRONOS, {"mode": mode, "cycles": CYCLES}, python, seconds)


def by_solver(cluster: SimulatedCluster, method: str, python: Path, seconds: float) -> Rebalanced:
    """The moves of proxlb-solver by `cpu` or `memory`, with the steps that it plans."""
    return _asked(cluster, SOLVER, {"method": method}, python, seconds)


def question(cluster: SimulatedCluster) -> dict[str, Any]:
    """The cluster in the words of inside_kronos.py."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in cluster.inventory.instances:
        if one.affinity_group:
            groups.setdefault(("affinity", one.affinity_group), []).append(one.id)
        for group in one.anti_affinity_groups:
            groups.setdefault(("anti-affinity", group), []).append(one.id)
    hosts = [
        {
            "name": host.id, "cpus": host.pcpus, "whole_memory_mb": host.memory_mb,
            "vcpus": host.cpu_overcommit * host.pcpus, "memory_mb": host.memory_overcommit * host.memory_mb,
        }
        for host in cluster.inventory.hosts
    ]  # fmt: skip
    vms = [
        {
            "name": one.id, "host": str(one.host), "vcpus": one.vcpus, "memory_mb": int(one.memory_mb),
            "cpu": one.demand["cpu"].mean,
        }
        for one in cluster.inventory.instances
    ]  # fmt: skip
    return {
        "hosts": hosts,
        "vms": vms,
        "groups": [
            {"id": name, "name": name, "policy": policy, "policies": [policy], "members": members, "rules": {}}
            for (policy, name), members in sorted(groups.items())
        ],
        "never": [one.id for one in cluster.inventory.instances if one.never_moves],
    }


def _asked(
    cluster: SimulatedCluster, program: Path, more: Mapping[str, Any], python: Path, seconds: float
) -> Rebalanced:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "ignore"}
    first = time.perf_counter()
    try:
        ended = subprocess.run(
            [str(python), str(program)],
            input=json.dumps(question(cluster) | dict(more)),
            capture_output=True,
            text=True,
            env=environment,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeerError(f"{program.stem} did not answer within {seconds:.0f} s") from None
    if ended.returncode != 0:
        raise PeerError(f"{program.stem} ended with {ended.returncode}: {ended.stderr.strip()[-MOST_PRINTED:]}")
    found = json.loads(ended.stdout)
    stages = tuple(tuple((str(name), str(host)) for name, host in stage) for stage in found["stages"])
    after = {**cluster.places, **{name: host for stage in stages for name, host in stage}}
    moves = sum(map(len, stages))
    return Rebalanced(cluster.after(after), moves, time.perf_counter() - first, found["cpu_seconds"], stages)
