"""From a run's windows to the outcomes of every state: each member's value together and alone, with their error."""

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
    """Outcomes of every state of several members where enough blocks have it, and each member alone, undisturbed.

    A state with a member that is not known is left out: without it the others would seem to have had less company.
    """
    counted = [window for window in run.windows if not window.disturbed]
    by_state: dict[State, dict[int, OnOffWindow]] = {}
    for window in counted:
        by_state.setdefault(window.state, {})[window.block] = window
    known: list[StateOutcome] = []
    corrections = [SpeedCorrection(counted, place) for place in range(len(run.members))]
    for state, windows in sorted(by_state.items(), key=lambda item: (len(item[0]), item[0])):
        members = [
            _of_member(run, corrections[place], state, place, windows, by_state.get((place,), {})) for place in state
        ]
        if len(state) > 1 and all(members):
            known += (outcome for outcomes in members for outcome in outcomes)
    return tuple(known)


def _of_member(
    run: OnOffRun, correction: SpeedCorrection, state: State, place: int, together: Mapping[int, OnOffWindow],
    alone: Mapping[int, OnOffWindow],
) -> list[StateOutcome]:  # fmt: skip
    """Throughput, and latency where it is counted; nothing without throughput."""
    pairs = [(together[block], alone[block]) for block in sorted(together) if block in alone]
    known: list[StateOutcome] = []
    name = run.members[place]

    def worked(window: OnOffWindow, place: int) -> StateShare:
        return StateShare(window.progress[place], correction.seconds(window))

    throughput = _answered if asks(run, place) else worked
    for outcome, share in ((THROUGHPUT, throughput), (LATENCY, _waited)):
        ratio = estimate_ratio(
            [(share(both, place), share(single, place)) for both, single in pairs], f"{name}:{state}:{outcome}"
        )
        if ratio is not None and math.isfinite(ratio.error):
            most = 1.0 if share is _answered else math.inf  # an open loop answers no more than it is asked
            rates = min(ratio.alone, most), min(ratio.together, most)
            known.append(StateOutcome(state, place, outcome, *rates, ratio.error, ratio.pairs))
        elif outcome == THROUGHPUT:
            return []
    return known


def asks(run: OnOffRun, place: int) -> bool:
    """Whether clients ask this member at moments fixed in advance."""
    return any(window.due and window.due[place] for window in run.windows)


def _answered(window: OnOffWindow, place: int) -> StateShare:
    """Answers over questions: how many of these fall into a short window is chance."""
    return StateShare(float(window.answers[place]), float(window.due[place]))


def _waited(window: OnOffWindow, place: int) -> StateShare:
    """Milliseconds over answers; nothing where latency is not counted."""
    return StateShare(1000 * window.waited_s[place], float(window.answers[place]) if window.waited_s[place] else 0.0)
