"""A stand-in for kube-apiserver: lists in pages, watches with bookmarks and 410, and single objects that are made,
changed, deleted and evicted, after the published API concepts.

https://kubernetes.io/docs/reference/using-api/api-concepts/ ; objects are those of core/v1 and kubevirt.io/v1.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.servers.local_http import QuietHandler, on_loopback

Row = dict[str, Any]
TOKEN = "test-token"
GUESTS = "/apis/kubevirt.io/v1/virtualmachineinstances"
MIGRATIONS, BUDGETS = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations", "/apis/policy/v1/poddisruptionbudgets"
KINDS = {
    "/api/v1/nodes": "nodes", "/api/v1/pods": "pods", GUESTS: "guests", MIGRATIONS: "migrations", BUDGETS: "budgets",
}  # fmt: skip
_WITHIN = re.compile(r"(?P<start>/apis?(?:/[a-z0-9.]+)?/v1)/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)")
_OVER = {"Succeeded", "Failed"}


class ApiServer:
    """What is stored, and every change of it with its resource version."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Row]] = {kind: {} for kind in KINDS.values()}
        self.log: list[tuple[int, str, str, Row]] = []  # version, kind, type, object
        self.version = 1
        self.oldest = 0  # watches from before it are gone
        self.refused: set[str] = set()
        self.absent: set[str] = {"guests"}
        self.asked: list[str] = []
        self.sent: list[tuple[str, str, Row]] = []  # method, path, body
        self.made: Callable[[Row], None] = lambda _: None  # what a controller does about a migration
        self.evicts: Callable[[Row], bool] = lambda _: True  # whether the budgets of a pod allow it
        self.broken = 0  # moves when all watches are to break
        self.changed = threading.Condition()
        self.url = ""

    def put(self, kind: str, row: Row) -> Row:
        """Create or change an object; a pod that is over leaves watches that do not select it."""
        with self.changed:
            self.version += 1
            metadata = row["metadata"]
            metadata["resourceVersion"] = str(self.version)
            name = f"{metadata.get('namespace', '')}/{metadata['name']}"
            former = self.objects[kind].get(name)
            self.objects[kind][name] = row
            reported = "ADDED" if former is None else "MODIFIED"
            if kind == "pods" and not _selected(row):
                reported = "DELETED" if former is not None and _selected(former) else ""
            if reported:
                self.log.append((self.version, kind, reported, json.loads(json.dumps(row))))
            self.changed.notify_all()
        return row

    def delete(self, kind: str, name: str) -> None:
        with self.changed:
            self.version += 1
            row = self.objects[kind].pop(name)
            self.log.append((self.version, kind, "DELETED", row))
            self.changed.notify_all()

    def break_watches(self) -> None:
        """End every connection of a watch in the middle."""
        with self.changed:
            self.broken += 1
            self.changed.notify_all()

    def forget(self) -> None:
        """Watches from before now get 410, those that run an ERROR event; what happened meanwhile only a list shows."""
        with self.changed:
            self.oldest, self.log = self.version, []
            self.changed.notify_all()

    def kubeconfig(self, folder: Path) -> Path:
        """A file by which commands find this server and show TOKEN."""
        config = folder / "config"
        config.touch(mode=0o600)
        config.write_text(
            f"clusters: [{{name: c, cluster: {{server: '{self.url}'}}}}]\n"
            f"users: [{{name: u, user: {{token: {TOKEN}}}}}]\n"
            "contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
        )
        return config


def _place(path: str) -> tuple[str, str]:
    """The path of the kind in all namespaces, and the namespace that it names, empty = none."""
    found = _WITHIN.fullmatch(path)
    return (f"{found['start']}/{found['kind']}", found["namespace"]) if found else (path, "")


def _selected(row: Row) -> bool:
    return (row.get("status") or {}).get("phase") not in _OVER


class _Handler(QuietHandler):
    protocol_version = "HTTP/1.1"
    api: ApiServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        path, namespace = _place(parts.path)
        kind = KINDS.get(path)
        self.api.asked.append(self.path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._status(401, "Unauthorized")
        elif kind is None and (named := self._named(parts.path)) is not None:
            self._json(200, named[2])
        elif kind is None or kind in self.api.absent:
            self._status(404, "the server could not find the requested resource")
        elif kind in self.api.refused:
            self._status(403, f"{kind} is forbidden: User cannot list resource")
        elif query.get("watch") == "1":
            self._watch(kind, int(query["resourceVersion"]))
        else:
            wanted = dict(one.split("=", 1) for one in query.get("labelSelector", "").split(",") if one)
            self._list(kind, int(query["limit"]), int(query.get("continue", "0")), namespace, wanted)

    def do_POST(self) -> None:
        body = self._body()
        pod, _, sub = urlsplit(self.path).path.rpartition("/")
        path, namespace = _place(urlsplit(self.path).path)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._status(401, "Unauthorized")
        elif sub == "eviction" and (named := self._named(pod)) is not None:
            if not self.api.evicts(named[2]):
                self._status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
                return
            self.api.delete(named[0], named[1])
            self._json(201, {"kind": "Status", "status": "Success"})
        elif KINDS.get(path) != "migrations" or namespace != body["metadata"]["namespace"]:
            self._status(404, "the server could not find the requested resource")
        elif "migrations" in self.api.refused:
            self._status(403, "migrations is forbidden: User cannot create resource")
        elif f"{namespace}/{body['metadata']['name']}" in self.api.objects["migrations"]:
            self._status(409, "already exists")
        else:
            self._json(201, self.api.put("migrations", body))
            self.api.made(body)

    def do_DELETE(self) -> None:
        named = self._named(urlsplit(self.path).path)
        self._body()
        if named is None:
            self._status(404, "not found")
            return
        self.api.delete(named[0], named[1])
        self._json(200, {"kind": "Status", "status": "Success"})

    def do_PATCH(self) -> None:
        """A strategic merge, as far as `unschedulable` goes: null takes a field out."""
        named, body = self._named(urlsplit(self.path).path), self._body()
        if named and "unschedulable" in (body.get("spec") or {}):
            kept = {name: value for name, value in named[2].get("spec", {}).items() if name != "unschedulable"}
            given = {name: value for name, value in body["spec"].items() if value is not None}
            self.api.put(named[0], {**named[2], "spec": {**kept, **given}})
        self._json(200, named[2]) if named and body else self._status(404, "not found")

    def _body(self) -> Row:
        text = self.request_body()
        body: Row = json.loads(text) if text else {}
        self.api.sent.append((self.command, urlsplit(self.path).path, body))
        return body

    def _named(self, path: str) -> tuple[str, str, Row] | None:
        """Kind, key and object of a path that names one."""
        start, _, name = path.rpartition("/")
        whole, namespace = _place(start)
        kind, key = KINDS.get(whole), f"{namespace}/{name}"
        found = self.api.objects[kind].get(key) if kind else None
        return None if kind is None or found is None else (kind, key, found)

    def _list(self, kind: str, limit: int, start: int, namespace: str, wanted: dict[str, str]) -> None:
        with self.api.changed:
            rows = [row for row in self.api.objects[kind].values() if kind != "pods" or _selected(row)]
            if namespace:
                rows = [row for row in rows if row["metadata"].get("namespace") == namespace]
            rows = [row for row in rows if wanted.items() <= (row["metadata"].get("labels") or {}).items()]
            more = {"continue": str(start + limit)} if len(rows) > start + limit else {}
            metadata = {"resourceVersion": str(self.api.version), **more}
            self._json(200, {"kind": "List", "metadata": metadata, "items": rows[start : start + limit]})

    def _watch(self, kind: str, version: int) -> None:
        if version < self.api.oldest:
            self._status(410, f"too old resource version: {version}")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        begun = self.api.broken
        while True:
            with self.api.changed:
                if version < self.api.oldest:
                    self._event("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
                    break
                for number, of, reported, row in self.api.log:
                    if number > version and of == kind:
                        self._event(reported, row)
                version = self.api.version
                bookmark = {"metadata": {"resourceVersion": str(version)}}
                self._event("BOOKMARK", bookmark)
                self.api.changed.wait(10.0)
                if self.api.broken != begun:
                    self.close_connection = True
                    return
        self.wfile.write(b"0\r\n\r\n")

    def _event(self, reported: str, row: Row) -> None:
        line = json.dumps({"type": reported, "object": row}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def _status(self, code: int, message: str) -> None:
        self._json(code, {"kind": "Status", "code": code, "message": message})

    def _json(self, code: int, body: Row) -> None:
        self.reply(code, json.dumps(body).encode(), {"Content-Type": "application/json"})


@contextmanager
def serving() -> Iterator[ApiServer]:
    """A server on loopback."""
    api = ApiServer()
    handler = type("Handler", (_Handler,), {"api": api})
    with on_loopback(handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield api
        finally:
            api.break_watches()


def node(name: str, cpu: str = "64", memory: str = "256Gi", **more: Any) -> Row:
    size = {"cpu": cpu, "memory": memory, "pods": "110", **more.pop("resources", {})}
    conditions = [{"type": "Ready", "status": more.pop("ready", "True")}]
    return {
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a", **more.pop("labels", {})}},
        "spec": more,
        "status": {"capacity": size, "allocatable": size, "conditions": conditions},
    }


def pod(name: str, on: str | None = None, **more: Any) -> Row:
    """One container of half a CPU and 1 GiB; `more` are fields of its metadata, but for `spec` and `phase`."""
    container = {"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    spec = {"containers": [container], **({"nodeName": on} if on else {}), **more.pop("spec", {})}
    status = {"phase": more.pop("phase", "Running" if on else "Pending")}
    metadata = {"name": name, "namespace": "prod", "uid": f"uid-{name}", "creationTimestamp": "2026-11-26T09:00:00Z"}
    return {"metadata": {**metadata, **more}, "spec": spec, "status": status}


def launcher(name: str, guest: str, on: str | None, *, target: bool = False, **more: Any) -> Row:
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": guest}
    labels |= {"kubevirt.io/migrationJobUID": "job-1"} if target else {}
    return pod(name, on, labels=labels, **more)


def guest(uid: str, on: str | None, cores: int = 4) -> Row:
    cpu = {"sockets": 1, "cores": cores, "threads": 1}
    status = {"phase": "Running", **({"nodeName": on} if on else {})}
    metadata = {"name": f"vm-{uid}", "namespace": "prod", "uid": uid}
    return {"metadata": metadata, "spec": {"domain": {"cpu": cpu}}, "status": status}
