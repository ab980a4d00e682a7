"""Moves KubeVirt's guests to named nodes, and evicts pods from nodes that they should leave, one at a time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import quote

from advisor.changes.movers import MoveOutcome, Standing, SystemFailed
from advisor.domain import Host, Instance
from advisor.inventories.calls import CallError
from cotenant_kubernetes.calls import ClusterAccount, KubernetesApi, Row, account
from cotenant_kubernetes.pods import Json

# What Kubernetes and KubeVirt allow to be moved; no I/O.
#
# Conditions and phases by kubevirt.io/api/core/v1/types.go; selectors and budgets by k8s.io/api (meta/v1, policy/v1).

OVER = frozenset({"Succeeded", "Failed"})
# What makes another pod when one goes, somewhere else.
_REPLACES = frozenset({"ReplicaSet", "StatefulSet", "ReplicationController"})
_LOCAL = frozenset({"emptyDir", "hostPath"})
_CRITICAL = 2_000_000_000  # the priority of system-cluster-critical
_MIRROR = "kubernetes.io/config.mirror"
_NOT_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"


def guest_stays(row: Json) -> str:
    """Why a VirtualMachineInstance may not be moved, empty = it may."""
    status = row.get("status") or {}
    if status.get("phase") != "Running":
        return f"it is {str(status.get('phase') or 'not running').lower()}"
    moves = status.get("migrationState") or {}
    if moves and not (moves.get("completed") or moves.get("failed")):
        return "it moves already"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "LiveMigratable":
            return "" if condition.get("status") == "True" else f"it cannot move live: {_because(condition)}"
    return "KubeVirt has not said yet whether it can move live"


def pod_stays(row: Json) -> str:
    """Why a pod may not be evicted, empty = it may; the rules are those that descheduler has unless it is configured
    with more."""
    metadata, spec = row.get("metadata") or {}, row.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    owner = next((owner.get("kind") for owner in owners if owner.get("controller")), None)
    local = [volume.get("name") for volume in spec.get("volumes") or () if not _LOCAL.isdisjoint(volume)]
    if metadata.get("deletionTimestamp"):
        return "it goes already"
    if _MIRROR in annotations or owner not in _REPLACES:
        return f"nothing makes another one elsewhere when it goes (owner {owner or 'none'})"
    if annotations.get(_NOT_TO_EVICT) == "false":
        return f"its annotation {_NOT_TO_EVICT} forbids it"
    if int(spec.get("priority") or 0) >= _CRITICAL:
        return "it is critical for the cluster"
    return f"its volume {local[0]} would be lost" if local else ""


def budget_forbids(budgets: Iterable[Json], pods: Iterable[Json]) -> str:
    """Which PodDisruptionBudget of their namespace would be broken if one of these pods went, empty = none.

    KubeVirt's own budget of a guest, which forbids evictions so that guests are moved instead, is none of them.
    """
    labels_of_pods = [(pod.get("metadata") or {}).get("labels") or {} for pod in pods]
    for budget in budgets:
        metadata = budget.get("metadata") or {}
        if any(owner.get("kind") == "VirtualMachineInstance" for owner in metadata.get("ownerReferences") or ()):
            continue
        selector = (budget.get("spec") or {}).get("selector")
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        if allowed < 1 and any(selects(selector, labels) for labels in labels_of_pods):
            return f"PodDisruptionBudget {metadata.get('name')} allows no disruption now"
    return ""


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; one that is missing takes none, an empty one all."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expresses(expression, labels) for expression in selector.get("matchExpressions") or ())


def _expresses(expression: Json, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(str(expression.get("key"))), expression.get("values") or ()
    operator = expression.get("operator")
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    return operator == "DoesNotExist" and value is None


def unfit(node: Json) -> str:
    """Why nothing is to be moved to a node, empty = it may."""
    if (node.get("spec") or {}).get("unschedulable"):
        return "it is cordoned"
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((condition.get("status") for condition in conditions if condition.get("type") == "Ready"), "True")
    return "" if ready == "True" else "it is not ready"


def failure(migration: Json) -> str:
    """Why a VirtualMachineInstanceMigration failed, as far as it says."""
    status: Mapping[str, Any] = migration.get("status") or {}
    reason = (status.get("migrationState") or {}).get("failureReason")
    conditions = status.get("conditions") or ()
    reasons = [_because(condition) for condition in conditions if condition.get("message") or condition.get("reason")]
    return str(reason or (reasons[-1] if reasons else "KubeVirt does not say why"))[:300]


def _because(condition: Json) -> str:
    return str(condition.get("message") or condition.get("reason") or "it does not say why")[:200]


GUESTS = "/apis/kubevirt.io/v1/virtualmachineinstances"
MIGRATIONS = "/apis/kubevirt.io/v1/virtualmachineinstancemigrations"
BUDGETS = "/apis/policy/v1/poddisruptionbudgets"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
HOSTNAME = "kubernetes.io/hostname"
LABELS = {"app.kubernetes.io/managed-by": "cotenant"}
HINT = "cotenant.io/relieved"  # the taint that asks kube-scheduler to look elsewhere for what was evicted
HINT_S = 10.0  # for which it stays after the pod is gone
POLL_S = 1.0
_CONFLICT, _BUDGET, _ABSENT = 409, 429, 404


class KubernetesMover:
    """Moves with one account; `evict` = pods, too, as far as something makes another one. `namespaces` empty = all.

    A move that is not done after `patience_s` is called off.
    """

    def __init__(
        self,
        context: str | None = None,
        *,
        asking: Callable[[], ClusterAccount] | None = None,
        evict: bool = False,
        namespaces: tuple[str, ...] = (),
        patience_s: float = 900.0,
    ) -> None:
        self._account = asking or cache(lambda: account(context))
        self._evict = evict
        self._namespaces = frozenset(namespaces)
        self._patience_s = patience_s

    def standings(self, instances: tuple[Instance, ...]) -> tuple[Standing, ...]:
        """Guests by their own conditions, pods by the rules for evictions."""
        with _speaking():
            api = KubernetesApi(self._account())
            guests = {_name(row): row for row in api.everything(GUESTS, absent_is_empty=True)}
            pods = {_name(row): row for row in api.everything(PODS)} if self._evict else {}
        standings = []
        for instance in instances:
            labels = instance.labels
            if labels.get("source") != "kubernetes" or "moving" in labels:
                continue
            guest, name = labels.get("guest"), labels.get("guest") or labels.get("name", "")
            row, stays = (guests.get(name), guest_stays) if guest else (pods.get(name), pod_stays)
            if self._namespaces and name.partition("/")[0] not in self._namespaces:
                why = "its namespace was not named"
            elif row is None:
                why = (
                    "pods are evicted only where that was asked for" if not guest and not self._evict else "it is gone"
                )
            else:
                why = stays(row)
            standings.append(Standing(instance.id, name, why))
        return tuple(standings)

    def request(self, instance: Instance, target: Host, plan: str) -> Mapping[str, Any]:
        """A VirtualMachineInstanceMigration, or an Eviction."""
        namespace, _, name = (instance.labels.get("guest") or instance.labels["name"]).partition("/")
        if "guest" not in instance.labels:
            metadata = {"name": name, "namespace": namespace}
            uid = instance.labels.get("pod", instance.id)
            return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata,
                    "deleteOptions": {"preconditions": {"uid": uid}}}  # fmt: skip
        # The same move of the same plan is asked for once, even when its answer was lost.
        digest = hashlib.sha256(f"{plan} {instance.id} {target.id}".encode()).hexdigest()[:16]
        return {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceMigration",
            "metadata": {
                "name": f"cotenant-{digest}", "namespace": namespace, "labels": LABELS,
                "annotations": {"cotenant.io/plan": plan},
            },
            "spec": {
                "vmiName": name,
                "addedNodeSelector": {HOSTNAME: target.labels.get(f"node.{HOSTNAME}", target.id)},
            },
        }  # fmt: skip

    def busy(self) -> str:
        """Migrations that are not over, whoever began them."""
        with _speaking():
            api = KubernetesApi(self._account())
            running = [row for row in api.everything(MIGRATIONS, absent_is_empty=True) if _phase(row) not in OVER]
        return f"{len(running)} guests move already, {_name(running[0])} among them" if running else ""

    def move(self, instance: Instance, source: Host, target: Host, plan: str, stop: threading.Event) -> MoveOutcome:
        """What the API refuses is an outcome, too."""
        try:
            api = KubernetesApi(self._account())
            namespace, _, name = (instance.labels.get("guest") or instance.labels["name"]).partition("/")
            guest = "guest" in instance.labels
            row = api.one(within(GUESTS if guest else PODS, namespace, name))
            hinders = _elsewhere(row, instance, source.id, guest=guest) or self._forbidden(
                api, row, target, guest=guest
            )
            if hinders is not None:
                return hinders
            body = self.request(instance, target, plan)
            if guest:
                return self._migrate(api, body, target, stop)
            return self._evicted(api, body, source, stop)
        except (CallError, ValueError) as error:
            if isinstance(error, CallError) and error.status == _ABSENT:
                return MoveOutcome("changed", "it is gone")
            return MoveOutcome("failed", str(error)[:300])

    def _forbidden(self, api: KubernetesApi, row: Row, target: Host, *, guest: bool) -> MoveOutcome | None:
        stays = (guest_stays if guest else pod_stays)(row)
        if stays:
            return MoveOutcome("refused", stays)
        node = unfit(api.one(f"{NODES}/{quote(target.id, safe='')}"))
        if node:
            return MoveOutcome("changed", f"{target.id} accepts no pods: {node}")
        if not guest:
            return None  # the API itself asks the budgets before it evicts
        namespace, uid = (str(row["metadata"].get(key)) for key in ("namespace", "uid"))
        launchers = api.everything(within(PODS, namespace), labels=f"kubevirt.io/created-by={uid}")
        budget = budget_forbids(api.everything(within(BUDGETS, namespace)), launchers)
        return MoveOutcome("refused", budget) if budget else None

    def _migrate(self, api: KubernetesApi, body: Mapping[str, Any], target: Host, stop: threading.Event) -> MoveOutcome:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path = within(MIGRATIONS, namespace, name)
        try:
            api.send("POST", within(MIGRATIONS, namespace), body)
        except CallError as error:
            if error.status != _CONFLICT:
                raise
        ends = time.monotonic() + self._patience_s
        while time.monotonic() < ends:
            if stop.wait(POLL_S):
                return MoveOutcome("left", f"migration {namespace}/{name} goes on in the cluster")
            try:
                row = api.one(path)
            except CallError as error:
                if error.status == _ABSENT:
                    return MoveOutcome("failed", f"migration {namespace}/{name} was deleted by another client")
                continue  # the API may be back before the patience ends
            if _phase(row) == "Failed":
                return MoveOutcome("failed", failure(row))
            if _phase(row) == "Succeeded":
                guest = api.one(within(GUESTS, namespace, body["spec"]["vmiName"]))
                there = (guest.get("status") or {}).get("nodeName")
                if there != target.id:
                    return MoveOutcome("changed", f"KubeVirt moved it to {there}")
                return MoveOutcome("done", f"it is on {target.id}")
        api.send("DELETE", path)
        return MoveOutcome("failed", f"it was not there after {self._patience_s:.0f} s, and was called off")

    def _evicted(self, api: KubernetesApi, body: Mapping[str, Any], source: Host, stop: threading.Event) -> MoveOutcome:
        """Evict a pod while its node asks to be left alone, and see it go."""
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        path = within(PODS, namespace, name)
        _hint(api, source.id, {"key": HINT, "effect": "PreferNoSchedule"})
        try:
            try:
                api.send("POST", f"{path}/eviction", body)
            except CallError as error:
                if error.status == _BUDGET:
                    return MoveOutcome("refused", f"a PodDisruptionBudget allows no disruption now ({error})"[:300])
                raise
            uid = body["deleteOptions"]["preconditions"]["uid"]
            ends = time.monotonic() + self._patience_s
            while time.monotonic() < ends:
                if _uid(api, path) != uid:
                    stop.wait(HINT_S)
                    return MoveOutcome("done", f"it left {source.id}; what owns it makes another one")
                if stop.wait(POLL_S):
                    return MoveOutcome("left", "it was evicted and is still ending")
            return MoveOutcome("failed", f"it was evicted and is still there after {self._patience_s:.0f} s")
        finally:
            _hint(api, source.id, {"key": HINT, "$patch": "delete"})


@contextmanager
def _speaking() -> Iterator[None]:
    try:
        yield
    except (CallError, ValueError) as error:
        raise SystemFailed(f"Kubernetes cannot be asked: {error}"[:400]) from error


def _elsewhere(row: Row, instance: Instance, source: str, *, guest: bool) -> MoveOutcome | None:
    """Whether it is still who and where it was planned for."""
    uid = (row.get("metadata") or {}).get("uid")
    known = instance.labels.get("pod", instance.id) if not guest else None
    node = (row.get("status") or {}).get("nodeName") if guest else (row.get("spec") or {}).get("nodeName")
    if known is not None and uid != known:
        return MoveOutcome("changed", "another pod has its name now")
    return None if node == source else MoveOutcome("changed", f"it is on {node} and no longer on {source}")


def _hint(api: KubernetesApi, node: str, taint: Mapping[str, str]) -> None:
    api.send("PATCH", f"{NODES}/{quote(node, safe='')}", {"spec": {"taints": [taint]}})


def _uid(api: KubernetesApi, path: str) -> str | None:
    try:
        return (api.one(path).get("metadata") or {}).get("uid")
    except CallError as error:
        if error.status == _ABSENT:
            return None
        raise


def within(path: str, namespace: str, name: str = "") -> str:
    """The path of the same kind in one namespace, or of one object there."""
    start, _, kind = path.rpartition("/")
    whole = f"{start}/namespaces/{quote(namespace, safe='')}/{kind}"
    return f"{whole}/{quote(name, safe='')}" if name else whole


def _name(row: Row) -> str:
    metadata = row.get("metadata") or {}
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _phase(row: Row) -> str:
    return str((row.get("status") or {}).get("phase") or "")
