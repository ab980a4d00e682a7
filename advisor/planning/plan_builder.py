"""Builds a plan: answers each kind of request with ordered steps, the way back, and figures of before and after."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from advisor import work
from advisor.deadline import Progress
from advisor.domain import (
    MOVING_KINDS,
    Capacity,
    ClassSizing,
    Instance,
    Plan,
    PlanEnd,
    PlanKind,
    PlanRequest,
    PlanStep,
    Search,
    Variant,
    WhatIf,
    is_guessed,
    listed,
    rests_on,
)
from advisor.domain.rules import Violation
from advisor.errors import InvalidInput
from advisor.placement.evidence import class_note
from advisor.planning import joint_placement, steps
from advisor.planning.assignment.divided import is_large
from advisor.planning.assignment.packing_problem import Aim
from advisor.planning.capacity import capacity
from advisor.planning.cloud_evaluation import CloudEvaluation, wrong_labels
from advisor.planning.cpu_demand import Measured, as_planned, mix_note, own_mix, planned_demand_note
from advisor.planning.failover import imagine
from advisor.planning.migration_order import MigrationOrder
from advisor.planning.migration_time import MigrationLimits, MoveTimes, whole_time
from advisor.planning.plan_context import PlanContext, StagedAssignment, assign_and_stage, stage_changes, unmet_notes
from advisor.planning.repair import MeasuredMoves, Repair, Rest, every_violation, repair_of
from advisor.planning.rightsizing import SizingResult, right_size
from advisor.planning.steps import tune
from advisor.prediction.active import ActivePredictor, by_name
from advisor.snapshot import ClusterSnapshot
from models.physics.demands import ASSUMED

MOST_LIKE = 3  # notes on which others a new instance is taken to be like
RESTING: tuple[PlanKind, ...] = ("rebalance", "consolidate")  # which leave instances alone that moved lately
AIM_OF_KIND: dict[PlanKind, Aim] = {
    "admit": "admit", "rebalance": "rebalance", "evacuate": "evacuate", "consolidate": "consolidate",
    "repair": "evacuate",
}  # fmt: skip
Models = Callable[[str], ActivePredictor]  # finds the model of a version; raises NotFound or BrokenArtifact


@dataclass(frozen=True, slots=True)
class _Draft:
    """The steps from cloud `start` to `after`, and the other results.

    `tuned` and `untuned` are the steps of a tuning and the way back. `answers` is the predictor for `after` where it
    differs from the one for now.
    """

    start: ClusterSnapshot
    after: ClusterSnapshot
    search: Search | None
    ordered: MigrationOrder | None = None
    refused: tuple[PlanStep, ...] = ()
    capacity: Capacity | None = None
    variants: tuple[Variant, ...] = ()
    sizing: tuple[ClassSizing, ...] = ()
    notes: tuple[str, ...] = ()
    answers: ActivePredictor | None = None
    tuned: tuple[PlanStep, ...] = ()
    untuned: tuple[PlanStep, ...] = ()
    real: bool = True  # the steps are for the current cloud, not for an imagined one


def build_plan(
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
    """Answer a validated request.

    `models` finds the model of an imagined cloud; `measured` returns the CPU usage of instances, `moved` the
    moves of the last week. The same request on the same cloud at the same moment gives the same plan on every machine
    unless the wall clock stops the search.
    """
    context = PlanContext.of(request, chosen, now=now, fresh_s=fresh_s, progress=progress)
    context.say("looking at the cloud", 0.0)
    if _question(request) == "admit":
        snapshot = _without_coming(snapshot, {instance.id for instance in request.instances})
    asked = request
    # Before anything counts: the new instances have the estimate that a placement of each of them has.
    request = replace(request, instances=tuple(map(snapshot.with_class, request.instances)))
    said = (*planned_demand_note(asked), *_unknown(snapshot, request.instances))
    if _question(request) == "capacity" and not request.instances:
        request = replace(request, instances=own_mix(snapshot))
        said = (*said, mix_note(request.instances))
    snapshot, request = as_planned(snapshot, request)
    context = replace(context, request=request, rest=_rest(snapshot, request, moved, now))
    evaluation = CloudEvaluation.of(snapshot, chosen.predictor)
    draft = _draft(context, snapshot, evaluation, models, measured)
    final_predictor = draft.answers or chosen
    concerned = _concerned(draft)
    effects_before, ratios_before = evaluation.effects(hosts=concerned), evaluation.ratios()
    final_evaluation = CloudEvaluation.of(
        draft.after, final_predictor.predictor, evaluation if draft.answers is None else None
    )
    forward_steps: tuple[PlanStep, ...] = ()
    undo_steps: tuple[PlanStep, ...] = ()
    if draft.ordered is not None:
        scheduled = draft.ordered.scheduled
        step_context = steps.StepContext(
            start=draft.start,
            kind=_question(request),
            before=ratios_before,
            after=final_evaluation.ratios(),
            emptied=frozenset(request.empty),
            candidates=joint_placement.candidates(draft.start, scheduled, final_predictor.predictor, request.objective),
            commands=request.commands and draft.real,
        )
        times = MoveTimes(draft.start, MigrationLimits.of(request))
        forward_steps = times.of(steps.steps_forward(step_context, scheduled))
        undo_steps = times.of(steps.steps_back(step_context, draft.ordered.back())) if draft.real else ()
    context.say("done", 1.0)
    return Plan(
        id=_identify(snapshot, request, chosen, now),
        created_at=now,
        model_version=chosen.predictor.version,
        model_origin=chosen.predictor.origin,
        steps=(*forward_steps, *draft.tuned, *draft.refused),
        before=effects_before,
        after=final_evaluation.effects(effects_before, concerned),
        request=asked,
        generation=generation,
        sums_before=evaluation.sums(request.keep_ratio),
        sums_after=final_evaluation.sums(request.keep_ratio),
        search=draft.search,
        capacity=draft.capacity,
        variants=draft.variants,
        sizing=draft.sizing,
        undo=(*undo_steps, *draft.untuned),
        duration_s=whole_time(forward_steps),
        degraded=chosen.degraded,
        notes=tuple(
            dict.fromkeys(
                (*chosen.notes, *said, *wrong_labels(snapshot), *draft.notes, *_rests_on(snapshot, draft), *_stopped())
            )
        ),
    )


def _concerned(draft: _Draft) -> frozenset[str] | None:
    """The hosts whose instances a plan shows; None = all, unless the cloud is so large that it was divided."""
    if draft.ordered is None or not draft.real or not is_large(draft.start):
        return None
    changes = [step.change for step in draft.ordered.scheduled]
    ends = [one for change in changes for one in (change.then, change.former) if one is not None]
    return frozenset(one.host for one in ends if one.host is not None)


def _stopped() -> tuple[str, ...]:
    """A note where the wall clock decided about the answer."""
    if not work.stopped():
        return ()
    return (
        "The clock stopped the search before its work was done: nothing is proven beyond the bound above, and another "
        "run may give another answer. A larger time limit avoids that.",
    )


def _rests_on(snapshot: ClusterSnapshot, draft: _Draft) -> tuple[str, ...]:
    """A note on whose demand is a guess where the answer is that nothing is to be done."""
    if draft.search is None or draft.search.ended != "already fine":
        return ()
    there = [instance for residents in snapshot.residents for instance in residents]
    note = rests_on(sum(is_guessed(instance, snapshot.names.profiled) for instance in there), len(there))
    return (note,) if note else ()


def _question(request: PlanRequest) -> PlanKind:
    """The kind of plan to make, for what_if on the imagined cloud."""
    return request.then or request.kind


def _without_coming(snapshot: ClusterSnapshot, names: Collection[str]) -> ClusterSnapshot:
    """The cloud without pending placements of these instances, which are not there yet and cannot move."""
    pending = tuple(instance for instance in snapshot.names.coming if instance.id not in names)
    if len(pending) == len(snapshot.names.coming):
        return snapshot
    return snapshot.changed(seen={}, pending=pending, taken_at=snapshot.taken_at)


def _unknown(snapshot: ClusterSnapshot, instances: Sequence[Instance]) -> tuple[str, ...]:
    """Notes about instances without a profile: what others they are taken to be like, and of which nothing is known;
    and about workload names that are not known."""
    table = snapshot.scenes.table
    without = [instance for instance in instances if not table.row(instance.workload)]
    unknown = [instance for instance in without if "cpu" not in instance.demand]
    assumption = (
        f"each counts as using {ASSUMED.mean:.0%} of its vCPUs, as public traces do, and nothing else, with wide ranges"
    )
    likes = [like for instance in without if (like := class_note(snapshot, instance))]
    notes = likes[:MOST_LIKE]
    if len(likes) > MOST_LIKE:
        notes.append(f"{len(likes) - MOST_LIKE:,} more are taken to be like others in the same way.")
    if unknown:
        who = listed([instance.id for instance in unknown])
        notes.append(f"Nothing is known about what {who} would run: {assumption}.")
    if named := sorted({instance.workload for instance in without if instance.workload}):
        notes.append(f"There is no workload {listed(named)}: define it, or check its spelling.")
    return tuple(notes)


def _draft(
    context: PlanContext, snapshot: ClusterSnapshot, evaluation: CloudEvaluation, models: Models, measured: Measured
) -> _Draft:
    request = context.request
    if request.kind == "what_if":
        return _what_if(context, snapshot, evaluation, models)
    if request.kind == "capacity":
        answer, search, after, notes = capacity(context, snapshot)
        return _Draft(snapshot, after, search, capacity=answer, notes=notes)
    if request.kind == "right_size":
        return _right_size(evaluation, right_size(context, snapshot, measured), context)
    if request.kind == "tune":
        tuned = tune(context, snapshot, evaluation)
        return _Draft(snapshot, tuned.after, tuned.search, tuned=tuned.steps, untuned=tuned.undo, notes=tuned.notes)
    aim = AIM_OF_KIND[request.kind]
    if request.kind == "repair":
        context = replace(context, repair=_repair(context, snapshot))
    solved = assign_and_stage(context, snapshot, aim, request.instances)
    notes = (*context.rest.note(), *context.repair.notes)
    if request.kind == "repair":
        solved = _as_repair(solved, every_violation(solved.ordered.after))
    if context.rest.waits and request.kind in RESTING and not solved.ordered.scheduled:
        solved = _not_now(context, snapshot, aim, solved)
    return _of_solved(snapshot, replace(solved, notes=(*solved.notes, *notes)), request)


def _rest(snapshot: ClusterSnapshot, request: PlanRequest, moved: MeasuredMoves, now: datetime) -> Rest:
    """Which instances and hosts wait: of plans that improve those that moved lately, of all those out of window."""
    if request.kind not in MOVING_KINDS:
        return Rest()
    return Rest.of(snapshot, moved() if request.kind in RESTING else (), now, request.rest_h, request.kind in RESTING)


def _repair(context: PlanContext, snapshot: ClusterSnapshot) -> Repair:
    """What has to leave its host so that all rules hold, among the instances that may move."""
    staying, movable = context.rest.staying(snapshot), context.request.movable

    def may_move(instance: Instance) -> bool:
        named = movable is None or instance.id in movable
        known = instance.id in snapshot.names.placed and instance.id not in staying
        return named and known and not instance.never_moves

    return repair_of(snapshot, may_move)


def _as_repair(solved: StagedAssignment, left: Iterable[Violation]) -> StagedAssignment:
    """The same with the number of rules that still do not hold; nothing better is known than none."""
    broken = list(left)
    ended: PlanEnd = "already fine" if not (broken or solved.ordered.scheduled) else solved.search.ended
    ended = "in the way" if broken and ended != "time" else ended
    search = Search("rules that do not hold", float(len(broken)), 0.0, float(len(broken)), ended)
    return replace(solved, search=search)


def _not_now(context: PlanContext, snapshot: ClusterSnapshot, aim: Aim, solved: StagedAssignment) -> StagedAssignment:
    """A plan without steps, which says what it would do if no instance and no host rested."""
    later = assign_and_stage(replace(context, rest=Rest(), progress=None), snapshot, aim).ordered.scheduled
    if not later:
        return solved
    moves = [f"{step.change.then.id} to {step.change.then.host}" for step in later]
    count = "1 move" if len(moves) == 1 else f"{len(moves):,} moves"
    note = f"Not now: {count} would pay ({listed(moves, MOST_LIKE)}), but not before the rest after a move is over."
    return replace(solved, search=replace(solved.search, ended="not now"), notes=(*solved.notes, note))


def _right_size(evaluation: CloudEvaluation, sizing: SizingResult, context: PlanContext) -> _Draft:
    """Sizes follow rules, not a search: no bound applies."""
    snapshot = evaluation.snapshot
    ordered = stage_changes(context, snapshot, sizing.changes)
    fine = Search("other sizes and caps", 0.0, 0.0, 0.0, "already fine")
    notes = [*sizing.notes, *unmet_notes(ordered, {change.then.id for change in sizing.changes})]
    freed = sum(step.change.former.vcpus - step.change.then.vcpus for step in ordered.scheduled if step.change.former)
    if freed:
        some = "1 vCPU" if abs(freed) == 1 else f"{abs(freed)} vCPUs"
        notes.append(f"Frees {some}." if freed > 0 else f"Adds {some}.")
    below = 0 if sizing.changes else len(evaluation.below(context.request.keep_ratio))
    if below and sizing.in_time:
        some = "1 instance stays" if below == 1 else f"{below:,} instances stay"
        notes.append(f"{some} below a limit: no size or cap helps; a rebalance may.")
    search = fine if sizing.of_all and not (sizing.changes or below) else None
    return _Draft(snapshot, ordered.after, search, ordered, sizing=sizing.by_class, notes=tuple(notes))


def _of_solved(snapshot: ClusterSnapshot, solved: StagedAssignment, request: PlanRequest) -> _Draft:
    ordered = solved.ordered
    return _Draft(
        snapshot, ordered.after, solved.search, ordered, _refused(solved, request.instances), notes=solved.notes
    )


def _refused(solved: StagedAssignment, requested: tuple[Instance, ...]) -> tuple[PlanStep, ...]:
    """Steps without a host for instances that no host takes; requested ones come first, in their order."""
    position = {instance.id: number for number, instance in enumerate(requested)}
    names = sorted(solved.refused, key=lambda name: (position.get(name, len(position)), name))
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


def _what_if(context: PlanContext, snapshot: ClusterSnapshot, evaluation: CloudEvaluation, models: Models) -> _Draft:
    """The current and the imagined cloud side by side, each with what the request asks of it."""
    request, what_if = context.request, context.request.what_if
    assert what_if is not None  # noqa: S101 - checked on its way in
    if request.then is None and not _is_felt(snapshot, what_if):
        message = "the imagined cloud changes nothing for the instances that run; say what to ask of it: then"
        raise InvalidInput(f"{message} capacity, admit, rebalance or consolidate", field="then")
    cloud, homeless, notes = imagine(snapshot, what_if)
    other = replace(context, chosen=work.counting(by_name(models(what_if.model)))) if what_if.model else context
    anywhere = replace(other.part(0.0, 0.2), request=replace(request, hosts=None))
    imagined_before, moved = cloud, assign_and_stage(anywhere, cloud, "admit", homeless) if homeless else None
    cloud = moved.ordered.after if moved else imagined_before
    refusals = _refused(moved, ()) if moved else ()
    keep = request.keep_ratio
    imagined_evaluation = CloudEvaluation.of(cloud, other.chosen.predictor)
    variants = [Variant("now", evaluation.sums(keep)), Variant("imagined", imagined_evaluation.sums(keep), notes=notes)]
    homeless_notes = tuple(f"{refusal.instance} finds no host in the imagined cloud." for refusal in refusals)
    search = moved.search if moved else None
    all_notes = (*notes, *homeless_notes, *(moved.notes if moved else ()))
    relocation = moved.ordered if moved else None
    draft = _Draft(
        imagined_before, cloud, search, relocation, refused=refusals, notes=all_notes, answers=other.chosen, real=False
    )
    if request.then is None:
        return replace(draft, variants=tuple(variants))
    first_half = replace(context.part(0.2, 0.6), until=context.until - context.left_s / 2)
    other = other.part(0.6, 1.0)
    if request.then == "capacity":
        now_fits, *_ = capacity(first_half, snapshot)
        fits, search, after, capacity_notes = capacity(other, cloud)
        variants = [
            replace(
                variant,
                fit=room.fit,
                runs_out_month=room.runs_out_month,
                instance_days=room.instance_days(request.growth),
            )
            for variant, room in zip(variants, (now_fits, fits), strict=True)
        ]
        return replace(
            draft,
            after=after,
            search=search,
            capacity=fits,
            variants=tuple(variants),
            notes=(*draft.notes, *capacity_notes),
        )
    result_now = _of_solved(
        snapshot, assign_and_stage(first_half, snapshot, AIM_OF_KIND[request.then], request.instances), request
    )
    result_imagined = _of_solved(
        cloud, assign_and_stage(other, cloud, AIM_OF_KIND[request.then], request.instances), request
    )
    for name, result, asked_of in (("now", result_now, context), ("imagined", result_imagined, other)):
        sums = CloudEvaluation.of(result.after, asked_of.chosen.predictor).sums(keep)
        placed = {step.change.then.id for step in result.ordered.scheduled} if result.ordered else set()
        fit = len(placed) if request.then == "admit" else None
        variants.append(Variant(f"{name}, after {request.then}", sums, fit, result.notes))
    return replace(
        result_imagined,
        start=imagined_before,
        ordered=_one_after_another(relocation, result_imagined.ordered),
        refused=(*refusals, *result_imagined.refused),
        variants=tuple(variants),
        notes=(*draft.notes, *result_imagined.notes),
        answers=other.chosen,
        real=False,
    )


def _is_felt(snapshot: ClusterSnapshot, what_if: WhatIf) -> bool:
    """Whether anything differs for an instance that runs: more room, by new hosts or overcommit, differs for no one."""
    changed = any(host.id in snapshot.names.positions for host in what_if.hosts)
    return changed or bool(what_if.remove or what_if.model) or what_if.pinning != "as_it_is"


def _one_after_another(first: MigrationOrder | None, second: MigrationOrder | None) -> MigrationOrder | None:
    """The stages of both; those of the second start where the first ends."""
    if first is None or second is None:
        return first or second
    offset = 1 + max((step.stage for step in first.scheduled), default=-1)
    scheduled = (*first.scheduled, *(replace(step, stage=step.stage + offset) for step in second.scheduled))
    return MigrationOrder(scheduled, {**first.stuck, **second.stuck}, second.after)


def _identify(snapshot: ClusterSnapshot, request: PlanRequest, chosen: ActivePredictor, now: datetime) -> str:
    """An id that sorts by time (ms) and is the same for the same request at the same moment."""
    there: object = (snapshot.hosts, snapshot.residents, snapshot.workloads)
    if is_large(snapshot):  # to write out each instance would take seconds
        there = [host.id for host in snapshot.hosts], hashlib.sha256(snapshot.fingerprints.tobytes()).hexdigest()
    question = repr((there, request, chosen.predictor.version))
    return f"{int(now.timestamp() * 1000):012x}-{hashlib.sha256(question.encode()).hexdigest()[:10]}"
