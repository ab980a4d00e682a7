"""Plans of the kind tune: better settings on hosts that stand as they are, as ordered steps with commands and undo."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.domain import Command, Effect, Host, Instance, IsolationSettings, PlanStep, Search
from advisor.errors import InvalidInput
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.plan_context import PlanContext
from advisor.render import commands, driver
from advisor.render.change import backwards
from advisor.render.migrations import explicit
from advisor.render.names import target_of
from advisor.scheduling.scoring import PIN_GAIN
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import HostTuning, TunedChange, tune_host
from advisor.tuning.layouts import worth
from profiler.observed import DEFAULT_WEIGHT, format_cpus

MOST_NAMED = 3  # instances that a step's reason names
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
    ended = False
    for number, position in enumerate(waiting):
        if context.left_s <= 0:
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
            until=context.until,
            seed=context.request.seed,
        )
        ended |= found.found.timed_out
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
        if limited or 1 - float(worth(kept[None], "worst")[0]) >= PIN_GAIN:
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
    there = {resident.id: resident for resident in residents}
    host = found.host
    for stage, change in enumerate(found.changes):
        rendered, notes = _rendered(host, there, change) if commanded else ((), ())
        step = PlanStep(
            instance=change.then.id if change.then else "",
            host=host.id,
            action="settings" if change.then else "driver_domain",
            source=host.id,
            stage=stage,
            why=_why(host, change),
            settings=change.then.settings if change.then else None,
            commands=rendered,
            notes=notes,
            effects=change.effects,
        )
        yield step if change.then else _of_driver(step, change.host, host)
        host = change.host
        if change.then is not None:
            there[change.then.id] = change.then


def _back(host: Host, found: HostTuning, forward: Sequence[PlanStep]) -> list[PlanStep]:
    """The same the other way round."""
    former = [host, *(change.host for change in found.changes)]
    steps = []
    for number, (change, step) in enumerate(zip(reversed(found.changes), reversed(forward), strict=True)):
        undone = PlanStep(
            instance=step.instance,
            host=step.host,
            action=step.action,
            source=step.source,
            stage=number,
            why="undoes the step",
            settings=change.former.settings if change.former else None,
            commands=backwards(step.commands),
        )
        before = former[len(found.changes) - 1 - number]
        steps.append(undone if change.then else _of_driver(undone, before, change.host))
    return steps


def _of_driver(step: PlanStep, host: Host, former: Host) -> PlanStep:
    """A step with the pCPUs and the weight of the driver domain as on `host`."""
    weight = host.driver_weight if host.driver_weight != former.driver_weight else None
    return replace(step, driver_cpus=host.driver_cpus or host.shared_cpus or tuple(host.cpus), driver_weight=weight)


def _rendered(
    host: Host, there: Mapping[str, Instance], change: TunedChange
) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Commands of one change on a host as it is before it, and notes about missing ones."""
    try:
        if change.then is None or change.former is None:
            rendered = tuple(_driver_commands(host, there, change.host))
        else:
            beside = [one for name, one in sorted(there.items()) if name != change.then.id]
            wanted = explicit(change.former, change.then)
            rendered = commands(host, change.then, change.former.settings, wanted, neighbours=beside)
    except InvalidInput as error:
        return (), (error.message,)
    return rendered, tuple(command.note for command in rendered if not command.argv and command.note)


def _driver_commands(host: Host, there: Mapping[str, Instance], then: Host) -> Iterator[Command]:
    target = target_of(host, None)
    cpus = then.driver_cpus or then.shared_cpus or tuple(then.cpus)
    yield from driver.commands(host, cpus, [there[name] for name in sorted(there)], target)
    yield from driver.weigh(host, then.driver_weight, target)


def _why(host: Host, change: TunedChange) -> str:
    """What changes, and its effects."""
    return ": ".join(filter(None, (", ".join(_what(host, change)), _effects(change.effects))))


def _what(host: Host, change: TunedChange) -> Iterator[str]:
    if change.then is None or change.former is None:
        if host.driver_cpus != change.host.driver_cpus:
            cpus = change.host.driver_cpus
            yield f"keeps to CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}" if cpus else "may use any CPU"
        if host.driver_weight != change.host.driver_weight:
            yield f"gets the weight {change.host.driver_weight}"
        return
    now, then = change.former.settings, change.then.settings
    if now.pinning is not None and now.pinning.named and then.pinning is None:
        yield f"gives up its pins to CPU{'s' if len(now.pinning.named) > 1 else ''} {format_cpus(now.pinning.named)}"
    yield from _set(now, then)


def _set(now: IsolationSettings, then: IsolationSettings) -> Iterator[str]:
    if then.pinning is not None and then.pinning != now.pinning:
        cpus = then.pinning.named
        yield f"keeps to CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
    if then.weight != now.weight:
        yield f"weighs {(then.weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT:g} times the default"
    if then.cap_percent != now.cap_percent and then.cap_percent is not None:
        yield f"uses at most {then.cap_percent:g} % of a CPU"
    if then.network != now.network and then.network is not None and then.network.rate_mbit is not None:
        yield f"gets a {then.network.mode} traffic class of {then.network.rate_mbit:g} Mbit/s"
    if then.disk_limit_mb_s != now.disk_limit_mb_s and then.disk_limit_mb_s is not None:
        yield f"moves at most {then.disk_limit_mb_s:g} MB/s on its disk"


def _effects(effects: Sequence[Effect]) -> str:
    """The effects that a change changes most, from what to what."""
    known = [(one, one.before) for one in effects if one.before is not None]
    known.sort(key=lambda pair: -abs(pair[0].throughput_ratio.expected - pair[1].expected))
    named = [
        f"{one.instance} {before.expected:.2f} -> {one.throughput_ratio.expected:.2f}"
        for one, before in known[:MOST_NAMED]
    ]
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(named) + more
