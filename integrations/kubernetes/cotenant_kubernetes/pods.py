"""Pods, and what their annotations say of them, each field of a text as its type; values only.

A pod is the JSON of the API (k8s.io/api/core/v1/types.go) as mappings; fields that are absent or null say nothing.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from advisor.domain.names import SAID, whole
from profiler.observed import MAX_CPUS, Instance, check_id

Json = Mapping[str, Any]
PREFIX = "cotenant.io/"
# KubeVirt labels all of its pods; only a virt-launcher runs a guest (kubevirt.io/api/core/v1/types.go, AppLabel).
_KUBEVIRT, _LAUNCHER = "kubevirt.io", "virt-launcher"
_CREATED_BY = "kubevirt.io/created-by"  # the UID of the VirtualMachineInstance; the same on both pods while it moves
_MIGRATION = "kubevirt.io/migrationJobUID"  # on the pod that a migration goes to
_FLAVORS = ("kubevirt.io/cluster-instancetype-name", "kubevirt.io/instancetype-name")
_MIRROR, _HASH = "kubernetes.io/config.mirror", "kubernetes.io/config.hash"
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]{1,18}\.?[0-9]{0,18}|\.[0-9]{1,18}))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,2}))?\Z"
)
_SUFFIX = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3} | {
    letter + i: base**power
    for i, base in (("", 1000.0), ("i", 1024.0))
    for power, letter in enumerate("KMGTPE", 1)
    if letter + i != "K"
}
KEYS = tuple(f"{PREFIX}{name.replace('_', '-')}" for name in ("instance", "vcpus", *SAID))


@dataclass(frozen=True, slots=True)
class PodSaid:
    """What a pod says of itself that makes sense, as fields of an Instance, and a sentence for each thing that does
    not, which begins with its key."""

    fields: Mapping[str, Any]
    name: str | None
    wrong: tuple[str, ...]


def quantity(value: Any) -> float:
    """A quantity such as 500m, 4Gi or 1e3 as a number; ValueError else. k8s.io/apimachinery/pkg/api/resource."""
    if value is None:
        return 0.0
    match = _QUANTITY.match(str(value))
    if not match:
        raise ValueError(f"{str(value)[:60]!r} is no quantity such as 500m or 4Gi")
    return float(match[1]) * _SUFFIX.get(match[2], 1.0) * 10.0 ** int(match[3] or 0)


def requested(pod: Json, resource: str) -> float:
    """What kube-scheduler counts the pod with; ValueError where a quantity is none.

    The containers and the sidecars (init containers that restart always) together, or an init container with the
    sidecars that began before it; what the pod requests as a whole instead, where it does; and its overhead
    (k8s.io/component-helpers/resource/helpers.go, PodRequests). While a pod is resized in place, the largest counts of
    what it asks for, what it was allocated and what it has; what can never be had does not count (KEP 1287).
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    refused = _is_resize_refused(status)

    def of(container: Json, statuses: Mapping[str, Json]) -> float:
        return _counted(container, statuses.get(str(container.get("name"))) or {}, resource, refused=refused)

    running, started = (_by_name(status.get(key)) for key in ("containerStatuses", "initContainerStatuses"))
    together = sum(of(container, running) for container in spec.get("containers") or ())
    sidecars = most = 0.0
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars += of(container, started)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _requests(container, resource))
    counted = max(together + sidecars, most)
    if _requests_of(spec).get(resource) is not None:
        counted = _counted(spec, status, resource, refused=refused)
    return counted + quantity((spec.get("overhead") or {}).get(resource))


def _counted(asked: Json, status: Json, resource: str, *, refused: bool) -> float:
    """What a container, or the pod as a whole, counts with beside its status."""
    had = max(_requests(status, resource), quantity((status.get("allocatedResources") or {}).get(resource)))
    return had if refused and had > 0 else max(_requests(asked, resource), had)


def _requests(one: Json, resource: str) -> float:
    return quantity(_requests_of(one).get(resource))


def _requests_of(one: Json) -> Json:
    return (one.get("resources") or {}).get("requests") or {}


def _by_name(statuses: Any) -> dict[str, Json]:
    return {str(status.get("name")): status for status in statuses or ()}


def _is_resize_refused(status: Json) -> bool:
    """Whether its node can never resize it as asked; a field of its own before Kubernetes 1.33."""
    pending = (one for one in status.get("conditions") or () if one.get("type") == "PodResizePending")
    return status.get("resize") == "Infeasible" or any(
        one.get("status") == "True" and one.get("reason") == "Infeasible" for one in pending
    )


def size(pod: Json) -> dict[str, Any]:
    """`vcpus` and `memory_mb` by what the pod requests, as far as it does; ValueError where a quantity is none."""
    cpu, memory = requested(pod, "cpu"), requested(pod, "memory")
    sizes: dict[str, Any] = {"memory_mb": memory / 2**20} if memory > 0 else {}
    return sizes | ({"vcpus": min(max(1, math.ceil(round(cpu, 6))), MAX_CPUS)} if cpu > 0 else {})


def static_uid(pod: Json) -> str | None:
    """The UID that a static pod has on its node, by which its control groups are named, None = it is none: the API
    knows it by a mirror with a UID of its own (kubernetes.io/docs/reference/labels-annotations-taints)."""
    notes = _annotations(pod)
    return str(notes.get(_HASH) or notes.get(_MIRROR) or "") or None


def is_launcher(pod: Json) -> bool:
    """Whether it runs a guest of KubeVirt."""
    return _labels(pod).get(_KUBEVIRT) == _LAUNCHER


def guest(pod: Json) -> str | None:
    """The UID of the VirtualMachineInstance that the pod runs, None = none."""
    return _labels(pod).get(_CREATED_BY) or None if is_launcher(pod) else None


def is_migration_target(pod: Json) -> bool:
    """Whether KubeVirt made it for a guest to move to."""
    return _MIGRATION in _labels(pod)


def says_something(pod: Json) -> bool:
    """Whether the pod is a guest, or asks to be advised on: by one of our labels, annotations or resources."""
    containers = (pod.get("spec") or {}).get("containers") or ()
    requests = ((container.get("resources") or {}).get("requests") or {} for container in containers)
    return is_launcher(pod) or any(
        key.startswith(PREFIX) for some in (_labels(pod), _annotations(pod), *requests) for key in some
    )


def said(pod: Json) -> PodSaid:
    """What it says in labels and annotations, which win."""
    texts = {**_labels(pod), **_annotations(pod)}
    fields: dict[str, Any] = {}
    wrong = [_unknown(key) for key in sorted(texts) if key.startswith(PREFIX) and key not in KEYS]
    for name, read in {"vcpus": whole, **SAID}.items():
        key = f"{PREFIX}{name.replace('_', '-')}"
        if key not in texts:
            continue
        try:
            value = read(texts[key])
            replace(_ANY, **{name: value})  # the type's own rule
            fields[name] = value
        except ValueError as error:
            wrong.append(f"{key} {texts[key][:60]!r}: {error}")
    instance = texts.get(f"{PREFIX}instance")
    if instance is not None:
        try:
            check_id(instance)
        except ValueError as error:
            wrong.append(f"{PREFIX}instance: {error}")
            instance = None
    return PodSaid(fields, instance, tuple(wrong))


_ANY = Instance("any", vcpus=MAX_CPUS)


def _unknown(key: str) -> str:
    near = difflib.get_close_matches(key, KEYS, 1)
    shown = key[:100] if key.isprintable() else repr(key[:100])
    return f"{shown} is not known; " + (f"is {near[0]} meant?" if near else f"there are {', '.join(KEYS)}")


def class_labels(pod: Json) -> dict[str, str]:
    """By which labels it is known to be like others: `project` (its namespace), `class` (who owns it), `image`, and
    `flavor_name` (KubeVirt's instance type)."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    first: Json = (spec.get("containers") or ({},))[0]
    notes = {**_labels(pod), **_annotations(pod)}
    labels = {
        "project": metadata.get("namespace"),
        "class": owner(pod),
        # Every guest has the same image of virt-launcher.
        "image": None if is_launcher(pod) else first.get("image"),
        "flavor_name": next((notes[name] for name in _FLAVORS if name in notes), None),
    }
    return {name: str(value)[:255] for name, value in labels.items() if value and str(value).isprintable()}


def owner(pod: Json) -> str | None:
    """NAMESPACE/KIND/NAME of what made the pod and others like it, None = nothing did.

    Of a ReplicaSet the Deployment, of a CronJob's Job the CronJob: both end in what differs from one to the next. Of a
    guest nothing: its VirtualMachineInstance is one of its kind.
    """
    metadata = pod.get("metadata") or {}
    owners = metadata.get("ownerReferences") or ()
    controller = next((owner for owner in owners if owner.get("controller")), None)
    if controller is None or is_launcher(pod):
        return None
    kind, name = str(controller.get("kind")), str(controller.get("name"))
    hashed = _labels(pod).get("pod-template-hash")
    if kind == "ReplicaSet" and hashed and name.endswith(f"-{hashed}"):
        kind, name = "Deployment", name.removesuffix(f"-{hashed}")
    elif kind == "Job" and re.search(r"-[0-9]{8,}\Z", name):  # the minute that it was due in
        kind, name = "CronJob", name.rpartition("-")[0]
    return f"{metadata.get('namespace') or 'default'}/{kind}/{name}"


def _labels(pod: Json) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("labels") or {}


def _annotations(pod: Json) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}
