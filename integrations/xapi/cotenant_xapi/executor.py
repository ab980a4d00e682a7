"""VMs of a pool of XCP-ng or XenServer are live-migrated, and hosts disabled, through XAPI.

Calls by the Xen API reference (VM.pool_migrate, host.disable, task); no XCP-ng or XenServer was run. A migration is a
task; while it goes on, it stands in the VM's current operations. The role `pool-operator` is needed.
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
from advisor.errors import InvalidInput
from advisor.inventories.calls import CallError
from cotenant_xapi.calls import XapiSession, account
from cotenant_xapi.facts import name_of

_MIGRATES = frozenset({"pool_migrate", "migrate_send"})


class Xapi(CloudExecutor):
    """The pools of ~/.xenserver.ini by name, or the one of the environment; a session for each question."""

    def __init__(self, waiting: Waiting, open_session: Callable[[str | None], XapiSession] | None = None) -> None:
        super().__init__(waiting)
        self._open = open_session or (lambda cloud: XapiSession(account(cloud)))
        self._tasks: dict[str, str] = {}  # references of the last migrations that this process began

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        uuid = instance.labels.get("uuid")
        if not uuid:
            raise InvalidInput(f"{instance.id} has no label uuid, by which the pool knows it", field="steps")
        command, undo = (
            ("xe", "vm-migrate", f"uuid={uuid}", f"host={host.labels.get('name', host.id)}", "live=true")
            for host in (target, source)
        )
        return Meaning("move", f"{cloud_of(source)}:{uuid}", {HOST: source.id}, {HOST: target.id}, command, undo)

    def closing(self, host: Host) -> Meaning:
        command, undo = (
            ("xe", verb, f"host={host.labels.get('name', host.id)}") for verb in ("host-disable", "host-enable")
        )
        return Meaning("host", f"{cloud_of(host)}:{host.id}", {OPEN: YES}, {OPEN: NO}, command, undo)

    def is_open(self, change: Change) -> bool:
        with self._session(change) as session:
            return _hosts(session)[_name(change)][1].get("enabled") is True

    def set_open(self, change: Change, is_open: bool) -> None:
        with self._session(change) as session:
            session.call("host.enable" if is_open else "host.disable", _hosts(session)[_name(change)][0])

    def place(self, change: Change) -> Place:
        with self._session(change) as session:
            works = self._works(session, change)  # first: what ends now is in the record that is read after it
            vm = session.call("VM.get_record", _vm(session, change))
            names = {reference: name for name, (reference, _) in _hosts(session).items()}
            moves = works or not _MIGRATES.isdisjoint((vm.get("current_operations") or {}).values())
            host = names.get(str(vm.get("resident_on")))
        if host is None:
            raise Gone(f"{change.subject} is {str(vm.get('power_state')).lower()}, and on no host")
        allowed, state = vm.get("allowed_operations"), str(vm.get("power_state"))
        why_not = f"it is {state.lower()}" if state not in ("Running", "Paused") else ""
        if not why_not and isinstance(allowed, list) and "pool_migrate" not in allowed:
            why_not = "XAPI does not let it move now"
        return Place(host, moves, "" if moves else why_not)

    def begin(self, change: Change, there: str) -> None:
        with self._session(change) as session:
            arguments = _vm(session, change), _hosts(session)[there][0], {"live": "true"}
            self._tasks[change.target] = str(session.call("Async.VM.pool_migrate", *arguments))

    def call_off(self, change: Change) -> None:
        if change.target in self._tasks:
            with self._session(change) as session:
                session.call("task.cancel", self._tasks[change.target])

    def failure(self, change: Change) -> str:
        if change.target not in self._tasks:
            return ""
        with self._session(change) as session:
            words = session.call("task.get_error_info", self._tasks[change.target])
        return f"XAPI says: {' '.join(map(str, words))[:200]}" if words else ""

    def _works(self, session: XapiSession, change: Change) -> bool:
        if change.target not in self._tasks:
            return False
        try:
            return session.call("task.get_status", self._tasks[change.target]) in ("pending", "cancelling")
        except CallError as error:
            if "HANDLE_INVALID" in str(error):  # XAPI forgets tasks that are over
                return False
            raise

    @contextmanager
    def _session(self, change: Change) -> Iterator[XapiSession]:
        try:
            with self._open(change.target.rpartition(":")[0] or None) as session:
                yield session
        except CallError as error:
            if "UUID_INVALID" in str(error) or "HANDLE_INVALID VM" in str(error):
                raise Gone(f"the pool has no {change.subject} any more: {error}"[:300]) from error
            raise ChangeFailed(f"XAPI: {error}"[:400]) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ChangeFailed(f"XAPI answers otherwise than documented: {error}"[:300]) from error


def _vm(session: XapiSession, change: Change) -> str:
    return str(session.call("VM.get_by_uuid", _name(change)))


def _hosts(session: XapiSession) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
    """Reference and record of each host, by the id that a sync gives it."""
    found = session.records("host").items()
    return {name_of(record, "hostname", "name_label", "uuid"): (reference, record) for reference, record in found}


def _name(change: Change) -> str:
    return change.target.rpartition(":")[2]


def _open(reach: Reach) -> Executor:
    return Xapi(Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, moves=("xapi",), closes=("xapi",))
