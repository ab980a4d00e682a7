"""A stand-in for the API of Proxmox VE 9, as far as ProxLB and Cotenant's own sync read it; it only answers GET.

Memory in use is all of a guest's memory, and CPU in use its mean demand, so that all callers get the
same. Pressure comes of the simulated contention: `some` is the part of the time in which a vCPU waits, `full` the part
of the wanted CPU time that is waited for, which is what one vCPU would tell. A node's `full` of CPU is 0, as the kernel
has it (Documentation/accounting/psi.rst). Peaks are 95th percentiles of the windows.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from advisor.domain import Instance
from research.arena.clusters import SimulatedCluster

MB = 1 << 20
DISK = 32 << 30
MINUTES = 60  # rows of an hour
FIRST_VMID = 100
RIGHTS = dict.fromkeys(("Datastore.Audit", "Sys.Audit", "VM.Audit", "VM.Migrate"), 1)
VERSION = {"version": "9.0.3", "release": "9.0"}
NO_PRESSURE = {f"pressure{what}{kind}": 0.0 for what in ("memory", "io") for kind in ("some", "full")}


class ProxmoxStandIn:
    """What a cluster answers, by path below /api2/json, with what its guests do where they are now."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        simulated = cluster.simulated()
        nodes: dict[str, dict[str, Any]] = {}
        self._history: dict[str, tuple[dict[str, float], dict[str, float]]] = {}  # means and peaks
        none_there = ("/pools", "/cluster/ha/rules", "/cluster/ha/status/current")
        self._answers: dict[str, Any] = {path: [] for path in none_there}
        self._answers |= {"/version": VERSION, "/access/permissions": {"/": RIGHTS}, "/cluster/resources": []}
        for host in cluster.inventory.hosts:
            at = f"/nodes/{host.id}"
            nodes[host.id] = {
                "type": "node", "node": host.id, "status": "online", "cpu": 0.0, "maxcpu": host.pcpus, "mem": 0,
                "maxmem": int(host.memory_mb * MB), "disk": DISK, "maxdisk": 100 * DISK,
            }  # fmt: skip
            self._answers |= {f"{at}/version": VERSION, f"{at}/status": {}, f"{at}/lxc": [], f"{at}/qemu": []}
            self._history[at] = (_row(0.0, simulated[host.id].outcome.short if host.id in simulated else 0.0, 0.0),) * 2
        for number, one in enumerate(cluster.inventory.instances, FIRST_VMID):
            node, mem = nodes[str(one.host)], int(one.memory_mb * MB)
            at, cpu = f"/nodes/{one.host}/qemu/{number}", one.demand["cpu"].mean
            node["cpu"], node["mem"] = min(node["cpu"] + cpu / node["maxcpu"], 1.0), node["mem"] + mem
            guest: dict[str, Any] = {
                "vmid": number, "name": one.id, "status": "running", "cpu": cpu / one.vcpus, "cpus": one.vcpus,
                "mem": mem, "maxmem": mem, "disk": 0, "maxdisk": DISK,
            }  # fmt: skip
            self._answers[f"/nodes/{one.host}/qemu"].append(guest)
            more = {"type": "qemu", "node": one.host, "maxcpu": one.vcpus, "template": 0}
            self._answers["/cluster/resources"].append(guest | more)
            config = {"cores": one.vcpus, "memory": str(int(one.memory_mb)), "name": one.id}
            self._answers[f"{at}/config"] = config | ({"tags": ";".join(tags)} if (tags := _tags(one)) else {})
            got, peak = simulated[str(one.host)].outcome.instances[one.id], simulated[str(one.host)].lost_95[one.id]
            mean, highest = _row(guest["cpu"], got.short, 1 - got.share), _row(guest["cpu"], max(got.short, peak), peak)
            self._history[at] = (mean, highest)
        self._answers["/nodes"] = list(nodes.values())
        self._answers["/cluster/resources"] += self._answers["/nodes"]

    def answer(self, target: str) -> Any | None:
        """`data` for a path with its query; None where there is none."""
        parts = urlsplit(target)
        known = self._history.get(parts.path.removesuffix("/rrddata")) if parts.path.endswith("/rrddata") else None
        if known is None:
            return self._answers.get(parts.path)
        row, now = known[parse_qs(parts.query).get("cf") == ["MAX"]], int(time.time()) // 60 * 60
        return [{"time": now - 60 * minute, **row} for minute in reversed(range(MINUTES))]


def _tags(one: Instance) -> list[str]:
    """Its rules as ProxLB's documentation has them: tags that begin with plb_."""
    together = [f"plb_affinity_{one.affinity_group}"] if one.affinity_group else []
    apart = [f"plb_anti_affinity_{group}" for group in one.anti_affinity_groups]
    return [*together, *apart, *(["plb_ignore_never_move"] if one.never_moves else [])]


def _row(cpu: float, some: float, full: float) -> dict[str, float]:
    """A row of a history: parts become per cent of the time, but for CPU in use."""
    return {"cpu": cpu, "pressurecpusome": 100 * some, "pressurecpufull": 100 * full, **NO_PRESSURE}


@contextmanager
def serving(stand_in: ProxmoxStandIn, token: str, folder: Path) -> Iterator[int]:
    """Its port on 127.0.0.1, over TLS, as long as the block runs; `token` is USER@REALM!NAME=SECRET. A certificate and
    its key are made in `folder`, by openssl."""

    class StandInHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"PVEAPIToken={token}"
            data = stand_in.answer(self.path.removeprefix("/api2/json")) if allowed else None
            body = json.dumps({"data": data}).encode()
            self.send_response(200 if data is not None else 501 if allowed else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    key, pem = folder / "key.pem", folder / "pve.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=pve"]
    subprocess.run([*argv, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandInHandler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
