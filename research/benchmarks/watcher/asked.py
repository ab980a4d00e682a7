"""Which moves a strategy of Watcher makes on a simulated cluster."""

from __future__ import annotations

import json
import os
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from research.arena.clusters import SimulatedCluster
from research.arena.rebalances import Rebalanced
from research.benchmarks.proxlb.asked import MOST_PRINTED

INSIDE = Path(__file__).parent / "inside.py"
LONGEST_S = 1_800.0
DISK_GB, HOST_DISK_GB = 10, 100_000  # no instance is short of it
KB = 1024  # of a MB


class WatcherError(Exception):
    """Watcher did not answer."""


@dataclass(frozen=True, slots=True)
class WatcherAudit:
    """A strategy with its parameters, and how many audits may follow each other, each after the moves of the former."""

    strategy: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    most: int = 1


def by_watcher(cluster: SimulatedCluster, audit: WatcherAudit, python: Path) -> Rebalanced:
    """The moves of the strategy, unchanged, until it makes none. Raises WatcherError with what it printed last."""
    done = Rebalanced(cluster)
    for number in range(audit.most):
        first = time.perf_counter()
        found = _run(question(done.cluster, audit, number), python)
        moved = [(str(one["resource_name"]), str(one["destination_node"])) for one in _migrations(found)]
        if not moved:
            break
        done = Rebalanced(
            done.cluster.after({**done.cluster.places, **dict(moved)}),
            done.moves + len(moved),
            done.seconds + time.perf_counter() - first,
            done.cpu_seconds + found["cpu_seconds"],
            (*done.stages, *((one,) for one in moved)),
        )
    return done


def question(cluster: SimulatedCluster, audit: WatcherAudit, number: int = 0) -> dict[str, Any]:
    """What inside.py reads: the model and the readings of the cluster as it is now."""
    return {
        "strategy": audit.strategy,
        "parameters": dict(audit.parameters),
        "model": model_xml(cluster),
        "readings": readings(cluster),
        "seed": 1000 * cluster.seed + number,
    }


def model_xml(cluster: SimulatedCluster) -> str:
    """The compute data model as Watcher writes it; all that is said of a cluster but its readings."""
    root = ElementTree.Element("ModelRoot")
    none_reserved = {"memory_mb_reserved": "0", "disk_gb_reserved": "0", "vcpu_reserved": "0", "disk_ratio": "1.0"}
    up = {"status": "enabled", "state": "up", "disabled_reason": ""}
    nodes = {}
    for host in cluster.inventory.hosts:
        size = {"vcpus": str(host.pcpus), "memory": str(int(host.memory_mb)), "disk": str(HOST_DISK_GB)}
        ratios = {"vcpu_ratio": str(host.cpu_overcommit), "memory_ratio": str(host.memory_overcommit)}
        names = {"uuid": identity(host.id), "hostname": host.id}
        nodes[host.id] = ElementTree.SubElement(root, "ComputeNode", {**names, **size, **ratios, **none_reserved, **up})
    for one in cluster.inventory.instances:
        size = {"vcpus": str(one.vcpus), "memory": str(int(one.memory_mb)), "disk": str(DISK_GB)}
        names = {"uuid": identity(one.id), "name": one.id, "project_id": identity("project")}
        excluded = str(one.never_moves)
        state = {"state": "active", "watcher_exclude": excluded, "locked": "False", "metadata": "{}"}
        ElementTree.SubElement(nodes[str(one.host)], "Instance", {**names, **size, **state})
    return ElementTree.tostring(root, encoding="unicode")


def readings(cluster: SimulatedCluster) -> dict[str, dict[str, float]]:
    """By Watcher's name of the metric, in its units (`datasources/base.py`), and by UUID: CPU as wanted in the mean,
    of all a host has at most; memory as if each instance used all of its own."""
    values: dict[str, dict[str, float]] = {name: {} for name in ("host_cpu_usage", "host_ram_usage")}
    instances = cluster.inventory.instances
    for host in cluster.inventory.hosts:
        mine = [one for one in instances if one.host == host.id]
        demanded = sum(one.demand["cpu"].mean for one in mine)
        values["host_cpu_usage"][identity(host.id)] = min(100 * demanded / host.pcpus, 100.0)
        values["host_ram_usage"][identity(host.id)] = KB * sum(one.memory_mb for one in mine)
    memory = {identity(one.id): one.memory_mb for one in instances}
    return {
        **values,
        "instance_cpu_usage": {identity(one.id): 100 * one.demand["cpu"].mean / one.vcpus for one in instances},
        "instance_ram_usage": memory,
        "instance_ram_allocated": memory,
        "instance_root_disk_size": dict.fromkeys(memory, float(DISK_GB)),
    }


def identity(name: str) -> str:
    """The UUID of a host or instance in Watcher's model."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def _migrations(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one["input_parameters"] for one in found["actions"] if one["action_type"] == "migrate"]


def _run(asked: Mapping[str, Any], python: Path) -> Any:
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "PYTHONWARNINGS": "ignore"}
    ended = subprocess.run(
        [str(python), str(INSIDE)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=environment,
        timeout=LONGEST_S,
        check=False,
    )
    if ended.returncode != 0:
        said = (ended.stderr or ended.stdout).strip()[-MOST_PRINTED:]
        raise WatcherError(f"{asked['strategy']} ended with {ended.returncode}: {said}")
    return json.loads(ended.stdout)
