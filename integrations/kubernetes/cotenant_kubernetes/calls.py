"""Calls of the API of Kubernetes, and who asks: the ServiceAccount of the pod that we run in, or a kubeconfig.

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import atexit
import base64
import binascii
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

from advisor.inventories.calls import CallError, first_cause, is_base
from profiler.files import read_secret

# Where the API of a cluster is and who asks: the ServiceAccount of the pod that we run in, or a kubeconfig.

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


Row = Mapping[str, Any]
PAGE = 500  # objects: about 5 MB of pods
CONNECT_S = 10.0
LIST_S = 60.0
WATCH_S = 300  # after which the server ends a watch, and it is asked for again
SILENCE_S = 150.0  # of a watch: bookmarks come about once a minute
GONE, NOT_FOUND = 410, 404


class KubernetesApi:
    """Calls of one account; each thread has one of its own."""

    def __init__(self, asking: ClusterAccount) -> None:
        self._asking = asking
        self._session = requests.Session()
        self._session.auth = self._sign  # as `auth`, so that a .netrc cannot replace it
        if asking.certificate:
            self._session.cert = tuple(map(str, asking.certificate))

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._asking.bearer()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def pages(self, path: str, selector: str = "", labels: str = "") -> Iterator[tuple[str, list[Row]]]:
        """The pages of a list, each with the resource version of all of them; CallError."""
        next_page = ""
        while True:
            query = {"limit": str(PAGE), "continue": next_page, "fieldSelector": selector, "labelSelector": labels}
            with self._get(path, query, LIST_S) as answer:
                page = _json(path, answer.content)
            metadata = page.get("metadata") or {}
            yield str(metadata.get("resourceVersion") or ""), page.get("items") or []
            next_page = str(metadata.get("continue") or "")
            if not next_page:
                return

    def everything(self, path: str, *, labels: str = "", absent_is_empty: bool = False) -> list[Row]:
        """All objects of a list; `absent_is_empty` = none where that kind is not installed. CallError."""
        try:
            return [row for _, rows in self.pages(path, labels=labels) for row in rows]
        except CallError as error:
            if absent_is_empty and error.status == NOT_FOUND:
                return []
            raise

    def one(self, path: str) -> Row:
        """One object; CallError."""
        with self._get(path, {}, LIST_S) as answer:
            return _json(path, answer.content)

    def send(self, method: str, path: str, body: Row | None = None) -> Row:
        """Make (POST), change (PATCH, a strategic merge) or delete (DELETE) an object; CallError."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        with self._call(method, path, {}, LIST_S, None if body is None else json.dumps(body).encode(), kind) as answer:
            return _json(path, answer.content)

    def events(self, path: str, version: str, selector: str = "") -> Iterator[tuple[str, Row]]:
        """Type and object of each event since a resource version, until the server ends it; CallError, with
        status GONE where that version is too old."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(WATCH_S), "fieldSelector": selector}
        with self._get(path, query, SILENCE_S) as answer:
            yield "OPEN", {}
            try:
                for line in answer.iter_lines(1 << 16):
                    if line:
                        yield _event(path, line)
            except (requests.RequestException, OSError) as error:
                raise CallError(f"{path}: the watch broke: {first_cause(error)}"[:200]) from None

    def _get(self, path: str, query: Mapping[str, str], silence_s: float) -> AbstractContextManager[requests.Response]:
        return self._call("GET", path, query, silence_s)

    @contextmanager
    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        silence_s: float,
        body: bytes | None = None,
        kind: str = "",
    ) -> Iterator[requests.Response]:
        filled = {name: value for name, value in query.items() if value}
        try:
            answer = self._session.request(
                method,
                self._asking.server + path,
                params=filled,
                data=body,
                headers={"Content-Type": kind} if kind else None,
                timeout=(CONNECT_S, silence_s),
                # Not the session's: REQUESTS_CA_BUNDLE would replace that.
                verify=str(self._asking.ca) if self._asking.ca else True,
                allow_redirects=False,
                stream="watch" in filled,
            )
        except (requests.RequestException, OSError, ValueError) as error:
            raise CallError(f"{path}: no answer: {first_cause(error)}"[:200]) from None
        with answer:
            if not 200 <= answer.status_code < 300:
                raise CallError(f"{path}: HTTP {answer.status_code} {_message(answer)}"[:300], answer.status_code)
            yield answer


def _event(path: str, line: bytes) -> tuple[str, Row]:
    event = _json(path, line)
    kind, row = str(event.get("type")), event.get("object") or {}
    if kind == "ERROR":
        code = row.get("code")
        raise CallError(f"{path}: the watch ended: {str(row.get('message'))[:200]}", code if type(code) is int else 0)
    return kind, row


def _json(path: str, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CallError(f"{path}: an answer that is none of Kubernetes'")
    return document


def _message(answer: requests.Response) -> str:
    """The message of a Status, else the reason."""
    try:
        text = str(json.loads(answer.content[: 1 << 16])["message"])
    except (ValueError, KeyError, TypeError, RecursionError, requests.RequestException):
        text = str(answer.reason)
    return "".join(char if char.isprintable() else " " for char in text)
