"""Where the API of a cluster is and who asks: the ServiceAccount of the pod that we run in, or a kubeconfig."""

from __future__ import annotations

import atexit
import base64
import binascii
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from advisor.inventories.accounts import is_base
from profiler.files import read_secret

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONFIG = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class ClusterAccount:
    """`token_file` is read for every call, for the kubelet replaces it; `certificate` is a client's, with its key.
    `ca` None = the authorities of the system."""

    server: str
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    certificate: tuple[Path, Path] | None = None
    ca: Path | None = None

    def bearer(self) -> str:
        """The token now, empty = none. ValueError where its file cannot be read."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise ValueError(f"the token {self.token_file} cannot be read: {error}") from None


def account(
    context: str | None = None,
    environment: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccount:
    """Inside a pod its ServiceAccount, unless a context or KUBECONFIG is named; else the kubeconfig.

    ValueError says what is missing. Of a kubeconfig server, certificate-authority, token, tokenFile and client
    certificates are taken; programs that would have to be run for a token are not.
    """
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if host and context is None and not environment.get("KUBECONFIG"):
        where = f"[{host}]" if ":" in host else host
        ca, token_file = service_account / "ca.crt", service_account / "token"
        return ClusterAccount(f"https://{where}:{port}", token_file=token_file, ca=ca)
    path = Path(environment.get("KUBECONFIG") or CONFIG).expanduser()
    if not path.is_file():
        raise ValueError(f"there is no kubeconfig {path}; name one by KUBECONFIG, or run in a pod of the cluster")
    return _of_config(read_secret(path), path, context)


def _of_config(text: str, path: Path, context: str | None) -> ClusterAccount:
    try:
        config = yaml.safe_load(text)
        name = context or config.get("current-context")
        chosen = _named(config, "context", name, path)
        cluster = _named(config, "cluster", chosen.get("cluster"), path)
        user = _named(config, "user", chosen["user"], path) if chosen.get("user") else {}
    except (yaml.YAMLError, AttributeError, TypeError, KeyError):  # whose messages may show a secret
        raise ValueError(f"{path} is no kubeconfig") from None
    server = str(cluster.get("server") or "").rstrip("/")
    if not is_base(server):
        raise ValueError(f"{path}: the server of context {name} is not an address like https://10.0.0.1:6443")
    if cluster.get("insecure-skip-tls-verify"):
        raise ValueError(f"{path}: insecure-skip-tls-verify is not taken; give certificate-authority instead")
    if (user.get("exec") or user.get("auth-provider")) and not user.get("token"):
        raise ValueError(
            f"{path}: the user of context {name} runs a program for its token, which is not done here; give a token, "
            "or point a kubeconfig at `kubectl proxy`"
        )
    token_file = path.parent / user["tokenFile"] if user.get("tokenFile") else None
    certificate = _file(user, "client-certificate", path), _file(user, "client-key", path)
    both = (certificate[0], certificate[1]) if certificate[0] and certificate[1] else None
    return ClusterAccount(
        server, str(user.get("token") or ""), token_file, both, _file(cluster, "certificate-authority", path)
    )


def _named(config: Mapping[str, Any], kind: str, name: object, path: Path) -> Mapping[str, Any]:
    for entry in config.get(f"{kind}s") or ():
        if entry.get("name") == name:
            value: Mapping[str, Any] = entry.get(kind) or {}
            return value
    raise ValueError(f"{path} has no {kind} {str(name)[:60]!r}")


def _file(entry: Mapping[str, Any], name: str, path: Path) -> Path | None:
    """A file that is named, or a private one with the data that stands there, until the process ends."""
    data = entry.get(f"{name}-data")
    if not data:
        return path.parent / entry[name] if entry.get(name) else None
    try:
        content = base64.b64decode(str(data), validate=True)
    except binascii.Error:
        raise ValueError(f"{path}: {name}-data is not base64") from None
    with tempfile.NamedTemporaryFile(prefix="cotenant-", suffix=".pem", delete=False) as file:
        file.write(content)  # mode 600; requests takes files only
    private = Path(file.name)
    atexit.register(private.unlink, missing_ok=True)
    return private
