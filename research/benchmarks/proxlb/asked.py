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
PSI = {kind: dict.fromkeys(("memory", "cpu", "disk"), PRESSURE) for kind in ("guests", "nodes")}
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


def configuration(mode: str, port: int, secret: str) -> dict[str, Any]:
    """ProxLB's own file: as it comes, but for what must be said and for the kinds of its example."""
    return {
        "proxmox_api": {
            "hosts": [f"127.0.0.1:{port}"], "user": USER, "token_id": TOKEN_NAME, "token_secret": secret,
            "ssl_verification": False, "timeout": 60,
        },
        "proxmox_cluster": {"maintenance_nodes": [], "ignore_nodes": [], "overprovisioning": True},
        "balancing": {"enable": True, "balance_types": ["vm", "ct"], **MODES[mode]},
        "service": {"daemon": False, "log_level": "CRITICAL"},
    }  # fmt: skip


def by_proxlb(cluster: SimulatedCluster, mode: str, python: Path) -> WantedMoves:
    """A dry run of `python -m proxlb`, unchanged, against a stand-in. Raises ProxlbError with what it printed last."""
    secret = secrets.token_hex(16)
    stand_in = ProxmoxStandIn(cluster)
    with (
        tempfile.TemporaryDirectory(prefix="proxlb-") as name,
        serving(stand_in, f"{USER}!{TOKEN_NAME}={secret}", Path(name)) as port,
    ):
        folder = Path(name)
        config = folder / "proxlb.yaml"
        config.touch(mode=0o600)
        config.write_text(yaml.safe_dump(configuration(mode, port, secret)), encoding="utf-8")
        argv = [str(python), "-m", "proxlb", "--config", str(config), "--dry-run", "--json"]
        printed = folder / "printed"
        first = time.perf_counter()
        with printed.open("wb") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=_environment()
            )
            too_long = threading.Timer(LONGEST_S, child.kill)
            too_long.start()
            _, status, usage = os.wait4(child.pid, 0)  # tells this child's CPU time, whatever else runs
            too_long.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - first
        text = printed.read_text(encoding="utf-8", errors="replace")
    if child.returncode != 0:
        raise ProxlbError(f"proxlb ended with {child.returncode}: {text[-MOST_TOLD:]}")
    places = read_places(text)
    if places.keys() != cluster.places.keys():
        raise ProxlbError(f"proxlb tells of {len(places)} guests, not of {len(cluster.places)}")
    moves = sum(places[one] != host for one, host in cluster.places.items())
    return WantedMoves(places, moves, seconds, usage.ru_utime + usage.ru_stime)


def read_places(printed: str) -> Places:
    """The host that each guest should be on, by what `proxlb --json` printed. Raises ProxlbError where it is not."""
    begin = 0 if printed.startswith("{\n") else printed.find("\n{\n") + 1
    try:
        found = json.JSONDecoder().raw_decode(printed, begin)[0]
        return {str(name): str(guest["node_target"]) for name, guest in found["guests"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProxlbError(f"proxlb printed no guests with their node_target: {printed[-MOST_TOLD:]}") from None


def by_cotenant(cluster: SimulatedCluster, max_moves: int | None = None) -> WantedMoves:
    """A rebalance by the queueing prior as `cotenant plan --kind rebalance` makes it; a detour is two moves."""
    if max_moves == 0:
        return WantedMoves(cluster.places, 0, 0.0, 0.0)
    cloud = snapshot(cluster.inventory)
    first, first_cpu = time.perf_counter(), time.process_time()
    plan = planner.plan(
        cloud,
        ActivePredictor(PriorPredictor()),
        PlanRequest("rebalance", max_moves=max_moves),
        now=NOW,
        fresh_s=math.inf,
        models=lambda _: ActivePredictor(PriorPredictor()),
    )
    seconds, cpu_seconds = time.perf_counter() - first, time.process_time() - first_cpu
    moved = [(step.instance, step.host) for step in plan.steps if step.action == "move" and step.host is not None]
    return WantedMoves({**cluster.places, **dict(moved)}, len(moved), seconds, cpu_seconds)


def _environment() -> dict[str, str]:
    """What ProxLB's Python needs, and nothing of this one's modules and settings."""
    return {"PATH": os.environ.get("PATH", os.defpath), "PYTHONNOUSERSITE": "1", "LC_ALL": "C.UTF-8"}
