"""A mitigation step in one sentence, and its effects on every instance as values of the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.domain import Effect, Host, Instance, latency_in_words, time_part
from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import LATENCY, THROUGHPUT, TIME_SHORT, Trial
from advisor.prediction.effects import effect
from models.prediction import InterferencePrediction

WORTH_NAMING = 0.02  # change of T/B from which other instances are named
MOST_NAMED = 4


def sentence(violation: LimitViolation, trial: Trial, after: InterferencePrediction, outcome: str) -> str:
    """The action and its effect on the victim, on those whose settings change, and on others affected."""
    old, new = violation.prediction.throughput.expected[0], after.throughput.expected[0]
    change = np.round(np.abs(new - old), 9)
    settings = [trial.changes.get(party.id, party.settings) for party in violation.shared.parties]
    changed = [at for at in range(len(settings)) if at != violation.victim and settings[at] != violation.settings(at)]
    rest = [at for at in range(len(settings)) if at not in {violation.victim, *changed} and change[at] > WORTH_NAMING]
    named = [*sorted(changed, key=lambda at: -change[at]), *sorted(rest, key=lambda at: -change[at])]
    parts = [_change(violation, after, violation.victim, violation.kind)]
    parts += [_change(violation, after, at, THROUGHPUT) for at in named[: MOST_NAMED - 1]]
    return f"{trial.says}: {', '.join(parts)}{outcome}."


def _change(violation: LimitViolation, after: InterferencePrediction, at: int, kind: int) -> str:
    now = violation.prediction
    name = violation.party(at).id
    if kind == TIME_SHORT:
        old_short, new_short = (time_part(float(prediction.time_short()[0, at])) for prediction in (now, after))
        return f"{name} contended {old_short} -> {new_short} of the time"
    if kind == LATENCY:
        old_late, new_late = (latency_in_words(effect(name, prediction, 0, at)) for prediction in (now, after))
        return f"latency of {name} {old_late} -> {new_late}"
    old, new = (float(prediction.throughput.expected[0, at]) for prediction in (now, after))
    return f"{name} {old:.2f} -> {new:.2f}"


def another_host(host: Host, new_vm: Instance, others: Sequence[str]) -> str:
    """The advice where no setting on this host suffices."""
    if not others:
        return f"No setting that was tried on {host.id} meets every limit, and no other host is known that does."
    return f"No setting that was tried on {host.id} meets every limit: place {new_vm.id} on {others[0]}, which does."


def effects(violation: LimitViolation, after: InterferencePrediction) -> tuple[Effect, ...]:
    """The predicted effect on every instance, the new VM first and then by id; `before` is without the step."""
    count = len(violation.shared.parties)
    return tuple(
        effect(violation.party(at).id, after, 0, at, violation.prediction) for at in (count - 1, *range(count - 1))
    )
