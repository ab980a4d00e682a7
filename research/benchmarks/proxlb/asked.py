"""Which moves ProxLB makes on a cluster, and the time that it takes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from research.arena.clusters import Places, SimulatedCluster
from research.arena.rebalances import Rebalanced
from research.benchmarks.proxlb.stand_in import ProxmoxStandIn, serving

USER, TOKEN_NAME = "proxlb@pve", "benchmark"
PRESSURE = {"pressure_full": 0.20, "pressure_some": 0.20, "pressure_spikes": 1.00}  # as in ProxLB's documentation
PSI = {kind: {what: dict(PRESSURE) for what in ("memory", "cpu", "disk")} for kind in ("guests", "nodes")}
MODES: Mapping[str, Mapping[str, Any]] = {
    "memory": {"method": "memory", "mode": "used"},
    "cpu": {"method": "cpu", "mode": "used"},
    "psi": {"method": "cpu", "mode": "psi", "psi": PSI},
}
LONGEST_S = 1_800.0
MOST_PRINTED = 400  # characters of what a failed run printed last


class ProxlbError(Exception):
    """ProxLB did not answer."""


def by_proxlb(cluster: SimulatedCluster, mode: str, python: Path, runs: int = 1) -> Rebalanced:
    """The moves of `python -m proxlb`, unchanged; of several `runs` each comes after the moves of the former, until it
    makes none. Raises ProxlbError with what it printed last."""
    done = Rebalanced(cluster)
    for _ in range(runs):
        before = done.cluster.places
        printed, seconds, cpu_seconds = _dry_run(done.cluster, mode, python)
        after = read_places(printed)
        if after.keys() != before.keys():
            raise ProxlbError(f"proxlb reports {len(after)} guests, not of all {len(before)}")
        moved = tuple(((one, host),) for one, host in after.items() if host != before[one])
        done = Rebalanced(
            done.cluster.after(after), done.moves + len(moved), done.seconds + seconds, done.cpu_seconds + cpu_seconds,
            (*done.stages, *moved),
        )  # fmt: skip
        if not moved:
            break
    return done


def _dry_run(cluster: SimulatedCluster, mode: str, python: Path) -> tuple[str, float, float]:
    """What one run against a stand-in prints, its wall and its CPU seconds."""
    secret = secrets.token_hex(16)
    with (
        tempfile.TemporaryDirectory(prefix="proxlb-") as name,
        serving(ProxmoxStandIn(cluster), f"{USER}!{TOKEN_NAME}={secret}", Path(name)) as port,
    ):
        config, printed = Path(name, "proxlb.yaml"), Path(name, "printed")  # in a folder that only this user may read
        config.write_text(yaml.safe_dump(configuration(mode, port, secret)), encoding="utf-8")
        argv = [str(python), "-m", "proxlb", "--config", str(config), "--dry-run", "--json"]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}
        first = time.perf_counter()
        with printed.open("wb") as out:
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=name, env=environment
            )
            too_long = threading.Timer(LONGEST_S, child.kill)
            too_long.start()
            _, status, usage = os.wait4(child.pid, 0)  # gives the CPU time of this child alone
            too_long.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - first
        text = printed.read_text(encoding="utf-8", errors="replace")
    if child.returncode != 0:
        raise ProxlbError(f"proxlb ended with {child.returncode}: {text.strip()[-MOST_PRINTED:]}")
    return text, seconds, usage.ru_utime + usage.ru_stime


def configuration(mode: str, port: int, secret: str) -> Mapping[str, Any]:
    """ProxLB's own file: its defaults, but for what must be said and what its example turns on."""
    who = {"user": USER, "token_id": TOKEN_NAME, "token_secret": secret, "ssl_verification": False}
    return {
        "proxmox_api": {"hosts": [f"127.0.0.1:{port}"], "timeout": 60, **who},
        "proxmox_cluster": {"overprovisioning": True},
        "balancing": {"enable": True, "balance_types": ["vm", "ct"], **MODES[mode]},
        "service": {"daemon": False, "log_level": "CRITICAL"},
    }


def read_places(printed: str) -> Places:
    """The host that each guest should be on, by what `proxlb --json` printed. Raises ProxlbError where it is not."""
    begin = 0 if printed.startswith("{\n") else printed.find("\n{\n") + 1
    try:
        found = json.JSONDecoder().raw_decode(printed, begin)[0]
        return {str(name): str(guest["node_target"]) for name, guest in found["guests"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProxlbError(f"proxlb printed no guests with their node_target: {printed[-MOST_PRINTED:]}") from None
