"""Whether a plan can be asked for like this: each kind of question with what it needs, checked against the cloud."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from advisor.domain import OBJECTIVES, PINNING_POLICIES, PLAN_KINDS, Growth, PlanKind, PlanRequest, WhatIf
from advisor.errors import InvalidInput
from advisor.planning.size_capacity import MOST
from advisor.snapshot import ClusterSnapshot
from advisor.validation import check_value, misfit
from profiler.observed import check_id

THEN: tuple[PlanKind, ...] = ("admit", "rebalance", "consolidate", "capacity")  # what may be asked of an imagined cloud
PLACING = ("admit", "capacity")  # need instances
MOVING = ("rebalance", "evacuate", "consolidate")  # move residents
MOST_MONTHS = 240
MOST_LOAD_PERCENT = 1000.0  # that load grows a month: so many times in MOST_MONTHS is still a number
MOST_AT_ONCE = 1000
MOST_TIME_S = 3600.0


def check(snapshot: ClusterSnapshot, request: PlanRequest) -> None:
    """Refuse what contradicts itself or the cloud, in one sentence; InvalidInput names the field.

    What no host can take is not refused: it is answered with the reasons.
    """
    check_value(request)
    _one_of("kind", request.kind, PLAN_KINDS)
    _one_of("objective", request.objective, OBJECTIVES)
    asked = _asked(request)
    _check_instances(snapshot, request, asked)
    _check_numbers(request)
    _check_hosts(snapshot, request)
    _check_movable(snapshot, request, asked)
    if request.growth is not None:
        _check_growth(request.growth, asked)
    if request.kind == "what_if":
        _check_what_if(snapshot, request.what_if)
    elif request.what_if is not None:
        raise InvalidInput(f"an imagined cloud is for what_if, {request.kind} asks about this one", field="what_if")


def _asked(request: PlanRequest) -> PlanKind:
    """The question that is put to a cloud, imagined or not."""
    if request.kind == "what_if":
        if request.then is not None:
            _one_of("then", request.then, THEN)
        return request.then or "what_if"
    if request.then is not None:
        raise InvalidInput(f"then is asked of an imagined cloud, {request.kind} has none", field="then")
    return request.kind


def _check_instances(snapshot: ClusterSnapshot, request: PlanRequest, asked: str) -> None:
    if asked in PLACING and not request.instances:
        what = "to place" if asked == "admit" else "of the mix of which more should fit"
        raise InvalidInput(f"{asked} needs the instances {what}", field="instances")
    if request.instances and asked not in PLACING:
        raise InvalidInput(f"{asked} places no instances; ask admit or capacity, or leave them out", field="instances")
    _unique("instances", (one.id for one in request.instances), "instance")
    for one in request.instances:
        there = snapshot.names.placed.get(one.id)
        if one.host is not None and (there is None or one.host != there.host):
            message = f"instance {one.id} is not on {one.host}; a plan finds its host, so leave host out"
            raise InvalidInput(message, field="instances")
        pinning = one.settings.pinning
        if pinning is not None and len(pinning.cpus) > one.vcpus:
            message = f"instance {one.id} has {one.vcpus} vCPUs, its pinning names {len(pinning.cpus)}"
            raise InvalidInput(message, field="instances")


def _check_growth(growth: Growth, asked: str) -> None:
    if asked != "capacity":
        raise InvalidInput(f"growth is looked at by capacity, {asked} asks for none", field="growth")
    if not 1 <= growth.months <= MOST_MONTHS:
        raise InvalidInput(f"{growth.months} months are outside 1-{MOST_MONTHS}", field="growth.months")
    if growth.load_percent_per_month > MOST_LOAD_PERCENT:
        message = f"{growth.load_percent_per_month:g} % more load a month is above {MOST_LOAD_PERCENT:g} %"
        raise InvalidInput(message, field="growth.load_percent_per_month")
    if growth.instances_per_month * growth.months > MOST:
        message = f"{growth.instances_per_month:g} instances a month for {growth.months} months are more than {MOST}"
        raise InvalidInput(message, field="growth.instances_per_month")


def _check_numbers(request: PlanRequest) -> None:
    if not 0 < request.keep_ratio <= 1:
        raise InvalidInput(f"keep_ratio {request.keep_ratio:g} is outside (0, 1]", field="keep_ratio")
    if request.move_gain > 1:
        raise InvalidInput(f"move_gain {request.move_gain:g} is above 1: no move can gain that", field="move_gain")
    if not 1 <= request.at_once <= MOST_AT_ONCE:
        raise InvalidInput(f"at_once {request.at_once} is outside 1-{MOST_AT_ONCE}", field="at_once")
    if not 0 < request.time_limit_s <= MOST_TIME_S:
        raise InvalidInput(
            f"time_limit_s {request.time_limit_s:g} is outside (0, {MOST_TIME_S:g}]", field="time_limit_s"
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
            raise InvalidInput(f"hosts are emptied by evacuate, not by {request.kind}", field="empty")
        return
    if not request.empty:
        raise InvalidInput("evacuate needs the hosts that are to be emptied", field="empty")
    _known("empty", request.empty, known, "host")
    both = sorted(set(request.empty) & set(request.hosts or ()))
    if both:
        raise InvalidInput(f"host {both[0]} is to be emptied and to be used; keep one of them", field="empty")
    if known <= set(request.empty):
        raise InvalidInput("every host is to be emptied, so nobody could go anywhere", field="empty")


def _check_movable(snapshot: ClusterSnapshot, request: PlanRequest, asked: str) -> None:
    if request.movable is None and request.max_moves is None:
        return
    field = "movable" if request.movable is not None else "max_moves"
    if asked not in MOVING:
        raise InvalidInput(f"{asked} moves nobody who is there; leave {field} out", field=field)
    there = {one.id for residents in snapshot.residents for one in residents}
    _known("movable", request.movable or (), there, "instance on a host")
    if asked == "evacuate" and request.max_moves is not None:
        leaving = [one for one in snapshot.names.placed.values() if one.host in request.empty]
        number = sum(request.movable is None or one.id in request.movable for one in leaving)
        if number > request.max_moves:
            message = f"{number} instances are to leave, max_moves allows {request.max_moves}"
            raise InvalidInput(message, field="max_moves")


def _check_what_if(snapshot: ClusterSnapshot, imagined: WhatIf | None) -> None:
    if imagined is None or imagined == WhatIf():
        raise InvalidInput(
            "what_if needs something that is otherwise; with nothing it is the cloud of now", field="what_if"
        )
    _one_of("what_if.pinning", imagined.pinning, PINNING_POLICIES)
    _unique("what_if.hosts", (host.id for host in imagined.hosts), "host")
    known = {host.id for host in snapshot.hosts}
    _known("what_if.remove", imagined.remove, known, "host")
    both = sorted({host.id for host in imagined.hosts} & set(imagined.remove))
    if both:
        raise InvalidInput(f"host {both[0]} is put and removed at once; keep one of them", field="what_if.remove")
    if not (known | {host.id for host in imagined.hosts}) - set(imagined.remove):
        raise InvalidInput("no host would be left", field="what_if.remove")
    for name in ("cpu_overcommit", "memory_overcommit"):
        if getattr(imagined, name) == 0:
            raise InvalidInput(f"{name} 0 lets nobody in", field=f"what_if.{name}")
    by_id = {host.id: host for host in imagined.hosts}
    for host, there in zip(snapshot.hosts, snapshot.residents, strict=True):
        problem = misfit(by_id[host.id], there) if host.id in by_id and imagined.pinning == "as_it_is" else None
        if problem:
            raise InvalidInput(f"{problem}; imagine it with another pinning", field="what_if.hosts")
    if imagined.model is not None:
        try:
            check_id(imagined.model, "model")
        except ValueError as error:
            raise InvalidInput(str(error), field="what_if.model") from error
        if imagined.model.startswith("."):
            raise InvalidInput(f"{imagined.model} is no version of a model", field="what_if.model")


def _one_of(field: str, value: str, known: Iterable[str]) -> None:
    if value not in set(known):
        raise InvalidInput(f"{field} {value[:60]!r} is none of {', '.join(known)}", field=field)


def _known(field: str, names: Iterable[str], known: Collection[str], what: str) -> None:
    names = tuple(names)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidInput(f"there is no {what} {unknown[0]}", field=field)
    _unique(field, names, what)


def _unique(field: str, names: Iterable[str], what: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{what} {twice[0]} stands twice", field=field)
