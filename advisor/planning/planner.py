"""Plans: the request is checked against the cloud, and each kind of question goes to what answers it.

A request is validated, limited to the time that is left, and answered by the prior if the model fails.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from advisor import deadline, work
from advisor.deadline import Progress
from advisor.domain import Growth, Plan, PlanRequest, WhatIf
from advisor.errors import InvalidInput
from advisor.planning.capacity import MAX_INSTANCES
from advisor.planning.cpu_demand import Measured
from advisor.planning.failover import MAX_FAILURES, failures_of
from advisor.planning.plan_builder import Models, build_plan
from advisor.planning.repair import MeasuredMoves
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor, PredictionCache
from advisor.snapshot import ClusterSnapshot
from advisor.validation import check_declared, check_kinds, check_unique, check_value, misfit
from profiler.observed import check_id

# Validates plan requests against their kind and the cloud.


def check(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    """Reject a request that contradicts itself or the cloud; InvalidInput names the field.

    Instances that no host can take are not rejected here: the plan answers them with reasons.
    """
    check_value(request)
    check_declared(request)
    if request.kind == "right_size" and request.plan_for != "hours":
        raise InvalidInput("right_size goes by the p95 and the p99 of demand; leave plan_for out", field="plan_for")
    if request.kind == "tune" and request.objective not in {"worst", "total"}:
        raise InvalidInput("tune takes the objective worst or total, and keeps all limits with both", field="objective")
    effective_kind = (request.kind == "what_if" and request.then) or request.kind  # what_if asks it of its own cloud
    check_kinds(request, effective_kind, request.kind)
    _check_instances(snapshot, request)
    _check_hosts(snapshot, request)
    _check_movable(snapshot, request)
    _check_spare(snapshot, request)
    if request.growth is not None:
        _check_growth(request.growth)
    if request.what_if is not None:
        _check_what_if(snapshot, request.what_if)


def _check_instances(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    check_unique((instance.id for instance in request.instances), "instance", "instances")
    groups: dict[str, str] = {}
    for instance in request.instances:
        if instance.affinity_group is not None:
            other = groups.setdefault(instance.affinity_group, instance.id)
            if other != instance.id:
                message = (
                    f"{other} and {instance.id} are both of the affinity group {instance.affinity_group}; ask for "
                    "their placements one after the other"
                )
                raise InvalidInput(message, field="instances")
    for instance in request.instances:
        resident = snapshot.names.placed.get(instance.id)
        if instance.host is not None and (resident is None or instance.host != resident.host):
            message = f"instance {instance.id} is not on {instance.host}; a plan finds its host, so leave host out"
            raise InvalidInput(message, field="instances")
        pinning = instance.settings.pinning
        if pinning is not None and len(pinning.cpus) > instance.vcpus:
            message = f"instance {instance.id} has {instance.vcpus} vCPUs, its pinning names {len(pinning.cpus)}"
            raise InvalidInput(message, field="instances")


def _check_spare(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    if request.spare_label is not None and not request.spare_hosts:
        raise InvalidInput("spare_label goes with spare_hosts", field="spare_label")
    if not request.spare_hosts:
        return
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


def _check_growth(growth: Growth) -> None:
    if growth.instances_per_month * growth.months > MAX_INSTANCES:
        message = (
            f"{growth.instances_per_month:g} instances a month for {growth.months} months are more than {MAX_INSTANCES}"
        )
        raise InvalidInput(message, field="growth.instances_per_month")


def _check_hosts(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    imagined = request.what_if or WhatIf()
    known = {host.id for host in (*snapshot.hosts, *imagined.hosts)} - set(imagined.remove)
    if request.hosts is not None:
        _known("hosts", request.hosts, known, "host")
    if not request.empty:
        return
    _known("empty", request.empty, known, "host")
    in_both = sorted(set(request.empty) & set(request.hosts or ()))
    if in_both:
        raise InvalidInput(f"host {in_both[0]} is both to be emptied and to be used; keep one of them", field="empty")
    if known <= set(request.empty):
        raise InvalidInput("every host is to be emptied, so no host is left to move instances to", field="empty")


def _check_movable(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    resident_ids = {instance.id for residents in snapshot.residents for instance in residents}
    _known("movable", request.movable or (), resident_ids, "instance on a host")
    if request.kind == "evacuate" and request.max_moves is not None:
        leaving = [instance for instance in snapshot.names.placed.values() if instance.host in request.empty]
        number = sum(request.movable is None or instance.id in request.movable for instance in leaving)
        if number > request.max_moves:
            message = f"{number} instances are to leave, max_moves allows {request.max_moves}"
            raise InvalidInput(message, field="max_moves")


def _check_what_if(snapshot: ClusterSnapshot, imagined: WhatIf) -> None:
    if imagined == WhatIf():
        raise InvalidInput("what_if needs at least one change; without one it is the current cloud", field="what_if")
    check_unique((host.id for host in imagined.hosts), "host", "what_if.hosts")
    known = {host.id for host in snapshot.hosts}
    _known("what_if.remove", imagined.remove, known, "host")
    in_both = sorted({host.id for host in imagined.hosts} & set(imagined.remove))
    if in_both:
        raise InvalidInput(f"host {in_both[0]} is both added and removed; keep one of them", field="what_if.remove")
    if not (known | {host.id for host in imagined.hosts}) - set(imagined.remove):
        raise InvalidInput("no host would be left", field="what_if.remove")
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


SEARCHED = 0.85  # share of the time limit after which the wall clock stops the search; the rest is for its steps
PLANNED = 0.8  # share of the remaining time for the search; the rest is for the work before and after it


def plan(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    request: PlanRequest,
    *,
    now: datetime,
    fresh_s: float,
    generation: int | None = None,
    models: Models,
    measured: Measured = lambda _: {},
    moved: MeasuredMoves = tuple,
    progress: Progress | None = None,
) -> Plan:
    """Plan the whole cloud; InvalidInput names the field that contradicts the request or the cloud.

    `models` finds a model by version; `measured` returns the recent CPU usage of instances, `moved` the
    moves of the last week. The caller's deadline
    limits the time of the request.
    """
    check(snapshot, request)
    wall_s = SEARCHED * min(request.time_limit_s, max(deadline.left_s() * PLANNED, 0.01))
    with work.counted(chosen, wall_s) as counted:
        answer = active.ask(
            counted,
            lambda answering: build_plan(
                snapshot,
                replace(work.counting(answering), remembered=PredictionCache()),
                request,
                now=now,
                fresh_s=fresh_s,
                generation=generation,
                models=models,
                measured=measured,
                moved=moved,
                progress=progress,
            ),
        )
    return replace(answer, request=request)
