"""A real control plane on loopback: etcd, kube-apiserver with RBAC, kube-scheduler; no kubelet runs on its nodes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import yaml

from tests.servers.running import Running, free_port

ADMIN = "admin-token"
NAMESPACE = "default"
INTEGRATION = Path(__file__).parents[2] / "integrations" / "kubernetes"
PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
Row = dict[str, Any]


class ControlPlane:
    """The API is asked as an administrator; `account` makes a kubeconfig of the sync's own ServiceAccount."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._port, self._scheduler_port, self._plugin_port, etcd, peer = (free_port() for _ in range(5))
        self.url = f"https://127.0.0.1:{self._port}"
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {ADMIN}"
        self._session.trust_env = False
        self._session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=16))
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
        self.etcd = Running(
            self._etcd(etcd, peer), lambda: _listens(f"http://127.0.0.1:{etcd}/health"), folder / "etcd.log", drop=False
        )
        self.apiserver = Running(self._apiserver(etcd), self._api_ready, folder / "apiserver.log", drop=False)
        self.scheduler: Running | None = None
        self.plugin: Running | None = None  # the second scheduler

    def _etcd(self, port: int, peer: int) -> list[str]:
        client, other = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        return [
            str(self._programs / "etcd"), "--data-dir", str(self.folder / "etcd"), "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", other,
            "--initial-advertise-peer-urls", other, "--initial-cluster", f"default={other}",
        ]  # fmt: skip

    def _apiserver(self, etcd: int) -> list[str]:
        tokens, key = self.certificates / "tokens.csv", self.certificates / "accounts.key"
        tokens.write_text(f"{ADMIN},admin,admin,system:masters\n")
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        return [
            str(self._programs / "kube-apiserver"), "--etcd-servers", f"http://127.0.0.1:{etcd}",
            "--bind-address", "127.0.0.1", "--secure-port", str(self._port), "--advertise-address", "127.0.0.1",
            "--external-hostname", "127.0.0.1", "--cert-dir", str(self.certificates), "--token-auth-file", str(tokens),
            "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
            "--endpoint-reconciler-type", "none",
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", str(key),
            "--service-account-signing-key-file", str(key),
            "--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition",
        ]  # fmt: skip

    def _api_ready(self) -> bool:
        certificate = self.certificates / "apiserver.crt"  # signed by itself
        self._session.verify = str(certificate)
        try:
            return certificate.is_file() and self._session.get(f"{self.url}/readyz", timeout=5).ok
        except (requests.RequestException, OSError):
            return False

    def call(self, method: str, path: str, **more: Any) -> Row:
        answer = self._session.request(method, self.url + path, timeout=60, **more)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text[:400]}"
        found: Row = answer.json()
        return found

    def try_call(self, method: str, path: str, **more: Any) -> Row:
        """The answer, or the Status that says why there is none; of a kind that is not served yet, its text."""
        answer = self._session.request(method, self.url + path, timeout=60, **more)
        if not answer.headers.get("Content-Type", "").startswith("application/json"):
            return {"reason": answer.text}
        found: Row = answer.json()
        return found

    def kubeconfig(self, token: str, name: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.certificates / "apiserver.crt")}
        config = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def account(self) -> Path:
        """Apply the manifest's namespace, account and role, and ask for a token as a pod would get it."""
        for row in yaml.safe_load_all((INTEGRATION / "cotenant.yaml").read_text()):
            if row["kind"] in _COLLECTIONS:
                self._session.post(self.url + _COLLECTIONS[row["kind"]], json=row, timeout=60)
        path = "/api/v1/namespaces/cotenant/serviceaccounts/cotenant/token"
        reported = self.call("POST", path, json={"spec": {"expirationSeconds": 3600}})
        return self.kubeconfig(reported["status"]["token"], "sync.kubeconfig")

    def schedule(self, cotenant: str | None, *, profiles: list[Row] | None = None, **changed: Any) -> None:
        """Run kube-scheduler with our own extender entry, changed in these keys, or None = plainly."""
        if self.scheduler is not None:
            self.scheduler.stop()
        config: Row = yaml.safe_load((INTEGRATION / "scheduler-config.yaml").read_text())
        if cotenant is None:
            del config["extenders"]
        else:
            config["extenders"][0] |= {"urlPrefix": f"{cotenant}/kubernetes", **changed}
        config |= {"leaderElection": {"leaderElect": False}, "podMaxBackoffSeconds": 2}
        config |= {"profiles": profiles} if profiles else {}
        self.scheduler = self._scheduling("scheduler", self._programs / "kube-scheduler", config, self._scheduler_port)

    def schedule_with_plugin(self, program: Path, service: str, token: Path, **changed: Any) -> None:
        """Run the second scheduler as the chart configures it, changed in these arguments of the plug-in."""
        if self.plugin is not None:
            self.plugin.stop()
        rows = yaml.safe_load_all((INTEGRATION / "cotenant.yaml").read_text())
        (shipped,) = [one["data"] for one in rows if one["kind"] == "ConfigMap"]
        config: Row = yaml.safe_load(shipped["scheduler.yaml"]) | {"leaderElection": {"leaderElect": False}}
        config["podMaxBackoffSeconds"] = 2
        config["profiles"][0]["pluginConfig"][0]["args"] |= {"url": service, "tokenFile": str(token), **changed}
        self.plugin = self._scheduling("plugin", program, config, self._plugin_port)

    def _scheduling(self, name: str, program: Path, config: Row, port: int) -> Running:
        admin = str(self.kubeconfig(ADMIN, "admin.kubeconfig"))
        config["clientConnection"] = {"kubeconfig": admin, "qps": 2000, "burst": 2000}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(config))
        argv = [
            str(program), "--config", str(path), "--bind-address", "127.0.0.1",
            "--secure-port", str(port), "--authentication-kubeconfig", admin,
            "--authorization-kubeconfig", admin, "--authorization-always-allow-paths", "/readyz,/metrics",
        ]  # fmt: skip
        made = Running(argv, lambda: _ready(port), self.folder / f"{name}.log", drop=False)
        made.start()
        return made

    def metric(self, name: str, *, plugin: bool = False) -> float:
        """The sum of kube-scheduler's series of this name, or of the second scheduler's."""
        port = self._plugin_port if plugin else self._scheduler_port
        text = requests.get(f"https://127.0.0.1:{port}/metrics", verify=False, timeout=60).text
        return sum(float(one) for one in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))

    def nodes(self, names: Iterable[str], cpu: str = "64", memory: str = "256Gi") -> None:
        size = {"cpu": cpu, "memory": memory, "pods": "250"}
        ready = [{"type": "Ready", "status": "True", "reason": "Made", "message": ""}]

        def one(name: str) -> None:
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            self.call("POST", "/api/v1/nodes", json={"metadata": metadata})
            status = {"status": {"capacity": size, "allocatable": size, "conditions": ready}}
            self.call("PATCH", f"/api/v1/nodes/{name}/status", data=json.dumps(status), headers=PATCH)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, names))

    def create(self, pods: Iterable[Row]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: self.call("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", json=one), pods))

    def pods(self) -> list[Row]:
        items: list[Row] = self.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        return items

    def bound(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["spec"]["nodeName"] for one in self.pods() if one["spec"].get("nodeName")}

    def wait_bound(self, names: Iterable[str], within_s: float = 240.0) -> Mapping[str, str]:
        wanted, ends = set(names), time.monotonic() + within_s
        while True:
            found = {name: node for name, node in self.bound().items() if name in wanted}
            if len(found) == len(wanted) or time.monotonic() > ends:
                assert set(found) == wanted, f"not bound after {within_s:g} s: {sorted(wanted - set(found))[:5]}"
                return found
            time.sleep(0.2)

    def seconds_to_bind(self, row: Row, within_s: float = 120.0) -> float:
        """Create a pod, and tell how long it then took until it was bound."""
        begun, name = time.monotonic(), row["metadata"]["name"]
        self.create([row])
        while not self.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")["spec"].get("nodeName"):
            assert time.monotonic() < begun + within_s, f"{name} is not bound after {within_s:g} s"
            time.sleep(0.01)
        return time.monotonic() - begun

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", params={"gracePeriodSeconds": "0"})

    def wipe(self, *, nodes: bool = False) -> None:
        self.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods", params={"gracePeriodSeconds": "0"})
        while self.pods():
            time.sleep(0.1)
        self.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/events")
        if nodes:
            self.call("DELETE", "/api/v1/nodes")

    def events(self, reason: str) -> list[Row]:
        items = self.call("GET", f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return [one for one in items if one.get("reason") == reason]

    def priority(self, name: str, value: int) -> None:
        row = {"metadata": {"name": name}, "value": value}
        self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", json=row)


_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/cotenant/serviceaccounts",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
}


def _ready(port: int) -> bool:
    """Whether a scheduler is; its certificate is its own and in memory only, and nothing secret is sent."""
    try:
        return bool(requests.get(f"https://127.0.0.1:{port}/readyz", verify=False, timeout=5).ok)
    except requests.RequestException:
        return False


def _listens(url: str) -> bool:
    try:
        return bool(requests.get(url, timeout=5).ok)
    except requests.RequestException:
        return False


@contextmanager
def running(programs: Path, folder: Path) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver, empty."""
    made = ControlPlane(programs, folder)
    try:
        made.etcd.start()
        made.apiserver.start()
        yield made
    finally:
        for one in (made.scheduler, made.plugin, made.apiserver, made.etcd):
            if one is not None:
                one.stop()
