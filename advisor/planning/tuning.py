"""Plans of the kind tune: better settings on hosts that stand as they are, as ordered steps with commands and undo."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor.domain import Host, Instance, PlanAction, PlanStep, Search
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.plan_context import PlanContext
from advisor.render.change import backwards
from advisor.scheduling.scoring import PIN_GAIN
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import HostTuning, tune_host
from advisor.tuning.layouts import felt, worth
from advisor.tuning.steps import driver_cpus, driver_weight, steps_of

AIMS = {"worst": "worst T/B of the hosts that were looked at", "total": "sum of T/B on the hosts that were looked at"}


@dataclass(frozen=True, slots=True)
class Tuned:
    """The steps of a tuning, the steps back, the cloud afterwards, and how they were found."""

    steps: tuple[PlanStep, ...]
    undo: tuple[PlanStep, ...]
    after: ClusterSnapshot
    search: Search | None
    notes: tuple[str, ...]


def tune(context: PlanContext, snapshot: ClusterSnapshot, evaluation: CloudEvaluation) -> Tuned:
    """Tune the hosts of the request, or all, those first on which the most affected instance is worst off.

    A host on which nothing worth a change can be gained is not searched. Where the time is over before all hosts were
    looked at, a note says so.
    """
    waiting = _worst_first(context, snapshot, evaluation)
    steps, undo, notes = list[PlanStep](), list[PlanStep](), list[str]()
    hosts: dict[str, Host | None] = {}
    instances: dict[str, Instance | None] = {}
    ended, until = False, context.wall_until
    for number, position in enumerate(waiting):
        if time.monotonic() >= until:
            unseen = len(waiting) - number
            notes.append(f"Time limit reached before {unseen} of {len(waiting)} hosts were looked at.")
            ended = True
            break
        context.say(f"tuning {snapshot.hosts[position].id}", number / len(waiting))
        found = tune_host(
            snapshot,
            position,
            context.chosen.predictor,
            objective=context.request.objective,
            allow=context.request.allow,
            until=until,
            seed=context.request.seed,
        )
        if found.found.timed_out:
            ended = True
            notes.append(f"{snapshot.hosts[position].id}: the time limit ended the search; this is the best so far.")
        notes += found.notes
        forward = tuple(_steps(snapshot.residents[position], found, commanded=context.request.commands))
        steps += forward
        undo += _back(snapshot.hosts[position], found, forward)
        for change in found.changes:
            if change.then is None:
                hosts[change.host.id] = change.host
            else:
                instances[change.then.id] = replace(
                    snapshot.names.placed[change.then.id], settings=change.then.settings
                )
    after = (
        snapshot.changed(
            seen={}, pending=snapshot.names.coming, taken_at=snapshot.taken_at, hosts=hosts, instances=instances
        )
        if hosts or instances
        else snapshot
    )
    return Tuned(
        tuple(sorted(steps, key=lambda step: step.stage)),
        tuple(sorted(undo, key=lambda step: step.stage)),
        after,
        _search(context, after, ended=ended, changed=bool(steps)),
        tuple(notes),
    )


def _worst_first(context: PlanContext, snapshot: ClusterSnapshot, evaluation: CloudEvaluation) -> list[int]:
    """Positions of the hosts on which a change may pay, the one with the most affected instance first."""
    asked = context.request.hosts
    prediction = evaluation.prediction
    if prediction is None:
        return []
    lowest = []
    below = evaluation.below(context.request.keep_ratio)
    for position, host in enumerate(snapshot.hosts):
        count = len(snapshot.residents[position])
        if not count or (asked is not None and host.id not in asked):
            continue
        kept = prediction.throughput.expected[position, :count]
        limited = any(resident.id in below for resident in snapshot.residents[position])
        minding = np.array([resident.service == "latency" for resident in snapshot.residents[position]], dtype=bool)
        felt_there = felt(kept, prediction.latency.expected[position, :count], minding)
        if limited or 1 - float(worth(felt_there[None], "worst")[0]) >= PIN_GAIN:
            lowest.append((round(float(kept.min()), 9), host.id, position))
    return [position for _, _, position in sorted(lowest)]


def _search(context: PlanContext, after: ClusterSnapshot, *, ended: bool, changed: bool) -> Search:
    """What was reached; no plan can surpass full speed for all."""
    result = CloudEvaluation.of(after, context.chosen.predictor)
    asked = context.request.hosts
    ratios = [
        band.expected
        for instance, band in result.ratios().items()
        if asked is None or after.names.placed[instance].host in asked
    ] if result.prediction is not None else []  # fmt: skip
    total = context.request.objective == "total"
    value = sum(ratios) if total else min(ratios, default=1.0)
    bound = max(float(len(ratios)) if total else 1.0, value)
    gap = (bound - value) / bound if bound else 0.0
    if not changed and gap < PIN_GAIN:
        return Search(AIMS[context.request.objective], value, bound, gap, "already fine")
    return Search(AIMS[context.request.objective], value, bound, gap, "time" if ended else "search")


def _steps(residents: Sequence[Instance], found: HostTuning, *, commanded: bool) -> Iterator[PlanStep]:
    """The changes of one host as steps, one in each stage."""
    host = found.host.id
    for stage, step in enumerate(steps_of(found.host, residents, found.changes, commanded=commanded)):
        action: PlanAction = "settings" if step.instance else "driver_domain"
        same = {field.name: getattr(step, field.name) for field in fields(step)}
        yield PlanStep(host=host, action=action, source=host, stage=stage, **same)


def _back(host: Host, found: HostTuning, forward: Sequence[PlanStep]) -> list[PlanStep]:
    """The same the other way round."""
    former = [host, *(change.host for change in found.changes)]
    steps = []
    for number, (change, step) in enumerate(zip(reversed(found.changes), reversed(forward), strict=True)):
        before = former[len(found.changes) - 1 - number]
        steps.append(
            PlanStep(
                instance=step.instance,
                host=step.host,
                action=step.action,
                source=step.source,
                stage=number,
                why="undoes the step",
                settings=change.former.settings if change.former else None,
                commands=backwards(step.commands),
                driver_cpus=() if change.then else driver_cpus(before),
                driver_weight=None if change.then else driver_weight(before, change.host),
            )
        )
    return steps
