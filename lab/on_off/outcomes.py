"""What a run's windows say of every state: each member's value together and alone, and the error of their ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping

from lab.on_off.estimator import StateShare, estimate_ratio
from lab.on_off.measure import OnOffRun, OnOffWindow
from lab.on_off.speed_correction import SpeedCorrection
from lab.on_off.states import State
from lab.records import THROUGHPUT, StateOutcome

LATENCY = "latency_mean_ms"


def state_outcomes(run: OnOffRun) -> tuple[StateOutcome, ...]:
    """Of every state with company, where enough undisturbed blocks have it and each of its members alone.

    A state of which one member is not known is left out: without it the others would seem to have had less company.
    """
    by_state: dict[State, dict[int, OnOffWindow]] = {}
    for window in run.windows:
        if not window.disturbed:
            by_state.setdefault(window.state, {})[window.block] = window
    found: list[StateOutcome] = []
    counted = [window for window in run.windows if not window.disturbed]
    corrections = [SpeedCorrection(counted, place) for place in range(len(run.members))]
    for state, windows in sorted(by_state.items(), key=lambda item: (len(item[0]), item[0])):
        members = [
            _of_member(run, corrections[place], state, place, windows, by_state.get((place,), {})) for place in state
        ]
        if len(state) > 1 and all(members):
            found += (outcome for outcomes in members for outcome in outcomes)
    return tuple(found)


def _of_member(
    run: OnOffRun, correction: SpeedCorrection, state: State, place: int, together: Mapping[int, OnOffWindow],
    alone: Mapping[int, OnOffWindow],
) -> list[StateOutcome]:  # fmt: skip
    """Throughput, and latency where it is counted; nothing without throughput."""
    pairs = [(together[block], alone[block]) for block in sorted(together) if block in alone]
    found: list[StateOutcome] = []
    name = run.members[place]

    def worked(window: OnOffWindow, place: int) -> StateShare:
        return StateShare(window.progress[place], correction.seconds(window))

    throughput = _answered if asks(run, place) else worked
    for outcome, share in ((THROUGHPUT, throughput), (LATENCY, _waited)):
        got = estimate_ratio(
            [(share(both, place), share(single, place)) for both, single in pairs], f"{name}:{state}:{outcome}"
        )
        if got is not None and math.isfinite(got.error):
            found.append(StateOutcome(state, place, outcome, got.alone, got.together, got.error, got.pairs))
        elif outcome == THROUGHPUT:
            return []
    return found


def asks(run: OnOffRun, place: int) -> bool:
    """Whether somebody asks this member at moments fixed in advance."""
    return any(window.due and window.due[place] for window in run.windows)


def _answered(window: OnOffWindow, place: int) -> StateShare:
    """Answers over what was asked for meanwhile: how much that was in a short window is chance."""
    return StateShare(float(window.answers[place]), float(window.due[place]))


def _waited(window: OnOffWindow, place: int) -> StateShare:
    """Milliseconds over answers; nothing where nobody counts latency."""
    return StateShare(1000 * window.waited_s[place], float(window.answers[place]) if window.waited_s[place] else 0.0)
