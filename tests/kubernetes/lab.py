"""A real control plane with the service and the sync beside it, and the pods and nodes that are tried on it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.kubernetes.build_control_plane import built, plugin
from tests.kubernetes.control_plane import ControlPlane, running
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.running import Running
from tests.servers.service import COTENANT, Service

# vCPUs, and what each kind asks for of hosts with 64 CPUs, 100 GB/s of memory, 1 GB/s of disk and 10 Gbit/s.
KINDS: dict[str, tuple[int, dict[str, float]]] = {
    "compute": (40, {"cpu": 4000.0}),
    "stream": (8, {"cpu": 600.0, "mem_bw_mb_s": 60_000.0}),
    "store": (4, {"cpu": 100.0, "disk_mb_s": 600.0}),
    "net": (4, {"cpu": 200.0, "net_mbit": 6000.0}),
    "quiet": (2, {"cpu": 10.0}),
}
CAPACITY = {"cpu": 6400.0, "mem_bw_mb_s": 100_000.0, "disk_mb_s": 1000.0, "net_mbit": 10_000.0}
_CAN = {"mem_bw_mb_s": 100_000, "disk_mb_s": 1000, "nic_mbit": 10_000}


@dataclass(frozen=True, slots=True)
class Lab:
    """The cluster, the service that its scheduler asks with a token in the address, and the sync."""

    cluster: ControlPlane
    service: Service
    sync: Running
    token: str
    changed: Mapping[str, Any]  # of the extender's entry
    plugin: Path | None = None  # kube-scheduler with the plug-in, where it was built
    timeout: str = "300ms"  # of the plug-in, as it is shipped

    def schedule(self) -> None:
        """Run kube-scheduler, which asks the service."""
        self.cluster.schedule(self.extender, **self.changed)

    def schedule_with_plugin(self, url: str | None = None, **changed: Any) -> None:
        """Run plain kube-scheduler and a second scheduler, `cotenant`, with the plug-in that asks the service, or
        another address."""
        assert self.plugin is not None
        self.cluster.schedule(None)
        token = self.cluster.folder / "plugin.token"
        token.touch(mode=0o600)
        token.write_text(self.token, encoding="utf-8")
        reported = {"timeout": self.timeout, **changed}
        self.cluster.schedule_with_plugin(self.plugin, url or self.service.url, token, **reported)

    @property
    def extender(self) -> str:
        """The address of the service as kube-scheduler is configured with it."""
        return self.service.url.replace("http://", f"http://any:{self.token}@")

    def ask(self, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.request(method, self.service.url + path, timeout=60, headers=headers, **more)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:400]}"
        return answer.json() if answer.text else None

    def hosts(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.ask("GET", "/v1/hosts", params={"limit": 1000})["items"]
        return rows

    def instances(self) -> dict[str, dict[str, Any]]:
        """By the name of the pod."""
        rows = self.ask("GET", "/v1/instances", params={"limit": 1000})["items"]
        return {one["labels"]["name"].partition("/")[2]: one for one in rows}

    def on(self) -> dict[str, str]:
        """Where the inventory has each pod."""
        return {name: one["host"] for name, one in self.instances().items()}

    def fresh(self, nodes: int) -> list[str]:
        """No pods, and so many new nodes of which Cotenant knows what they can do."""
        self.cluster.wipe(nodes=True)
        wait(lambda: not self.hosts())
        names = [f"node-{number:03}" for number in range(nodes)]
        self.cluster.nodes(names)
        wait(lambda: len(self.hosts()) == nodes)
        reported = ("id", "kind", "pcpus", "memory_mb", "labels", "cpu_overcommit")
        wide = [{**{name: one[name] for name in reported}, **_CAN} for one in self.hosts()]
        self.ask("PUT", "/v1/inventory", json={"hosts": wide, "mode": "merge"})
        return names

    def burst(self, kinds: Mapping[str, str], within_s: float = 240.0, **more: Any) -> dict[str, str]:
        """Where they are bound to."""
        self.cluster.create(pod(name, kind, **more) for name, kind in kinds.items())
        return dict(self.cluster.wait_bound(kinds, within_s))

    def pods(self, result: str) -> float:
        """Tries of pods that ask the second scheduler, by result: advised, wrong, unadvised."""
        return self.cluster.metric(rf'cotenant_scheduler_pods_total\{{[^}}]*"{result}"[^}}]*\}}', plugin=True)

    def cpu_s(self) -> float:
        """CPU time of the service's process so far."""
        return cpu_s(self.service.running)


@contextmanager
def laboratory(
    version: str, folder: Path, patience_s: float | None = None, database: str | None = None
) -> Iterator[Lab]:
    """etcd, kube-apiserver, kube-scheduler with our extender entry, `cotenant serve`, and `cotenant sync --watch` as
    the ServiceAccount of the manifest; with the times that are shipped, or with so many seconds for an answer.

    `database` is the URL of an empty one, else SQLite. CannotBuildError says why there is no control plane.
    """
    programs = built(version)
    database = database or sqlite_with_tables(folder / "db.sqlite3")
    own = {"COTENANT_DATABASE": database, "COTENANT_STATE_DIR": str(folder)}
    argv = [str(COTENANT), "token", "create", "--name", "kube-scheduler", "--scope", "write"]
    reported = subprocess.run(argv, env={**os.environ, **own}, check=True, capture_output=True, text=True)
    with running(programs, folder) as cluster:
        service = Service(database, folder, extender_s=str(patience_s or 0.25)).start()
        environment = {**own, "KUBECONFIG": str(cluster.account())}
        argv = [str(COTENANT), "sync", "kubernetes", "--watch"]
        sync = Running(argv, lambda: True, folder / "sync.log", drop=False, environment=environment)
        changed = {} if patience_s is None else {"httpTimeout": f"{patience_s:g}s"}
        timeout = "300ms" if patience_s is None else f"{patience_s:g}s"
        made = Lab(cluster, service, sync, reported.stdout.strip(), changed, plugin(version), timeout)
        try:
            workloads = [{"name": name, "metrics": metrics} for name, (_, metrics) in KINDS.items()]
            made.ask("PUT", "/v1/inventory", json={"workloads": workloads, "mode": "merge"})
            sync.start()
            made.schedule()
            yield made
        finally:
            sync.stop()
            service.running.stop()


def pod(name: str, kind: str | None = None, cpu: str = "500m", *, asks: bool = True, **more: Any) -> dict[str, Any]:
    """A pod that says which kind it is, and asks; without a kind one that says nothing and does not ask."""
    limits = {"cotenant.io/advised": "1"} if kind and asks else {}
    notes = {"cotenant.io/workload": kind, "cotenant.io/vcpus": str(KINDS[kind][0])} if kind in KINDS else {}
    wanted = {"cpu": cpu, "memory": "1Gi", **limits}
    container = {"name": "c", "image": "none", "resources": {"requests": wanted, "limits": limits}}
    metadata = {"name": name, "annotations": notes | more.pop("annotations", {}), "labels": more.pop("labels", {})}
    return {"metadata": metadata, "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **more}}


def mix(count: int, prefix: str, seed: int) -> dict[str, str]:
    """So many of each kind, in any order: by name, the kind."""
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(count)]
    random.Random(seed).shuffle(kinds)
    return {f"{prefix}-{number:03}": kind for number, kind in enumerate(kinds)}


def oversubscribed(placed: Mapping[str, str], kinds: Mapping[str, str]) -> list[str]:
    """Nodes of which more is asked than they have: straight sums, without Cotenant."""
    asked: dict[str, Counter[str]] = defaultdict(Counter)
    for name, node in placed.items():
        asked[node].update(KINDS[kinds[name]][1])
    return [
        node for node, sums in asked.items() if any(sums[metric] > most * 1.0001 for metric, most in CAPACITY.items())
    ]


def cpu_s(server: object) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid(server)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pid(server: object) -> int:
    assert isinstance(server, Running)
    assert server.process is not None
    return server.process.pid


@contextmanager
def standing_still(server: object) -> Iterator[None]:
    """A process that is stopped, and goes on afterwards."""
    stopped = pid(server)
    os.kill(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(stopped, signal.SIGCONT)


def wait(true: Callable[[], object], within_s: float = 60.0) -> None:
    ends = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends, f"it did not come about in {within_s:g} s"
        time.sleep(0.1)
