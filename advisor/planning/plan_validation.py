"""Validates plan requests against their kind and the cloud."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from advisor.domain import OBJECTIVES, PINNING_POLICIES, PLAN_FOR, PLAN_KINDS, Growth, PlanKind, PlanRequest, WhatIf
from advisor.errors import InvalidInput
from advisor.planning.failover import MAX_FAILURES, failures_of
from advisor.planning.size_capacity import MAX_INSTANCES
from advisor.snapshot import ClusterSnapshot
from advisor.validation import check_one_of, check_unique, check_value, misfit
from profiler.observed import check_id

# What may be asked of an imagined cloud.
WHAT_IF_KINDS: tuple[PlanKind, ...] = ("admit", "rebalance", "consolidate", "capacity")
PLACING_KINDS = ("admit", "capacity")  # need instances
MOVING_KINDS = ("rebalance", "evacuate", "consolidate")  # move residents
MAX_MONTHS = 240
MAX_LOAD_PERCENT = 1000.0  # growth per month; over MAX_MONTHS it still does not overflow
MAX_AT_ONCE = 1000
MAX_PER_HOST = 8  # moves of one host in a stage: each part of them is checked, 255 sets
MAX_TIME_S = 3600.0


def check(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    """Reject a request that contradicts itself or the cloud; InvalidInput names the field.

    Instances that no host can take are not rejected here: the plan answers them with reasons.
    """
    check_value(request)
    check_one_of("kind", request.kind, PLAN_KINDS)
    check_one_of("objective", request.objective, OBJECTIVES)
    check_one_of("plan_for", request.plan_for, PLAN_FOR)
    if request.kind == "right_size" and request.plan_for != "hours":
        raise InvalidInput("right_size goes by the p95 and the p99 of demand; leave plan_for out", field="plan_for")
    if request.kind == "tune" and request.objective == "pack":
        raise InvalidInput("tune moves nothing, so it packs nothing: ask for worst or total", field="objective")
    effective_kind = _effective_kind(request)
    _check_instances(snapshot, request, effective_kind)
    _check_numbers(request)
    _check_hosts(snapshot, request)
    _check_movable(snapshot, request, effective_kind)
    _check_spare(snapshot, request, effective_kind)
    if request.growth is not None:
        _check_growth(request.growth, effective_kind)
    if request.kind == "what_if":
        _check_what_if(snapshot, request.what_if)
    elif request.what_if is not None:
        raise InvalidInput(f"what_if is only allowed for what_if, not for {request.kind}", field="what_if")


def _effective_kind(request: PlanRequest) -> PlanKind:
    """The kind of plan to make, for what_if on the imagined cloud."""
    if request.kind == "what_if":
        if request.then is not None:
            check_one_of("then", request.then, WHAT_IF_KINDS)
        return request.then or "what_if"
    if request.then is not None:
        raise InvalidInput(f"then is only allowed for what_if, not for {request.kind}", field="then")
    return request.kind


def _check_instances(snapshot: ClusterSnapshot, request: PlanRequest, effective_kind: str) -> None:
    if effective_kind in PLACING_KINDS and not request.instances:
        purpose = "to place" if effective_kind == "admit" else "of the mix of which more should fit"
        raise InvalidInput(f"{effective_kind} needs the instances {purpose}", field="instances")
    if request.instances and effective_kind not in PLACING_KINDS:
        raise InvalidInput(
            f"{effective_kind} places no instances; ask admit or capacity, or leave them out", field="instances"
        )
    check_unique((instance.id for instance in request.instances), "instance", "instances")
    for instance in request.instances:
        resident = snapshot.names.placed.get(instance.id)
        if instance.host is not None and (resident is None or instance.host != resident.host):
            message = f"instance {instance.id} is not on {instance.host}; a plan finds its host, so leave host out"
            raise InvalidInput(message, field="instances")
        pinning = instance.settings.pinning
        if pinning is not None and len(pinning.cpus) > instance.vcpus:
            message = f"instance {instance.id} has {instance.vcpus} vCPUs, its pinning names {len(pinning.cpus)}"
            raise InvalidInput(message, field="instances")


def _check_spare(snapshot: ClusterSnapshot, request: PlanRequest, effective_kind: str) -> None:
    if request.spare_label is not None and not request.spare_hosts:
        raise InvalidInput("spare_label goes with spare_hosts", field="spare_label")
    if not request.spare_hosts:
        return
    if effective_kind != "capacity":
        raise InvalidInput(f"spare_hosts is only allowed for capacity, not for {effective_kind}", field="spare_hosts")
    labels = {label for host in snapshot.hosts for label in host.labels}
    if request.spare_label is not None and request.spare_label not in labels:
        there = f"; there are {', '.join(sorted(labels)[:10])}" if labels else ""
        raise InvalidInput(f"no host has the label {request.spare_label}{there}", field="spare_label")
    failures = len(failures_of(snapshot, 1, request.spare_label))
    number = math.comb(failures, min(request.spare_hosts, failures))
    if number > MAX_FAILURES:
        message = (
            f"{request.spare_hosts} of {failures} fail in {number:,} ways, more than {MAX_FAILURES:,} are not tried"
        )
        raise InvalidInput(message, field="spare_hosts")


def _check_growth(growth: Growth, effective_kind: str) -> None:
    if effective_kind != "capacity":
        raise InvalidInput(f"growth is only allowed for capacity, not for {effective_kind}", field="growth")
    if not 1 <= growth.months <= MAX_MONTHS:
        raise InvalidInput(f"{growth.months} months are outside 1-{MAX_MONTHS}", field="growth.months")
    if growth.load_percent_per_month > MAX_LOAD_PERCENT:
        message = f"{growth.load_percent_per_month:g} % more load a month is above {MAX_LOAD_PERCENT:g} %"
        raise InvalidInput(message, field="growth.load_percent_per_month")
    if growth.uncertain_percent > 100:
        message = (
            f"growth that is uncertain by {growth.uncertain_percent:g} % could be negative; at most 100 % are allowed"
        )
        raise InvalidInput(message, field="growth.uncertain_percent")
    if growth.instances_per_month * growth.months > MAX_INSTANCES:
        message = (
            f"{growth.instances_per_month:g} instances a month for {growth.months} months are more than {MAX_INSTANCES}"
        )
        raise InvalidInput(message, field="growth.instances_per_month")


def _check_numbers(request: PlanRequest) -> None:
    if not 0 < request.keep_ratio <= 1:
        raise InvalidInput(f"keep_ratio {request.keep_ratio:g} is outside (0, 1]", field="keep_ratio")
    if request.move_gain > 1:
        raise InvalidInput(f"move_gain {request.move_gain:g} is above 1: no move can gain that", field="move_gain")
    for name, most in (("at_once", MAX_AT_ONCE), ("at_once_per_host", MAX_PER_HOST), ("at_once_per_rack", MAX_AT_ONCE)):
        moves = getattr(request, name)
        if moves is not None and not 1 <= moves <= most:
            raise InvalidInput(f"{name} {moves} is outside 1-{most}", field=name)
    for name in ("migration_mbit", "rack_mbit"):
        if getattr(request, name) == 0:
            raise InvalidInput(f"{name} 0 leaves no network for any move", field=name)
    if not 0 < request.time_limit_s <= MAX_TIME_S:
        raise InvalidInput(
            f"time_limit_s {request.time_limit_s:g} is outside (0, {MAX_TIME_S:g}]", field="time_limit_s"
        )


def _check_hosts(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    imagined = request.what_if or WhatIf()
    known = {host.id for host in (*snapshot.hosts, *imagined.hosts)} - set(imagined.remove)
    if request.hosts is not None:
        _known("hosts", request.hosts, known, "host")
        if not request.hosts:
            raise InvalidInput("hosts names no host; leave it out to use all", field="hosts")
    if request.kind != "evacuate":
        if request.empty:
            raise InvalidInput(f"empty is only allowed for evacuate, not for {request.kind}", field="empty")
        return
    if not request.empty:
        raise InvalidInput("evacuate needs the hosts that are to be emptied", field="empty")
    _known("empty", request.empty, known, "host")
    in_both = sorted(set(request.empty) & set(request.hosts or ()))
    if in_both:
        raise InvalidInput(f"host {in_both[0]} is both to be emptied and to be used; keep one of them", field="empty")
    if known <= set(request.empty):
        raise InvalidInput("every host is to be emptied, so no host is left to move instances to", field="empty")


def _check_movable(snapshot: ClusterSnapshot, request: PlanRequest, effective_kind: str) -> None:
    if request.movable is None and request.max_moves is None:
        return
    field = "movable" if request.movable is not None else "max_moves"
    if effective_kind not in MOVING_KINDS:
        raise InvalidInput(f"{effective_kind} moves no instances; leave {field} out", field=field)
    resident_ids = {instance.id for residents in snapshot.residents for instance in residents}
    _known("movable", request.movable or (), resident_ids, "instance on a host")
    if effective_kind == "evacuate" and request.max_moves is not None:
        leaving = [instance for instance in snapshot.names.placed.values() if instance.host in request.empty]
        number = sum(request.movable is None or instance.id in request.movable for instance in leaving)
        if number > request.max_moves:
            message = f"{number} instances are to leave, max_moves allows {request.max_moves}"
            raise InvalidInput(message, field="max_moves")


def _check_what_if(snapshot: ClusterSnapshot, imagined: WhatIf | None) -> None:
    if imagined is None or imagined == WhatIf():
        raise InvalidInput("what_if needs at least one change; without one it is the current cloud", field="what_if")
    check_one_of("what_if.pinning", imagined.pinning, PINNING_POLICIES)
    check_unique((host.id for host in imagined.hosts), "host", "what_if.hosts")
    known = {host.id for host in snapshot.hosts}
    _known("what_if.remove", imagined.remove, known, "host")
    in_both = sorted({host.id for host in imagined.hosts} & set(imagined.remove))
    if in_both:
        raise InvalidInput(f"host {in_both[0]} is both added and removed; keep one of them", field="what_if.remove")
    if not (known | {host.id for host in imagined.hosts}) - set(imagined.remove):
        raise InvalidInput("no host would be left", field="what_if.remove")
    for name in ("cpu_overcommit", "memory_overcommit"):
        if getattr(imagined, name) == 0:
            raise InvalidInput(f"{name} 0 leaves no room for any instance", field=f"what_if.{name}")
    by_id = {host.id: host for host in imagined.hosts}
    for host, residents in zip(snapshot.hosts, snapshot.residents, strict=True):
        problem = misfit(by_id[host.id], residents) if host.id in by_id and imagined.pinning == "as_it_is" else None
        if problem:
            raise InvalidInput(f"{problem}; choose another pinning for the imagined cloud", field="what_if.hosts")
    if imagined.model is not None:
        try:
            check_id(imagined.model, "model")
        except ValueError as error:
            raise InvalidInput(str(error), field="what_if.model") from error
        if imagined.model.startswith("."):
            raise InvalidInput(f"{imagined.model} is no version of a model", field="what_if.model")


def _known(field: str, names: Iterable[str], known: Collection[str], what: str) -> None:
    names = tuple(names)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidInput(f"there is no {what} {unknown[0]}", field=field)
    check_unique(names, what, field)
