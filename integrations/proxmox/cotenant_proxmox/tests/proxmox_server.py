"""A node of Proxmox VE as far as a read needs it; no Proxmox ran here.

Shapes are those that public clients of the API read (versions 8 and 9), and of histories those of its own sources
(pve-cluster, PVE/RRD.pm); nodes, guests and what they do are made up.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.servers.local_http import QuietHandler, on_loopback

TOKEN = "cotenant@pve!sync=0b7a9f0e-1111-4222-8333-444455556666"
GIB = 1 << 30
FRAMES = {  # seconds of a row, and how many there are
    8: {"hour": (60, 70), "day": (1800, 70), "week": (10800, 70), "month": (43200, 70), "year": (604800, 70)},
    9: {"hour": (60, 60), "day": (60, 1440), "week": (1800, 336), "month": (1800, 1440), "year": (21600, 1440)},
}


def node(name: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "node", "id": f"node/{name}", "node": name, "status": "online", "level": "", "cpu": 0.2, "maxcpu": 16,
        "mem": 20 * GIB, "maxmem": 64 * GIB, "disk": GIB, "maxdisk": 90 * GIB, "uptime": 86400, **more,
    }  # fmt: skip


def guest(number: int, on: str = "pve1", kind: str = "qemu", **more: Any) -> dict[str, Any]:
    return {
        "type": kind, "id": f"{kind}/{number}", "vmid": number, "node": on, "name": f"vm{number}", "status": "running",
        "template": 0, "maxcpu": 4, "maxmem": 4 * GIB, "maxdisk": 32 * GIB, "cpu": 0.1, "mem": GIB, "netin": 1,
        "netout": 1, "diskread": 1, "diskwrite": 1, "uptime": 3600, **more,
    }  # fmt: skip


class Cluster:
    """What the server answers, by path; `raw` answers take the place of others, `codes` are those of a refusal."""

    def __init__(self) -> None:
        self.nodes = [node("pve1"), node("pve2")]
        self.guests = [guest(100, tags="web;prod", pool="shop"), guest(101, "pve2", "lxc", maxcpu=2)]
        self.configs: dict[int, dict[str, Any]] = {
            100: {"cores": 2, "sockets": 2, "memory": "4096", "name": "vm100", "cpulimit": "3", "ostype": "l26",
                  "affinity": "0-3", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0,rate=12.5",
                  "scsi0": "local-lvm:vm-100-disk-0,mbps_rd=100,mbps_wr=50,size=32G",
                  "ide2": "none,media=cdrom", "smbios1": "uuid=4d6a4b8e-41c5-4f5b-9d2a-0c7d8f4b4d11"},
            101: {"cores": 2, "memory": 4096, "hostname": "vm101", "ostype": "debian", "rootfs": "local:1,size=8G"},
        }  # fmt: skip
        self.cpuinfo: dict[str, dict[str, Any]] = {}  # of a node, in place of what all have
        self.rules: list[dict[str, Any]] = []  # of HA, which version 8 does not have
        self.raw: dict[str, bytes] = {}
        self.codes: dict[str, int] = {}
        self.asked: list[str] = []
        self.version = 9
        self.busy: Callable[[float], float] = lambda _: 0.25  # part of all vCPUs in the minute that ends then
        self.pressure = 0.0
        self.spoil: Callable[[list[Any]], list[Any]] = list  # what becomes of the rows of a history
        self.migrations = 0  # that were begun
        self.tasks: dict[str, dict[str, Any]] = {}  # by UPID
        self.asks_left = 3  # answers of status for which a migration goes on
        self.fails = ""  # with what migrations end

    def history(self, row: dict[str, Any], timeframe: str) -> list[Any]:
        """Means of the minutes of each step; a row of which nothing is known has its time alone."""
        step, count = FRAMES[self.version][timeframe]
        end = int(time.time()) // step * step
        found = []
        for at in range(end - (count - 1) * step, end + 1, step):
            minutes = [self.busy(float(minute)) for minute in range(at - step + 60, at + 1, 60)]
            found.append({
                "time": at, "maxcpu": row["maxcpu"], "cpu": sum(minutes) / len(minutes), "mem": GIB,
                "maxmem": 4 * GIB, "disk": 0, "maxdisk": 32 * GIB, "netin": 1e6, "netout": 1e6, "diskread": 2e6,
                "diskwrite": 1e6,
                **({"memhost": GIB, "pressurecpusome": self.pressure, "pressurecpufull": 0.0, "pressureiosome": 1.5,
                    "pressureiofull": 1.0, "pressurememorysome": 0.0, "pressurememoryfull": 0.0}
                   if self.version == 9 else {}),
            })  # fmt: skip
        return self.spoil(found)

    def answer(self, asked: str) -> tuple[int, bytes]:
        self.asked.append(asked)
        path, _, query = asked.partition("?")
        if path in self.codes:
            return self.codes[path], b'{"data":null}'
        if path in self.raw:
            return 200, self.raw[path]
        parts = path.strip("/").split("/")
        data: Any = None
        if path == "/cluster/ha/rules":
            return (200, json.dumps({"data": self.rules}).encode()) if self.version == 9 else (501, b"")
        if path == "/cluster/resources":
            storage = {"type": "storage", "id": "storage/pve1/local", "node": "pve1", "status": "available"}
            data = [*self.nodes, *self.guests, storage]
        elif parts[-1] == "current":
            data = self.current(int(parts[3]))
        elif parts[-1] == "status" and parts[2] == "tasks":
            data = self.tasks[unquote(parts[3])]
        elif parts[-1] == "status":
            data = {
                "cpuinfo": {"cpus": 16, "cores": 8, "sockets": 1, "mhz": "2994.37", "model": "EPYC", "hvm": "1",
                            **self.cpuinfo.get(parts[1], {})},
                "memory": {"total": 64 * GIB}, "kversion": "Linux 6.8.12", "pveversion": "pve-manager/8.4.1",
            }  # fmt: skip
        elif parts[-1] == "config" and any(f"{one['type']}/{one['vmid']}" in path for one in self.guests):
            data = self.configs[int(parts[3])]
        elif parts[-1] == "rrddata":
            row = next(one for one in self.guests if f"{one['type']}/{one['vmid']}" in path)
            data = self.history(row, parse_qs(query)["timeframe"][0])
        return (200, json.dumps({"data": data}).encode()) if data is not None else (595, b"")

    def row(self, number: int) -> dict[str, Any]:
        return next(one for one in self.guests if one["vmid"] == number)

    def current(self, number: int) -> dict[str, Any]:
        """A migration is over after so many questions."""
        row = self.row(number)
        for task in self.tasks.values():
            if task["vmid"] == number and task["status"] == "running":
                task["left"] -= 1
                if task["left"] <= 0:
                    self.end(task)
        return {"status": row["status"], **({"lock": row["lock"]} if "lock" in row else {})}

    def end(self, task: dict[str, Any]) -> None:
        row = self.row(task["vmid"])
        row.pop("lock", None)
        task |= {"status": "stopped", "exitstatus": self.fails or "OK"}
        if not self.fails:
            row["node"] = task["target"]

    def change(self, method: str, path: str, fields: dict[str, str]) -> tuple[int, bytes]:
        """POST of a migration, PUT of a config, DELETE of a task; as PVE/API2 has them."""
        self.asked.append(f"{method} {path} {fields}")
        if path in self.codes:
            return self.codes[path], b'{"data":null}'
        parts = path.strip("/").split("/")
        if method == "DELETE" and parts[2] == "tasks":
            task = self.tasks[unquote(parts[3])]
            self.row(task["vmid"]).pop("lock", None)
            task |= {"status": "stopped", "exitstatus": "unexpected status"}
            return 200, b'{"data":null}'
        row = self.row(int(parts[3]))
        if row["node"] != parts[1] or (parts[-1] == "migrate" and "lock" in row):
            return 500, b'{"data":null}'
        if parts[-1] == "config":
            config = self.configs[row["vmid"]]
            for name in fields.pop("delete", "").split(","):
                config.pop(name, None)
            config |= fields
            return 200, b'{"data":null}'
        self.migrations += 1
        upid = f"UPID:{row['node']}:000A:00B0:66:qmigrate:{row['vmid']}:cotenant@pve!sync:{self.migrations}"
        row["lock"] = "migrate"
        self.tasks[upid] = {
            "vmid": row["vmid"], "target": fields["target"], "status": "running", "left": self.asks_left,
        }  # fmt: skip
        return 200, json.dumps({"data": upid}).encode()


@contextmanager
def serving(cluster: Cluster, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of its API, for as long as the block runs."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == f"PVEAPIToken={TOKEN}"
            self.reply(*(cluster.answer(self.path.removeprefix("/api2/json")) if allowed else (401, b"")))

        def do_POST(self) -> None:
            fields = {name: values[0] for name, values in parse_qs(self.request_body().decode()).items()}
            allowed = self.headers.get("Authorization") == f"PVEAPIToken={TOKEN}"
            path = self.path.removeprefix("/api2/json")
            self.reply(*(cluster.change(self.command, path, fields) if allowed else (401, b"")))

        do_PUT = do_DELETE = do_POST  # noqa: N815 - the names that http.server calls

    with on_loopback(Handler, tls) as server:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
