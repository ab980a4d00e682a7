"""What Kubernetes and KubeVirt allow to be moved; no I/O.

Conditions and phases by kubevirt.io/api/core/v1/types.go; selectors and budgets by k8s.io/api (meta/v1, policy/v1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from advisor.domain.pods import Json

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
    for one in status.get("conditions") or ():
        if one.get("type") == "LiveMigratable":
            return "" if one.get("status") == "True" else f"it cannot move live: {_because(one)}"
    return "KubeVirt has not said yet whether it can move live"


def pod_stays(row: Json) -> str:
    """Why a pod may not be evicted, empty = it may; the rules are those that descheduler has unless it is told more."""
    metadata, spec = row.get("metadata") or {}, row.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    owner = next((one.get("kind") for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
    local = [one.get("name") for one in spec.get("volumes") or () if not _LOCAL.isdisjoint(one)]
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
    labels = [(one.get("metadata") or {}).get("labels") or {} for one in pods]
    for budget in budgets:
        metadata = budget.get("metadata") or {}
        if any(one.get("kind") == "VirtualMachineInstance" for one in metadata.get("ownerReferences") or ()):
            continue
        selector = (budget.get("spec") or {}).get("selector")
        allowed = int((budget.get("status") or {}).get("disruptionsAllowed") or 0)
        if allowed < 1 and any(selects(selector, one) for one in labels):
            return f"PodDisruptionBudget {metadata.get('name')} allows no disruption now"
    return ""


def selects(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector takes these labels; one that is missing takes none, an empty one all."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_expresses(one, labels) for one in selector.get("matchExpressions") or ())


def _expresses(one: Json, labels: Mapping[str, str]) -> bool:
    there, values = labels.get(str(one.get("key"))), one.get("values") or ()
    operator = one.get("operator")
    if operator == "In":
        return there in values
    if operator == "NotIn":
        return there not in values
    if operator == "Exists":
        return there is not None
    return operator == "DoesNotExist" and there is None


def unfit(node: Json) -> str:
    """Why nothing is to be moved to a node, empty = it may."""
    if (node.get("spec") or {}).get("unschedulable"):
        return "it is cordoned"
    ready = [
        one.get("status") for one in (node.get("status") or {}).get("conditions") or () if one.get("type") == "Ready"
    ]
    return "it is not ready" if ready and ready[0] != "True" else ""


def failure(migration: Json) -> str:
    """Why a VirtualMachineInstanceMigration failed, as far as it says."""
    status: Mapping[str, Any] = migration.get("status") or {}
    told = (status.get("migrationState") or {}).get("failureReason")
    said = [_because(one) for one in status.get("conditions") or () if one.get("message") or one.get("reason")]
    return str(told or (said[-1] if said else "KubeVirt does not say why"))[:300]


def _because(condition: Json) -> str:
    return str(condition.get("message") or condition.get("reason") or "it does not say why")[:200]
