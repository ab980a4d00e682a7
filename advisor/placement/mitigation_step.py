"""Mitigates the best hosts on which the placement violates a limit, and rejects the others with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import mitigation
from advisor.domain import LONGEST_KNOWN_LATENCY, Instance, MitigationStep, Rejection, speed, time_part
from advisor.placement.candidates import RankedHost, place, slots_by_id, write_effects
from advisor.placement.host_classes import ClassPredictions, HostClasses, PlacementQuestion
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from models.arrays import Bools
from models.prediction import BandArrays, CpuPressure, InterferencePrediction

MAX_MITIGATED_HOSTS = 3  # hosts on which mitigation is tried; each costs as much as a small request
NEEDS_SETTINGS = "limit.settings"  # code of hosts that would need changed settings where the request allows none


def mitigate(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    ranked_host: RankedHost,
    host_class: int,
    others: Sequence[str],
) -> tuple[tuple[MitigationStep, ...], RankedHost | None]:
    """Try mitigation on a host of a class: the steps tried, and the ranked host if they succeeded.

    A step that names another host does not succeed here. `others` are hosts that keep all limits, best first.
    """
    placed_new_vm = place(question, [ranked_host.host], [ranked_host.option])
    steps = mitigation.escalate(
        placed_new_vm.hosts[0],
        placed_new_vm.residents[0],
        placed_new_vm.new_vms[0],
        table=question.table,
        row=question.row,
        predictor=question.predictor,
        others=others,
    )
    if not steps or not steps[-1].satisfies or steps[-1].action == "host":
        return steps, None
    row = slice(host_class, host_class + 1)
    after = _empty_prediction(classes.present[row])
    write_effects(after, 0, steps[-1].effects, slots_by_id(placed_new_vm, 0))
    scores = scoring.score(
        after,
        classes.present[row],
        predicted.before[row],
        classes.limits[row],
        classes.used[row],
        question.request.objective,
        half_before=predicted.half_before[row],
        more_short=scoring.more_short(after.time_short(), predicted.short_before[row], classes.profiled[row]),
    ).less(np.array([ranked_host.reserved]))
    value, expected, half_width = (float(values[0]) for values in (scores.score, scores.expected, scores.half_width))
    lowest = float(np.nanmin(after.throughput.expected))
    speed = np.nan if np.isnan(ranked_host.speed) else float(1 / after.latency.expected[0, -1])
    ranked = replace(ranked_host, score=value, expected=expected, half_width=half_width, lowest=lowest, speed=speed)
    return steps, replace(ranked, steps=steps)


def _empty_prediction(present: Bools) -> InterferencePrediction:
    """A prediction to be filled in."""
    throughput, latency, jitter = (BandArrays(*(np.full(present.shape, np.nan) for _ in range(3))) for _ in range(3))
    share, worst, short = (np.full(present.shape, np.nan) for _ in range(3))
    no = np.zeros(present.shape, dtype=bool)
    pressure = CpuPressure(share, worst, short, no.copy(), np.full(len(present), np.nan))
    return InterferencePrediction(throughput, latency, jitter, no, pressure)


def rejections(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    hosts: Sequence[tuple[int, int, int]],
    steps_by_host: Mapping[int, tuple[MitigationStep, ...]],
) -> list[Rejection]:
    """Why hosts that pass all filters are rejected for a limit.

    `hosts` are (position, class, option); `steps_by_host` the steps that failed, by position.
    """
    return [
        _with_outcome(question, _rejection(question, classes, predicted, *host_entry), steps_by_host.get(host_entry[0]))
        for host_entry in hosts
    ]


def _with_outcome(
    question: PlacementQuestion, rejection: Rejection, steps: tuple[MitigationStep, ...] | None
) -> Rejection:
    if not question.request.mitigate:
        return replace(
            rejection, code=NEEDS_SETTINGS, reason=f"{rejection.reason}, and settings of instances may not change"
        )
    tried = "; isolation was tried on better hosts only" if steps is None else ", and no mitigation step restores it"
    return replace(rejection, reason=rejection.reason + tried, mitigation=steps or ())


def _rejection(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    position: int,
    host_class: int,
    option: int,
) -> Rejection:
    """The new VM's own limit is named before a neighbour's, and throughput before latency and time short."""
    snapshot, new_vm = question.snapshot, question.request.instance
    ratio, least = predicted.expected[option, host_class], classes.limits[host_class] - SLACK
    slow, short = (
        (limit.after[0], (limit.after > limit.highest + SLACK) & (limit.before <= limit.highest + SLACK))
        for limit in predicted.ceilings(classes, np.array([option]), np.array([host_class]))
    )
    kinds = (
        ("limit.{}", ratio, (ratio < least) & (predicted.before[host_class] >= least)),
        ("limit.{}_latency", slow[0], slow[1][0]),
        ("limit.{}_time_short", short[0], short[1][0]),
    )
    host, present = snapshot.hosts[position].id, classes.present[host_class]
    last = len(present) - 1
    for code, values, broken in kinds:
        if present[last] and broken[last]:
            return _limit_rejection(host, code.format("new_vm"), new_vm, float(values[last]))
    for code, values, broken in kinds:
        for slot in np.flatnonzero(broken & present)[:1].tolist():
            resident = snapshot.residents[position][slot]
            return _limit_rejection(host, code.format("neighbour"), resident, float(values[slot]))
    raise AssertionError("a host that breaks no limit is not rejected for one")


def _limit_rejection(host: str, code: str, instance: Instance, value: float) -> Rejection:
    if code.endswith("_latency"):
        late = f"{value:.2f}" if value <= LONGEST_KNOWN_LATENCY else f"more than {LONGEST_KNOWN_LATENCY:g}"
        text = f"would wait {late} times as long as alone, its limit is {instance.max_latency_ratio:g}"
    elif code.endswith("_time_short"):
        longest = time_part(instance.max_time_short or 0.0)
        text = f"would be contended {time_part(value)} of the time, its limit is {longest}"
    else:
        text = f"would run at {speed(value)}, its limit is {100 * (instance.min_throughput_ratio or 0.0):g} %"
    return Rejection(host, code, f"{instance.id} {text}")
