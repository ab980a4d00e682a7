"""Moves that pay, for schedulers that carry them out themselves: a rebalance in which each mover has its own hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from advisor.domain import Move, PlanRequest
from advisor.planning.assignment.assign import assign
from advisor.planning.migration_limits import MigrationLimits
from advisor.planning.migration_order import schedule
from advisor.planning.plan_context import PlanContext, changes_of
from advisor.planning.rest import MeasuredMoves, Rest
from advisor.prediction.context import QuestionContext
from advisor.snapshot import ClusterSnapshot


def paying_moves(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    targets: Mapping[str, Sequence[str]],
    *,
    most: int,
    within_s: float,
    moved: MeasuredMoves = tuple,
) -> tuple[Move, ...]:
    """At most `most` moves that a rebalance would make, in an order in which each breaks no limit.

    `targets` maps the instances that may move to their allowed hosts. No instance takes a detour over a third host,
    because such a scheduler knows one move of each instance. Instances that
    `moved` lately rest. The search stops after `within_s` seconds.
    """
    if within_s <= 0 or not targets:
        return ()
    request = PlanRequest(kind="rebalance", movable=tuple(targets), max_moves=most, time_limit_s=within_s)
    plan = PlanContext.of(request, context.active, now=context.now, fresh_s=context.fresh_s)
    plan = replace(plan, rest=Rest.of(snapshot, moved(), context.now, request.rest_h))
    limit_s = max(min(within_s, plan.left_s / 2), 0.01)
    goal = replace(
        plan.goal(snapshot, "rebalance", (), limit_s),
        targets_of={name: frozenset(hosts) for name, hosts in targets.items()},
    )
    assignment = assign(snapshot, context.active, goal, now=context.now, fresh_s=context.fresh_s)
    former = {instance.id: instance for residents in snapshot.residents for instance in residents}
    ordered = schedule(
        snapshot,
        changes_of(assignment, former),
        context.active.predictor,
        keep_ratio=request.keep_ratio,
        limits=MigrationLimits.of(request),
        between=(),
        most_moves=most,
    )
    moves = []
    for step in ordered.scheduled:
        then, source, gain = step.change.then, step.change.former, step.change.gain
        if source is not None and then.host is not None and gain is not None:
            why = f"reduces the loss of the instances on both hosts by {gain.expected:.2f}, beyond uncertainty"
            moves.append(Move(then.id, source.host or "", then.host, why, gain=gain.expected))
    return tuple(moves)
