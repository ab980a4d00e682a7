"""What a run's windows say of every state: each member's value together and alone, and the error of their ratio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from lab.on_off.common_mode import machine_speeds
from lab.on_off.estimator import StateShare, estimate_ratio
from lab.on_off.measure import OnOffRun, OnOffWindow
from lab.on_off.states import State
from lab.records import THROUGHPUT, StateOutcome

LATENCY = "latency_mean_ms"


def state_outcomes(run: OnOffRun) -> tuple[StateOutcome, ...]:
    """Of every state with company, where enough undisturbed blocks have it and each of its members alone.

    A state of which one member is not known is left out: without it the others would seem to have had less company.
    """
    kept = [window for window in run.windows if not window.disturbed]
    shares = [_shares(run, kept, place) for place in range(len(run.members))]
    found: list[StateOutcome] = []
    for state in sorted({window.state for window in kept}, key=lambda state: (len(state), state)):
        members = [_of_member(run.members[place], state, place, shares[place]) for place in state]
        if len(state) > 1 and all(members):
            found += (outcome for outcomes in members for outcome in outcomes)
    return tuple(found)


_Shares = Mapping[str, Mapping[State, Mapping[int, StateShare]]]
"""Of one member: by outcome, state and block."""


def _shares(run: OnOffRun, kept: Sequence[OnOffWindow], place: int) -> _Shares:
    """Throughput over time as the machine's speed counts it, or over questions; latency over answers."""
    mine = [window for window in kept if place in window.state]
    if asks(run, place):
        throughput = [_answered(window, place) for window in mine]
    else:
        worked = [_worked(window, place) for window in mine]
        speeds = machine_speeds([(window.state, share) for window, share in zip(mine, worked, strict=True)])
        throughput = [
            StateShare(share.progress, share.exposure * speed) for share, speed in zip(worked, speeds, strict=True)
        ]
    found: dict[str, dict[State, dict[int, StateShare]]] = {THROUGHPUT: {}, LATENCY: {}}
    for window, share in zip(mine, throughput, strict=True):
        found[THROUGHPUT].setdefault(window.state, {})[window.block] = share
        found[LATENCY].setdefault(window.state, {})[window.block] = _waited(window, place)
    return found


def _of_member(name: str, state: State, place: int, shares: _Shares) -> list[StateOutcome]:
    """Throughput, and latency where it is counted; nothing without throughput."""
    found: list[StateOutcome] = []
    for outcome, by_state in shares.items():
        together, alone = by_state.get(state, {}), by_state.get((place,), {})
        pairs = [(together[block], alone[block]) for block in sorted(together) if block in alone]
        got = estimate_ratio(pairs, f"{name}:{state}:{outcome}")
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


def _worked(window: OnOffWindow, place: int) -> StateShare:
    return StateShare(window.progress[place], window.seconds)


def _waited(window: OnOffWindow, place: int) -> StateShare:
    """Milliseconds over answers; nothing where nobody counts latency."""
    return StateShare(1000 * window.waited_s[place], float(window.answers[place]) if window.waited_s[place] else 0.0)
