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
