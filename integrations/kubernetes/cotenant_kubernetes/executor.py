"""Guests of KubeVirt are moved by the mover of `cotenant migrate`, and nodes are cordoned, by the Kubernetes API."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import quote

from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.changes.migrations import CloudExecutor, Place, Waiting
from advisor.domain import Change, Host, Instance
from advisor.errors import InvalidInput
from advisor.inventories.calls import CallError
from advisor.render.names import GUEST
from cotenant_kubernetes import commands as kubevirt
from cotenant_kubernetes.calls import ClusterAccount, KubernetesApi, account
from cotenant_kubernetes.mover import GUESTS, NODES, KubernetesMover, guest_stays, within

_ABSENT = 404


class Kubernetes(CloudExecutor):
    """One cluster, with the account of `cotenant sync kubernetes`."""

    def __init__(self, waiting: Waiting, asking: Callable[[], ClusterAccount] | None = None) -> None:
        super().__init__(waiting)
        self._account = asking or cache(lambda: account(None))
        self._mover = KubernetesMover(asking=self._account, patience_s=waiting.patience_s)

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        command = kubevirt.migrate(instance, source, target)
        if not command.argv:
            raise InvalidInput(command.note, field="steps")
        return Meaning("move", instance.labels[GUEST], {HOST: source.id}, {HOST: target.id})

    def closing(self, host: Host) -> Meaning:
        commands = (("kubectl", verb, host.id) for verb in ("cordon", "uncordon"))
        return Meaning("host", host.id, {OPEN: YES}, {OPEN: NO}, *commands)

    def is_open(self, change: Change) -> bool:
        with _speaking(change):
            return not (self._api().one(_node(change)).get("spec") or {}).get("unschedulable")

    def set_open(self, change: Change, is_open: bool) -> None:
        with _speaking(change):  # null takes the field out, as `kubectl uncordon` does
            self._api().send("PATCH", _node(change), {"spec": {"unschedulable": None if is_open else True}})

    def place(self, change: Change) -> Place:
        with _speaking(change):
            guest = self._guest(change)
        status: Mapping[str, Any] = guest.get("status") or {}
        state = status.get("migrationState") or {}
        moves = bool(state) and not (state.get("completed") or state.get("failed"))
        return Place(str(status.get("nodeName") or ""), moves, "" if moves else guest_stays(guest))

    def begin(self, change: Change, there: str) -> None:
        """The mover waits until the guest is there, and calls a migration off that is not."""
        here = next(host for host in (change.before[HOST], change.after[HOST]) if host != there)
        hosts = [Host(name, "kvm", pcpus=1, memory_mb=1) for name in (here, there)]
        guest = Instance(change.instance, host=here, labels={"source": "kubernetes", GUEST: change.target})
        with _speaking(change):
            labels = (self._api().one(f"{NODES}/{quote(there, safe='')}").get("metadata") or {}).get("labels") or {}
        name = labels.get(kubevirt.HOSTNAME, there)
        target = Host(there, "kvm", pcpus=1, memory_mb=1, labels={f"node.{kubevirt.HOSTNAME}": name})
        # Each try is a migration of its own: that none is under way was asked before.
        outcome = self._mover.move(guest, hosts[0], target, secrets.token_hex(8), threading.Event())
        if outcome.became != "done":
            raise ChangeFailed(f"{change.subject} was not moved: {outcome.sentence}")

    def _guest(self, change: Change) -> Mapping[str, Any]:
        namespace, _, name = change.target.partition("/")
        return self._api().one(within(GUESTS, namespace, name))

    def _api(self) -> KubernetesApi:
        return KubernetesApi(self._account())


@contextmanager
def _speaking(change: Change) -> Iterator[None]:
    try:
        yield
    except (CallError, ValueError) as error:
        if isinstance(error, CallError) and error.status == _ABSENT:
            raise Gone(f"{change.subject} ({change.target}) is not in the cluster any more") from error
        raise ChangeFailed(f"Kubernetes: {error}"[:400]) from error


def _node(change: Change) -> str:
    return f"{NODES}/{quote(change.target, safe='')}"


def _open(reach: Reach) -> Executor:
    return Kubernetes(Waiting(reach.move_s))


EXECUTOR = ExecutorKind(_open, moves=("kubernetes",), closes=("kubernetes",))
