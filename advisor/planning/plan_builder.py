"""Making a plan: each kind of question answered on a cloud, with steps in order, the way back, and figures of both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from advisor.domain import Capacity, Instance, Plan, PlanKind, PlanRequest, PlanStep, Search, Variant
from advisor.planning import arrival_candidates, steps
from advisor.planning.assignment.goal import Aim
from advisor.planning.capacity import capacity
from advisor.planning.cloud_evaluation import Standing
from advisor.planning.cpu_demand import Measured
from advisor.planning.migration_order import Ordered
from advisor.planning.plan_context import PlanContext, Progress, Solved, put_in_order, solve, stays
from advisor.planning.rightsizing import Sized, right_size
from advisor.planning.what_if import imagine
from advisor.prediction.active import ActivePredictor, by_name
from advisor.snapshot import ClusterSnapshot

AIMS: dict[PlanKind, Aim] = {
    "admit": "admit", "rebalance": "rebalance", "evacuate": "evacuate", "consolidate": "consolidate",
}  # fmt: skip
Models = Callable[[str], ActivePredictor]  # the model of a version; NotFound or BrokenArtifact where there is none


@dataclass(frozen=True, slots=True)
class _Made:
    """An answer: the steps on the cloud `start` that lead to `after`, and what else was found. `answers` is who answers
    for what is after, where that is not who answers now."""

    start: ClusterSnapshot
    after: ClusterSnapshot
    search: Search | None
    ordered: Ordered | None = None
    refused: tuple[PlanStep, ...] = ()
    capacity: Capacity | None = None
    variants: tuple[Variant, ...] = ()
    notes: tuple[str, ...] = ()
    answers: ActivePredictor | None = None
    real: bool = True  # the steps are for the cloud of now, not for an imagined one


def make(
    snapshot: ClusterSnapshot,
    chosen: ActivePredictor,
    request: PlanRequest,
    *,
    now: datetime,
    fresh_s: float,
    generation: int | None = None,
    models: Models,
    measured: Measured = lambda _: {},
    progress: Progress | None = None,
) -> Plan:
    """Answer a checked request.

    `models` finds the model of an imagined cloud, `measured` what is known of instances' use of CPUs. The same
    request on the same cloud at the same moment has the same plan, unless the time limit ends the search.
    """
    asking = PlanContext.of(request, chosen, now=now, fresh_s=fresh_s, progress=progress)
    asking.say("looking at the cloud", 0.0)
    if _question(request) == "admit":
        snapshot = _without_coming(snapshot, {one.id for one in request.instances})
    first = Standing.of(snapshot, chosen.predictor)
    made = _made(asking, snapshot, first, models, measured)
    later = made.answers or chosen
    before, known = first.effects(), first.ratios()
    last = Standing.of(made.after, later.predictor)
    forth: tuple[PlanStep, ...] = ()
    undo: tuple[PlanStep, ...] = ()
    if made.ordered is not None:
        carried = made.ordered.carried
        telling = steps.Telling(
            start=made.start,
            kind=_question(request),
            before=known,
            after=last.ratios(),
            emptied=frozenset(request.empty),
            candidates=arrival_candidates.candidates(made.start, carried, later.predictor, request.objective),
            commands=request.commands and made.real,
        )
        forth = steps.forth(telling, carried)
        undo = steps.back(telling, made.ordered.back()) if made.real else ()
    asking.say("done", 1.0)
    return Plan(
        id=_identify(snapshot, request, chosen, now),
        created_at=now,
        model_version=chosen.predictor.version,
        model_origin=chosen.predictor.origin,
        steps=(*forth, *made.refused),
        before=before,
        after=last.effects(known),
        request=request,
        generation=generation,
        sums_before=first.sums(request.keep_ratio),
        sums_after=last.sums(request.keep_ratio),
        search=made.search,
        capacity=made.capacity,
        variants=made.variants,
        undo=undo,
        degraded=chosen.degraded,
        notes=tuple(dict.fromkeys((*chosen.notes, *_unknown(snapshot, request), *made.notes))),
    )


def _question(request: PlanRequest) -> PlanKind:
    """What is asked of the cloud, imagined or not."""
    return request.then or request.kind


def _without_coming(snapshot: ClusterSnapshot, names: Collection[str]) -> ClusterSnapshot:
    """The same moment without pending answers for these: who is placed anew is not there yet, and cannot move."""
    pending = tuple(one for one in snapshot.names.coming if one.id not in names)
    if len(pending) == len(snapshot.names.coming):
        return snapshot
    return snapshot.changed(seen={}, pending=pending, taken_at=snapshot.taken_at)


def _unknown(snapshot: ClusterSnapshot, request: PlanRequest) -> tuple[str, ...]:
    """Who counts by its size alone, and whether that is because a workload's name is none that is known."""
    unknown = [one for one in request.instances if not snapshot.scenes.table.row(one.workload)]
    if not unknown:
        return ()
    taken = "each counts as busy on all its vCPUs and as using nothing else, with wider intervals"
    notes = [f"Nothing is known about what {_some([one.id for one in unknown])} would run: {taken}."]
    if named := sorted({one.workload for one in unknown if one.workload}):
        notes.append(f"There is no workload {_some(named)}: put it in, or look how it is spelled.")
    return tuple(notes)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _made(asking: PlanContext, snapshot: ClusterSnapshot, first: Standing, models: Models, measured: Measured) -> _Made:
    request = asking.request
    if request.kind == "what_if":
        return _imagined(asking, snapshot, first, models)
    if request.kind == "capacity":
        found, search, after, notes = capacity(asking, snapshot)
        return _Made(snapshot, after, search, capacity=found, notes=notes)
    if request.kind == "right_size":
        return _sized(first, right_size(asking, snapshot, measured), asking)
    solved = solve(asking, snapshot, AIMS[request.kind], request.instances)
    return _of_solved(snapshot, solved, request)


def _sized(first: Standing, found: Sized, asking: PlanContext) -> _Made:
    """Sizes follow rules and are not searched for: there is no bound to tell, only that all is fine where it is."""
    snapshot = first.snapshot
    ordered = put_in_order(asking, snapshot, found.changes)
    fine = Search("other sizes and caps", 0.0, 0.0, 0.0, "already fine")
    notes = [*found.notes, *stays(ordered, {one.then.id for one in found.changes})]
    freed = sum(one.change.former.vcpus - one.change.then.vcpus for one in ordered.carried if one.change.former)
    if freed:
        some = "1 vCPU" if abs(freed) == 1 else f"{abs(freed)} vCPUs"
        notes.append(f"Frees {some}." if freed > 0 else f"Adds {some}.")
    below = 0 if found.changes else len(first.below(asking.request.keep_ratio))
    if below and found.in_time:
        some = "1 instance stays" if below == 1 else f"{below:,} instances stay"
        notes.append(f"{some} below a limit: no size or cap brings more of them within it; a rebalance may.")
    search = fine if found.of_all and not (found.changes or below) else None
    return _Made(snapshot, ordered.after, search, ordered, notes=tuple(notes))


def _of_solved(snapshot: ClusterSnapshot, solved: Solved, request: PlanRequest) -> _Made:
    ordered = solved.ordered
    return _Made(
        snapshot, ordered.after, solved.search, ordered, _refused(solved, request.instances), notes=solved.notes
    )


def _refused(solved: Solved, asked: tuple[Instance, ...]) -> tuple[PlanStep, ...]:
    """Steps without a host for those that nobody can take: first those asked for, in their order."""
    order = {one.id: number for number, one in enumerate(asked)}
    names = sorted(solved.refused, key=lambda name: (order.get(name, len(order)), name))
    return tuple(
        PlanStep(
            instance=name,
            host=None,
            rejected=solved.refused[name],
            action="move" if name in solved.former else "place",
            source=solved.former[name].host if name in solved.former else None,
            why="no host can take it",
        )
        for name in names
    )


def _imagined(asking: PlanContext, snapshot: ClusterSnapshot, first: Standing, models: Models) -> _Made:
    """Two clouds side by side, each with what the request asks of it."""
    request, what_if = asking.request, asking.request.what_if
    assert what_if is not None  # noqa: S101 - checked on its way in
    cloud, homeless, notes = imagine(snapshot, what_if)
    other = replace(asking, chosen=by_name(models(what_if.model))) if what_if.model else asking
    anywhere = replace(other.part(0.0, 0.2), request=replace(request, hosts=None))
    bare, moved = cloud, solve(anywhere, cloud, "admit", homeless) if homeless else None
    cloud = moved.ordered.after if moved else bare
    lost = _refused(moved, ()) if moved else ()
    keep = request.keep_ratio
    then = Standing.of(cloud, other.chosen.predictor)
    variants = [Variant("now", first.sums(keep)), Variant("imagined", then.sums(keep), notes=notes)]
    gone = tuple(f"{one.instance} finds no host in the imagined cloud." for one in lost)
    search = moved.search if moved else None
    said = (*notes, *gone, *(moved.notes if moved else ()))
    begun = moved.ordered if moved else None
    made = _Made(bare, cloud, search, begun, refused=lost, notes=said, answers=other.chosen, real=False)
    if request.then is None:
        return replace(made, variants=tuple(variants))
    half = replace(asking.part(0.2, 0.6), until=asking.until - asking.left_s / 2)
    other = other.part(0.6, 1.0)
    if request.then == "capacity":
        now_fits, *_ = capacity(half, snapshot)
        fits, search, after, more = capacity(other, cloud)
        variants = [replace(variants[0], fit=now_fits.fit), replace(variants[1], fit=fits.fit)]
        return replace(
            made, after=after, search=search, capacity=fits, variants=tuple(variants), notes=(*made.notes, *more)
        )
    here = _of_solved(snapshot, solve(half, snapshot, AIMS[request.then], request.instances), request)
    there = _of_solved(cloud, solve(other, cloud, AIMS[request.then], request.instances), request)
    for name, one, by in (("now", here, asking), ("imagined", there, other)):
        sums = Standing.of(one.after, by.chosen.predictor).sums(keep)
        placed = {each.change.then.id for each in one.ordered.carried} if one.ordered else set()
        fit = len(placed) if request.then == "admit" else None
        variants.append(Variant(f"{name}, after {request.then}", sums, fit, one.notes))
    return replace(
        there,
        start=bare,
        ordered=_one_after_another(begun, there.ordered),
        refused=(*lost, *there.refused),
        variants=tuple(variants),
        notes=(*made.notes, *there.notes),
        answers=other.chosen,
        real=False,
    )


def _one_after_another(first: Ordered | None, then: Ordered | None) -> Ordered | None:
    """The stages of both, those of `then` on the cloud that `first` leads to."""
    if first is None or then is None:
        return first or then
    later = 1 + max((one.stage for one in first.carried), default=-1)
    carried = (*first.carried, *(replace(one, stage=one.stage + later) for one in then.carried))
    return Ordered(carried, {**first.stuck, **then.stuck}, then.after)


def _identify(snapshot: ClusterSnapshot, request: PlanRequest, chosen: ActivePredictor, now: datetime) -> str:
    """Sorts by time (ms) and is the same for the same question at the same moment."""
    asked = repr((snapshot.hosts, snapshot.residents, snapshot.workloads, request, chosen.predictor.version))
    return f"{int(now.timestamp() * 1000):012x}-{hashlib.sha256(asked.encode()).hexdigest()[:10]}"
