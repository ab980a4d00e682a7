"""Which moves ProxLB and Cotenant want on a cluster, and the time that each takes."""

from __future__ import annotations

import json
import math
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from advisor.domain import PlanRequest
from advisor.planning import planner
from advisor.prediction.active import ActivePredictor
from models.physics.prior import PriorPredictor
from research.benchmarks.proxlb.cluster import NOW, Places, SimulatedCluster, snapshot
from research.benchmarks.proxlb.stand_in import ProxmoxStandIn, serving

USER, TOKEN_NAME = "proxlb@pve", "benchmark"
PRESSURE = {"pressure_full": 0.20, "pressure_some": 0.20, "pressure_spikes": 1.00}  # of ProxLB's documentation
PSI = {kind: {what: dict(PRESSURE) for what in ("memory", "cpu", "disk")} for kind in ("guests", "nodes")}
MODES: Mapping[str, Mapping[str, Any]] = {
    "memory": {"method": "memory", "mode": "used"},
    "cpu": {"method": "cpu", "mode": "used"},
    "psi": {"method": "cpu", "mode": "psi", "psi": PSI},
}
LONGEST_S = 1_800.0
MOST_TOLD = 400  # characters of what a failed run printed last


class ProxlbError(Exception):
    """ProxLB did not answer."""


@dataclass(frozen=True, slots=True)
class WantedMoves:
    """Where everybody would be, after how many moves; wall and CPU seconds that it took to say so."""

    places: Places
    moves: int
    seconds: float
    cpu_seconds: float


def by_proxlb(cluster: SimulatedCluster, mode: str, python: Path, runs: int = 1) -> WantedMoves:
    """What `python -m proxlb` wants, unchanged; of several `runs` each comes after the moves of the former, until it
    wants none. Raises ProxlbError with what it printed last."""
    moves, seconds, cpu_seconds = 0, 0.0, 0.0
    for _ in range(runs):
        printed, took, used = _dry_run(cluster, mode, python)
        places = read_places(printed)
        if places.keys() != cluster.places.keys():
            raise ProxlbError(f"proxlb tells of {len(places)} guests, not of all {len(cluster.places)}")
        wanted = sum(places[one] != host for one, host in cluster.places.items())
        moves, seconds, cpu_seconds = moves + wanted, seconds + took, cpu_seconds + used
        if not wanted:
            break
        cluster = cluster.after(places)
    return WantedMoves(cluster.places, moves, seconds, cpu_seconds)


def _dry_run(cluster: SimulatedCluster, mode: str, python: Path) -> tuple[str, float, float]:
    """What one run against a stand-in prints, its wall and its CPU seconds."""
    secret = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="proxlb-") as name,
        serving(ProxmoxStandIn(cluster), f"{USER}!{TOKEN_NAME}={secret}", Path(name)) as port,
    ):
        folder = Path(name)  # nobody else may look into it
        config, printed = folder / "proxlb.yaml", folder / "printed"
        config.write_text(yaml.safe_dump(configuration(mode, port, secret)), encoding="utf-8")
        argv = [str(python), "-m", "proxlb", "--config", str(config), "--dry-run", "--json"]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        first = time.perf_counter()
        with printed.open("wb") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=environment
            )
            too_long = threading.Timer(LONGEST_S, child.kill)
            too_long.start()
            _, status, usage = os.wait4(child.pid, 0)  # tells the CPU time of this child alone
            too_long.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - first
        text = printed.read_text(encoding="utf-8", errors="replace")
    if child.returncode != 0:
        raise ProxlbError(f"proxlb ended with {child.returncode}: {text[-MOST_TOLD:]}")
    return text, seconds, usage.ru_utime + usage.ru_stime


def configuration(mode: str, port: int, secret: str) -> Mapping[str, Any]:
    """ProxLB's own file: its defaults, but for what must be said and what its example turns on."""
    return {
        "proxmox_api": {
            "hosts": [f"127.0.0.1:{port}"], "user": USER, "token_id": TOKEN_NAME, "token_secret": secret,
            "ssl_verification": False, "timeout": 60,
        },
        "proxmox_cluster": {"overprovisioning": True},
        "balancing": {"enable": True, "balance_types": ["vm", "ct"], **MODES[mode]},
        "service": {"daemon": False, "log_level": "CRITICAL"},
    }  # fmt: skip


def read_places(printed: str) -> Places:
    """The host that each guest should be on, by what `proxlb --json` printed. Raises ProxlbError where it is not."""
    begin = 0 if printed.startswith("{\n") else printed.find("\n{\n") + 1
    try:
        found = json.JSONDecoder().raw_decode(printed, begin)[0]
        return {str(name): str(guest["node_target"]) for name, guest in found["guests"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProxlbError(f"proxlb printed no guests with their node_target: {printed[-MOST_TOLD:]}") from None


def by_cotenant(cluster: SimulatedCluster, max_moves: int | None = None) -> WantedMoves:
    """A rebalance by the queueing prior, as `cotenant plan --kind rebalance` makes it; a detour is two moves."""
    if max_moves == 0:
        return WantedMoves(cluster.places, 0, 0.0, 0.0)
    cloud, chosen = snapshot(cluster.inventory), ActivePredictor(PriorPredictor())
    request = PlanRequest("rebalance", max_moves=max_moves)
    first, first_cpu = time.perf_counter(), time.process_time()
    plan = planner.plan(cloud, chosen, request, now=NOW, fresh_s=math.inf, models=lambda _: chosen)
    seconds, cpu_seconds = time.perf_counter() - first, time.process_time() - first_cpu
    moved = [(step.instance, step.host) for step in plan.steps if step.action == "move" and step.host is not None]
    return WantedMoves({**cluster.places, **dict(moved)}, len(moved), seconds, cpu_seconds)
