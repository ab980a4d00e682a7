"""Servers of Nova are live-migrated, and compute services disabled, through openstacksdk as an administrator.

Nova answers that it will try (202), so what becomes of it is read from the server: its host, status and task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from advisor.changes.controller import (
    HOST,
    NO,
    OPEN,
    YES,
    ChangeFailed,
    Executor,
    ExecutorKind,
    Gone,
    Meaning,
    Reach,
    cloud_of,
)
from advisor.changes.migrations import CloudExecutor, Place, Waiting
from advisor.domain import Change, Host, Instance
from advisor.render.names import not_an_option

REASON = "cotenant: maintenance"  # what Nova shows of a service that is disabled here
_MOVABLE = frozenset({"ACTIVE", "PAUSED"})
_GONE = frozenset({"DELETED", "SOFT_DELETED"})
_MOVING = "migrating"


class OpenStack(CloudExecutor):
    """The clouds of clouds.yaml, each connected when it is first needed; `connect` gets the name of one, None = by the
    environment."""

    def __init__(self, waiting: Waiting, connect: Callable[[str | None], Any] | None = None) -> None:
        super().__init__(waiting)
        self._connect = connect or _connect
        self._connections: dict[str, Any] = {}

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        server = not_an_option(instance.id, "instance")
        return Meaning("move", _target(instance, server), {HOST: source.id}, {HOST: target.id})

    def closing(self, host: Host) -> Meaning:
        service = ("openstack", "compute", "service", "set")
        commands = ((*service, how, host.id, "nova-compute") for how in ("--disable", "--enable"))
        return Meaning("host", _target(host, host.id), {OPEN: YES}, {OPEN: NO}, *commands)

    def is_open(self, change: Change) -> bool:
        with _speaking():
            return bool(self._hypervisor(change, _name(change)).status == "enabled")

    def set_open(self, change: Change, is_open: bool) -> None:
        with _speaking():
            compute, service = self._compute(change), self._service(change, _name(change))
            if is_open:
                compute.enable_service(service["id"], service["host"], "nova-compute")
            else:
                compute.disable_service(service["id"], service["host"], "nova-compute", REASON)

    def place(self, change: Change) -> Place:
        server = self._server(change)
        status, task = str(server.status), server.task_state
        host = server.hypervisor_hostname or server.compute_host
        if not host:
            raise ChangeFailed(
                f"Nova does not say where {change.subject} is: the account needs an administrator's role"
            )
        moves = status == "MIGRATING" or task == _MOVING
        if moves or (status in _MOVABLE and not task):
            return Place(str(host), moves)
        return Place(str(host), why_not=f"it is {status}" + (f" and its task is {task}" if task else ""))

    def begin(self, change: Change, there: str) -> None:
        with _speaking():
            service = self._service(change, there)
            self._compute(change).live_migrate_server(_name(change), host=service["host"], block_migration="auto")

    def call_off(self, change: Change) -> None:
        with _speaking():
            compute, server = self._compute(change), _name(change)
            for migration in list(compute.server_migrations(server)):
                compute.abort_server_migration(migration, server)

    def failure(self, change: Change) -> str:
        with _speaking():
            actions = self._compute(change).server_actions(_name(change))
            last = next((action for action in actions if action.action == "live-migration"), None)
        return "" if last is None or not last.message else f"Nova says: {str(last.message)[:200]}"

    def _server(self, change: Change) -> Any:
        with _speaking(change):
            server = self._compute(change).get_server(_name(change))
        if server.status in _GONE:
            raise Gone(f"server {_name(change)} was deleted")
        return server

    def _service(self, change: Change, name: str) -> Mapping[str, Any]:
        details = self._hypervisor(change, name).service_details
        return {"id": details["id"], "host": str(details["host"])}

    def _hypervisor(self, change: Change, name: str) -> Any:
        found = next((one for one in self._compute(change).hypervisors(details=True) if one.name == name), None)
        if found is None:
            raise ChangeFailed(f"Nova has no hypervisor {name}")
        return found

    def _compute(self, change: Change) -> Any:
        cloud = change.target.rpartition(":")[0]
        if cloud not in self._connections:
            self._connections[cloud] = self._connect(cloud or None)
        return self._connections[cloud].compute


def _connect(cloud: str | None) -> Any:
    from advisor.plug_ins import require
    from cotenant_openstack.listings import connect

    require("openstack", "executor openstack")
    return connect(cloud)


@contextmanager
def _speaking(server: Change | None = None) -> Iterator[None]:
    """Errors of openstacksdk as those of executors; what is not found is gone where a `server` is asked for."""
    from keystoneauth1.exceptions import ClientException
    from openstack.exceptions import NotFoundException, SDKException

    try:
        yield
    except (SDKException, ClientException, ValueError, KeyError, TypeError, AttributeError) as error:
        # The latter four are what openstacksdk raises over an answer that is not what it should be.
        if server is not None and isinstance(error, NotFoundException):
            raise Gone(f"Nova has no server {_name(server)} any more") from error
        words = " ".join("".join(char if char.isprintable() else " " for char in str(error)).split())
        raise ChangeFailed(f"Nova: {words[:300] or type(error).__name__}") from error


def _target(one: Host | Instance, name: str) -> str:
    return f"{cloud_of(one)}:{name}"


def _name(change: Change) -> str:
    return change.target.rpartition(":")[2]


def _open(reach: Reach) -> Executor:
    return OpenStack(Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, moves=("openstack",), closes=("openstack",))
