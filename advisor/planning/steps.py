"""The steps of a plan as values: action, reason and commands of each, and the steps back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from advisor.domain import Band, Candidate, Command, Host, Instance, PlanAction, PlanKind, PlanStep, Search, speed
from advisor.errors import InvalidInput
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.migration_order import ScheduledChange
from advisor.planning.plan_context import PlanContext
from advisor.render import migrations
from advisor.render.change import backwards
from advisor.scheduling.scoring import PIN_GAIN
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import HostTuning, tune_host
from advisor.tuning.layouts import felt, worth
from advisor.tuning.steps import driver_cpus, driver_weight, steps_of


@dataclass(frozen=True, slots=True)
class StepContext:
    """What describes a step: T/B of every instance before and after, the plan's kind, new VMs' candidates, and
    options."""

    start: ClusterSnapshot
    kind: PlanKind
    before: Mapping[str, Band]
    after: Mapping[str, Band]
    emptied: frozenset[str]
    candidates: Mapping[str, Candidate]
    commands: bool


def steps_forward(context: StepContext, scheduled: Sequence[ScheduledChange]) -> tuple[PlanStep, ...]:
    """The steps in order."""
    residents = _Residents.of(context.start)
    plan_steps = []
    for scheduled_step in scheduled:
        then, former = scheduled_step.change.then, scheduled_step.change.former
        step = _step(context, residents, former, then)
        placed = context.candidates.get(then.id) if step.action == "place" else None
        plan_steps.append(
            replace(
                step,
                score=None if placed is None else placed.score,
                new_vm=None if placed is None else placed.new_vm,
                neighbours=() if placed is None else placed.neighbours,
                stage=scheduled_step.stage,
                why=_why(context, scheduled_step, step.action),
                gain=scheduled_step.change.gain,
            )
        )
    return tuple(plan_steps)


def steps_back(context: StepContext, undone: Sequence[ScheduledChange]) -> tuple[PlanStep, ...]:
    """The steps that restore the former cloud, in order; `undone` is the way back of what was carried out."""
    residents = _Residents.of(context.start)
    for undone_step in reversed(undone):
        residents.do(undone_step.change.former, undone_step.change.then)
    plan_steps = []
    for undone_step in undone:
        now, former = undone_step.change.then, undone_step.change.former
        if former is None:
            notes = (f"remove {now.id} where it was started",)
            step = PlanStep(now.id, None, action="remove", source=now.host, notes=notes)
            residents.do(now, None)
        else:
            step = _step(context, residents, now, former)
        plan_steps.append(replace(step, stage=undone_step.stage, why="undoes the step"))
    return tuple(plan_steps)


def _step(context: StepContext, residents: _Residents, former: Instance | None, then: Instance) -> PlanStep:
    """What is to be done so that an instance is as `then`; `residents` are as before, and then as afterwards."""
    action = action_of(former, then)
    commands, notes = _rendered(residents, former, then, action) if context.commands else ((), ())
    residents.do(former, then)
    return PlanStep(
        instance=then.id,
        host=then.host,
        action=action,
        source=former.host if former else None,
        settings=then.settings if former is None or former.settings != then.settings else None,
        vcpus=then.vcpus if former and former.vcpus != then.vcpus else None,
        commands=commands,
        notes=notes,
    )


def action_of(former: Instance | None, then: Instance) -> PlanAction:
    """The kind of a step."""
    if former is None or former == then:
        return "place"
    if former.host != then.host:
        return "move"
    return "resize" if former.vcpus != then.vcpus else "settings"


@dataclass(slots=True)
class _Residents:
    """Which instance is on which host at the moment of a step; commands depend on it."""

    snapshot: ClusterSnapshot
    there: dict[str, dict[str, Instance]]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> _Residents:
        pairs = zip(snapshot.hosts, snapshot.residents, strict=True)
        return cls(snapshot, {host.id: {instance.id: instance for instance in residents} for host, residents in pairs})

    def do(self, former: Instance | None, then: Instance | None) -> None:
        for instance in (former, then):
            if instance is not None:
                self.there[instance.host or ""].pop(instance.id, None)
        if then is not None:
            self.there[then.host or ""][then.id] = then

    def beside(self, instance: Instance) -> tuple[Instance, ...]:
        """All others on its host, by id."""
        residents = self.there[instance.host or ""]
        return tuple(residents[name] for name in sorted(residents) if name != instance.id)


def _rendered(
    residents: _Residents, former: Instance | None, then: Instance, action: PlanAction
) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Commands, and notes about missing ones."""
    hosts, positions = residents.snapshot.hosts, residents.snapshot.names.positions
    host, neighbours = hosts[positions[then.host or ""]], residents.beside(then)
    try:
        if former is None:
            commands = migrations.place(then, host, neighbours)
        elif action == "move":
            source = hosts[positions[former.host or ""]]
            commands = migrations.move(former, then, source, host, residents.beside(former), neighbours)
        else:
            sized = migrations.resize(host, former, then) if former.vcpus != then.vcpus else ()
            commands = (*sized, *migrations.settings(host, former, then, neighbours))
    except InvalidInput as error:
        return (), (error.message,)
    return commands, tuple(command.note for command in commands if not command.argv and command.note)


def _why(context: StepContext, step: ScheduledChange, action: PlanAction) -> str:
    if step.change.why:
        return step.change.why
    if step.between:
        return f"makes room for {step.between} and moves on later"
    return " and ".join(_reasons(context, step, action))


def _reasons(context: StepContext, step: ScheduledChange, action: PlanAction) -> Iterator[str]:
    then, former = step.change.then, step.change.former
    before, after = context.before.get(then.id), context.after.get(then.id)
    if former is not None and action != "move":
        yield f"it is on {then.host} already, and no other host is better"
    if action == "place":
        candidate = context.candidates.get(then.id)
        if candidate is not None:
            effects = (candidate.new_vm, *candidate.neighbours)
            worst = min(effects, key=lambda effect: effect.throughput_ratio.expected)
            least = worst.throughput_ratio.expected
            yield f"every instance on {then.host} runs at {speed(least)} or more ({worst.instance})"
        return
    origin = context.start.names.placed.get(then.id)  # a bypassed instance has another source in its step
    home = origin.host if origin else former.host if former else None
    if home in context.emptied:
        yield f"{home} is to be emptied"
    if step.change.gain is not None:
        yield f"reduces the loss of the instances on both hosts by {step.change.gain.expected:.2f}"
    if context.kind == "consolidate" and home is not None:
        yield f"leaves {home}, so that fewer hosts are needed"
    if before is not None and after is not None and action == "move":
        was = f" (on {home}: {100 * before.expected:.0f} %)" if origin else ""
        yield f"{then.id} runs at {speed(after.expected)} on {then.host}{was}"


# Plans of the kind tune: better settings on hosts that stand as they are, as ordered steps with commands and undo.

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
