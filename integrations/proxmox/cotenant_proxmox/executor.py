"""VMs of Proxmox VE are live-migrated, and their weights, caps and affinity written, through its REST API.

Calls by the API viewer (pve-manager) and qemu-server's sources (PVE/API2/Qemu.pm), versions 8 and 9; no Proxmox was
run. A migration is a task of the node that has the VM, known by its UPID; while it goes on the VM is locked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from advisor.changes.controller import HOST, ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach, cloud_of
from advisor.changes.migrations import CloudExecutor, Place, Waiting
from advisor.domain import Change, ChangeKind, Command, Host, Instance
from advisor.errors import InvalidInput
from advisor.inventories.calls import CallError
from cotenant_proxmox import commands
from cotenant_proxmox.calls import ProxmoxApi, account
from cotenant_proxmox.source import resources
from profiler.observed import parse_cpus

_KINDS: Mapping[str, ChangeKind] = {"cpuunits": "weight", "cpulimit": "cap", "affinity": "pin"}
_TEXT = re.compile(r"[0-9.,\-]{0,200}\Z")
_PATH = re.compile(r"/nodes/[A-Za-z0-9-]+/((?:qemu|lxc)/[1-9]\d{0,8})/config\Z")
_DEFAULTS = {"cpuunits": "100", "cpulimit": "0", "affinity": ""}  # qm.conf(5), on hosts with control groups version 2


class Proxmox(CloudExecutor):
    """The clusters of ~/.proxmox.ini by name, or the one of the environment."""

    def __init__(self, waiting: Waiting, open_api: Callable[[str | None], ProxmoxApi] | None = None) -> None:
        super().__init__(waiting)
        self._open = open_api or (lambda cloud: ProxmoxApi(account(cloud)))
        self._apis: dict[str, ProxmoxApi] = {}
        self._tasks: dict[str, tuple[str, str]] = {}  # node and UPID of the last migration that this process began

    def meaning(self, host: Host, command: Command) -> Meaning:
        after, before = _parsed(command.argv), _parsed(command.undo)
        if after is None or before is None or after[:2] != before[:2]:
            return super().meaning(host, command)
        guest, name, text = after
        return Meaning(_KINDS[name], f"{cloud_of(host)}:{guest}", {name: before[2]}, {name: text})

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        command = commands.migrate(instance, source, target)
        guest = instance.labels.get("guest", "")
        if not command.argv or not guest.startswith("qemu/"):
            why = command.note or "a container is stopped and started on the way"
            raise InvalidInput(f"{instance.id} is not moved live: {why}", field="steps")
        return Meaning("move", f"{cloud_of(source)}:{guest}", {HOST: source.id}, {HOST: target.id})

    def read(self, change: Change) -> Mapping[str, str]:
        if change.kind == "move":
            return super().read(change)
        with _speaking():
            config = self._api(change).get(f"{self._path(change)}/config")
        return {name: str(config.get(name, "")) for name in change.after}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        if change.kind == "move":
            super().write(change, values)
            return
        wrong = [name for name, text in values.items() if name not in _KINDS or not _TEXT.match(text)]
        if wrong:
            raise InvalidInput(f"{wrong[0][:40]!r} is no setting that is changed here", field="command")
        fields = {name: text for name, text in values.items() if text}
        if len(fields) < len(values):
            fields["delete"] = ",".join(name for name, text in values.items() if not text)
        with _speaking():
            self._api(change).send("PUT", f"{self._path(change)}/config", fields)

    def same(self, setting: str, one: str, other: str) -> bool:
        first, second = (text or _DEFAULTS.get(setting, "") for text in (one, other))
        if setting == "affinity" and first and second:
            return parse_cpus(first) == parse_cpus(second)
        if setting == "cpulimit":
            return float(first) == float(second)
        return first == second

    def place(self, change: Change) -> Place:
        with _speaking():
            api, node = self._api(change), self._node(change)
            status = api.get(f"/nodes/{node}/{_guest(change)}/status/current")
            moves = str(status.get("lock") or "") == "migrate" or self._works(api, change)
            node = node if moves else self._node(change)  # it may have come there between the two questions
        why_not = "" if status.get("status") == "running" else f"it is {status.get('status')}"
        if not moves and status.get("lock"):
            why_not = f"it is locked: {status['lock']}"
        return Place(self._host(change, node), moves, "" if moves else why_not)

    def begin(self, change: Change, there: str) -> None:
        with _speaking():
            node = self._node(change)
            fields = {"target": there.rpartition(":")[2], "online": "1"}
            upid = self._api(change).send("POST", f"/nodes/{node}/{_guest(change)}/migrate", fields)
        self._tasks[change.target] = (node, str(upid))

    def call_off(self, change: Change) -> None:
        if change.target in self._tasks:
            node, upid = self._tasks[change.target]
            with _speaking():
                self._api(change).send("DELETE", f"/nodes/{node}/tasks/{quote(upid, safe='')}")

    def failure(self, change: Change) -> str:
        if change.target not in self._tasks:
            return ""
        with _speaking():
            ended = self._task(self._api(change), change).get("exitstatus")
        return "" if ended in (None, "OK") else f"Proxmox says: {str(ended)[:200]}"

    def _works(self, api: ProxmoxApi, change: Change) -> bool:
        return change.target in self._tasks and self._task(api, change).get("status") == "running"

    def _task(self, api: ProxmoxApi, change: Change) -> Mapping[str, Any]:
        node, upid = self._tasks[change.target]
        status: Mapping[str, Any] = api.get(f"/nodes/{node}/tasks/{quote(upid, safe='')}/status")
        return status

    def _path(self, change: Change) -> str:
        return f"/nodes/{self._node(change)}/{_guest(change)}"

    def _node(self, change: Change) -> str:
        """The node that has the guest now; Gone."""
        for row in resources(self._api(change)):
            if f"{row.get('type')}/{row.get('vmid')}" == _guest(change):
                return str(row["node"])
        raise Gone(f"{change.subject} ({_guest(change)}) is not in the cluster any more")

    def _api(self, change: Change) -> ProxmoxApi:
        cloud = change.target.rpartition(":")[0]
        if cloud not in self._apis:
            self._apis[cloud] = self._open(cloud or None)
        return self._apis[cloud]

    def _host(self, change: Change, node: str) -> str:
        cloud = change.target.rpartition(":")[0]
        return f"{cloud}:{node}" if cloud else node


@contextmanager
def _speaking() -> Iterator[None]:
    try:
        yield
    except (CallError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ChangeFailed(f"Proxmox VE: {error}"[:400]) from error


def _guest(change: Change) -> str:
    return change.target.rpartition(":")[2]


def _parsed(argv: tuple[str, ...]) -> tuple[str, str, str] | None:
    """Guest, setting and text of `pvesh set /nodes/NODE/GUEST/config --NAME TEXT`; None for other commands."""
    if len(argv) != 5 or argv[:2] != (commands.TOOL, "set") or (path := _PATH.match(argv[2])) is None:
        return None
    name, text = argv[3].removeprefix("--"), argv[4]
    name, text = (text, "") if name == "delete" else (name, text)
    return (path[1], name, text) if name in _KINDS and _TEXT.match(text) else None


def _open(reach: Reach) -> Executor:
    return Proxmox(Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, tools=(commands.TOOL,), moves=("proxmox",))
