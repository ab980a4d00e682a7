"""Checks placement requests and scenes: what no cloud could satisfy is refused with the name of its field."""

from __future__ import annotations

import secrets
from datetime import datetime

from advisor.domain import Instance, PlacementRequest, Scene
from advisor.errors import InvalidInput
from advisor.render import check_labels
from advisor.validation import check_declared, check_unique, check_value, misfit
from profiler.host_kinds import HOST_KINDS
from profiler.observed import MAX_CPUS


def check_request(request: PlacementRequest) -> None:
    """Refuse what the types let through; InvalidInput names the field."""
    check_value(request)
    check_declared(request)
    _check_constraints(request)
    if request.commands:
        _check_labels(request.instance)
    pinning = request.instance.settings.pinning
    if pinning is not None and len(pinning.cpus) > request.instance.vcpus:
        message = f"the pinning names {len(pinning.cpus)} vCPUs, the instance has {request.instance.vcpus}"
        raise InvalidInput(message, field="pinning")
    highest = max((cpu for cpus in pinning.cpus for cpu in cpus), default=0) if pinning else 0
    if highest >= MAX_CPUS:
        message = f"pinned to pCPU {highest}, no host has more than {MAX_CPUS} pCPUs"
        raise InvalidInput(message, field="pinning")


def _check_labels(instance: Instance) -> None:
    try:
        check_labels(instance)
    except InvalidInput as error:
        raise InvalidInput(error.message, field=f"instance.{error.field}") from error


def _check_constraints(request: PlacementRequest) -> None:
    """Refuse what no host of any cloud could satisfy."""
    constraints, own = request.constraints, request.instance.id
    if own in constraints.affinity:
        raise InvalidInput(f"{own} cannot stand beside itself; leave it out of affinity", field="affinity")
    both = sorted(set(constraints.affinity) & set(constraints.anti_affinity))
    if both:
        raise InvalidInput(f"{both[0]} is in affinity and in anti_affinity; keep one of them", field="anti_affinity")
    if request.instance.exclusive and constraints.affinity:
        message = f"{own} is exclusive, and affinity places it beside {constraints.affinity[0]}"
        raise InvalidInput(message, field="affinity")
    out = sorted(set(request.hosts or ()) & set(constraints.exclude))
    if out:
        raise InvalidInput(f"host {out[0]} is named and excluded; keep one of them", field="exclude")
    if constraints.kind not in {None, *HOST_KINDS}:
        raise InvalidInput(f"kind {constraints.kind!r} is none of {', '.join(HOST_KINDS)}", field="kind")


def check_scene(scene: Scene) -> None:
    """Refuse duplicate names and pinnings that the host has no pCPUs for."""
    check_value(scene)
    check_unique((instance.id for instance in scene.instances), "instance")
    problem = misfit(scene.host, scene.instances)
    if problem:
        raise InvalidInput(problem, field="pinning")


def new_id(now: datetime) -> str:
    """An id that sorts by time (milliseconds), so that lists of answers can be read newest first."""
    return f"{int(now.timestamp() * 1000):012x}-{secrets.token_hex(5)}"
