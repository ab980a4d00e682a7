"""Hosts that break somebody's limit: the best ones are mended by the isolation ladder, the others told why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor import mitigation
from advisor.domain import Instance, MitigationStep, Rejection
from advisor.placement.candidates import RankedHost, place, seats, told
from advisor.placement.host_classes import ClassPredictions, HostClasses, Question
from advisor.rounding import SLACK
from advisor.scheduling import scoring
from models.arrays import Bools
from models.prediction import Band, InterferencePrediction

MOST_TRIED = 3  # hosts on which the ladder is tried, each of which costs as much as a small question
NEEDS_SETTINGS = "limit.settings"  # of hosts that break a limit, where nobody's settings are to change


def mend(
    question: Question,
    found: HostClasses,
    predicted: ClassPredictions,
    standing: RankedHost,
    kind: int,
    others: Sequence[str],
) -> tuple[tuple[MitigationStep, ...], RankedHost | None]:
    """Try the ladder on a host of a kind: the steps that were tried, and how it stands if they mended it.

    A step that names another host mends nothing here. `others` are hosts that break nothing, best first.
    """
    placed = place(question, [standing.host], [standing.option])
    rungs = mitigation.escalate(
        placed.hosts[0],
        placed.residents[0],
        placed.newcomers[0],
        table=question.table,
        row=question.row,
        predictor=question.predictor,
        others=others,
    )
    if not rungs or not rungs[-1].satisfies or rungs[-1].action == "host":
        return rungs, None
    row = slice(kind, kind + 1)
    after = _nothing(found.present[row])
    told(after, 0, rungs[-1].effects, seats(placed, 0))
    scores = scoring.score(
        after, found.present[row], predicted.before[row], found.limits[row], found.used[row], question.request.objective
    )
    value, expected, half = (float(one[0]) for one in (scores.score, scores.expected, scores.half_width))
    return rungs, RankedHost(standing.host, standing.option, value, expected, half, rungs)


def _nothing(present: Bools) -> InterferencePrediction:
    """A prediction that is yet to be filled in."""
    throughput, latency, jitter = (Band(*(np.full(present.shape, np.nan) for _ in range(3))) for _ in range(3))
    return InterferencePrediction(throughput, latency, jitter, np.zeros(present.shape, dtype=bool))


def rejections(
    question: Question,
    found: HostClasses,
    predicted: ClassPredictions,
    hosts: Sequence[tuple[int, int, int]],
    rungs: Mapping[int, tuple[MitigationStep, ...]],
) -> list[Rejection]:
    """Why hosts cannot take the instance although nothing but a limit speaks against them.

    `hosts` are (position, kind, option); `rungs` what was tried in vain, by position.
    """
    return [
        _with_what_was_tried(question, _rejection(question, found, predicted, *one), rungs.get(one[0])) for one in hosts
    ]


def _with_what_was_tried(question: Question, one: Rejection, rungs: tuple[MitigationStep, ...] | None) -> Rejection:
    if not question.request.mend:
        return replace(one, code=NEEDS_SETTINGS, reason=f"{one.reason}, and nobody's settings are to change")
    tried = "; isolation was tried on better hosts only" if rungs is None else ", and nothing that was tried mends it"
    return replace(one, reason=one.reason + tried, rungs=rungs or ())


def _rejection(
    question: Question, found: HostClasses, predicted: ClassPredictions, position: int, kind: int, option: int
) -> Rejection:
    """The newcomer's own limit is named before a neighbour's, and a throughput before a latency."""
    snapshot, asked = question.snapshot, question.request.instance
    ratio, latency = predicted.expected[option, kind], predicted.latency[option, kind]
    least, most = found.limits[kind] - SLACK, found.waits[kind] + SLACK
    under = (ratio < least) & (predicted.before[kind] >= least)
    slow = (latency > most) & (predicted.latency_before[kind] <= most)
    there = found.present[kind]
    last = len(there) - 1
    for broken, code in ((under, "limit.{}"), (slow, "limit.{}_latency")):
        if there[last] and broken[last]:
            return _said(snapshot.hosts[position].id, code.format("newcomer"), asked, ratio[last], latency[last])
    for broken, code in ((under, "limit.{}"), (slow, "limit.{}_latency")):
        for slot in np.flatnonzero(broken & there)[:1].tolist():
            one = snapshot.residents[position][slot]
            return _said(snapshot.hosts[position].id, code.format("neighbour"), one, ratio[slot], latency[slot])
    raise AssertionError("a host that breaks no limit is not rejected for one")


def _said(host: str, code: str, one: Instance, ratio: float, latency: float) -> Rejection:
    verb = "reach" if code.startswith("limit.newcomer") else "fall to"
    if code.endswith("_latency"):
        what = f"{one.id} would wait {latency:.2f} times as long as alone, its limit is {one.max_latency_ratio:g}"
    else:
        what = f"{one.id} would {verb} {ratio:.2f} of its own speed, its limit is {one.min_throughput_ratio}"
    return Rejection(host, code, what)
