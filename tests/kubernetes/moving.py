"""`cotenant migrate kubernetes` as the chart runs it, and the paths of what it moves."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.control_plane import INTEGRATION, NAMESPACE, ControlPlane, Row
from tests.kubernetes.lab import Lab
from tests.servers.service import COTENANT

HELM = Path(__file__).parents[2] / "var" / "tools" / "usr" / "bin" / "helm"
GROUP = "kubevirt.io"
GUESTS, MIGRATIONS = "virtualmachineinstances", "virtualmachineinstancemigrations"


def rendered(*values: str) -> list[Row]:
    if not HELM.is_file():
        pytest.skip("there is no helm: make scheduler-plugin builds it with Go")
    chosen = [word for value in values for word in ("--set", value)]
    argv = [str(HELM), "template", "cotenant", str(INTEGRATION / "chart"), "--namespace", "cotenant", *chosen]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return [row for row in yaml.safe_load_all(done.stdout) if row]


def collection(cluster: ControlPlane, row: Row) -> str:
    """The path that such an object is posted to, as the API itself names it."""
    version = row["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (found,) = [
        one for one in cluster.call("GET", root)["resources"] if one["kind"] == row["kind"] and "/" not in one["name"]
    ]
    within = f"/namespaces/{row['metadata']['namespace']}" if found["namespaced"] else ""
    return f"{root}{within}/{found['name']}"


def within(plural: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{plural}"
    return f"{path}/{name}" if name else path


def mover(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as the ServiceAccount that the chart makes for it."""
    for row in rendered("mover.enabled=true", "mover.apply=true"):
        if row["metadata"]["name"] == "cotenant-mover" and row["kind"] != "Deployment":
            lab.cluster.try_call("POST", collection(lab.cluster, row), json=row)
    path = "/api/v1/namespaces/cotenant/serviceaccounts/cotenant-mover/token"
    reported = lab.cluster.call("POST", path, json={"spec": {"expirationSeconds": 3600}})
    config = lab.cluster.kubeconfig(reported["status"]["token"], "mover.kubeconfig")
    own = {"KUBECONFIG": str(config), "COTENANT_TOKEN": lab.token}
    argv = [str(COTENANT), "migrate", "kubernetes", "--server", lab.service.url, "--json", *words]
    return subprocess.run(argv, env={**os.environ, **own}, capture_output=True, text=True, timeout=300, check=False)
