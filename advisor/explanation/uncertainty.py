"""The uncertainty of a candidate: whose interval decides, its origin, and what would narrow it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.explanation.losses import ResourceLoss
from advisor.prediction.effects import basis

NARROW_LEARNED, NARROW_PRIOR = 0.02, 0.15  # widths that are not reported; the prior's is 0.1 without contention


def uncertainty(arrays: CandidateArrays, at: int, losses: Sequence[ResourceLoss]) -> tuple[Reason, ...]:
    """One sentence on the most affected of candidate `at`; () where it is alone or its interval is narrow."""
    involved = arrays.involved(at)
    slot = arrays.worst_off(at)
    band = arrays.prediction.throughput
    low, high = float(band.lower[at, slot]), float(band.upper[at, slot])
    unknown = bool(arrays.scenes.profile[at, slot] == 0)
    guessed = arrays.predictor.origin == "analytic"
    if len(involved) < 2 or high - low < (NARROW_PRIOR if guessed else NARROW_LEARNED):
        return ()
    name, interval = involved[slot].id, f"{100 * low:.0f}-{100 * high:.0f} % of its uncontended speed"
    antagonist = next((loss.antagonist for loss in losses if loss.victim == slot and loss.antagonist is not None), None)
    measure = _measure(arrays, at, slot, antagonist)
    if unknown:
        text = f"No profile describes what {name} runs, so its interval is wide ({interval}); one would narrow it."
    elif guessed:
        text = f"No learned model answers: the analytic model predicts {interval} for {name}{measure}."
    elif arrays.prediction.outside[at, slot]:
        text = f"Nothing like {name} here was measured, so the analytic model answers for it ({interval}){measure}."
    else:
        known = arrays.prediction.basis
        rests_on = "" if known is None else f": {basis(known, at, slot).sentence}"
        text = f"{name} is at {interval}{rests_on}{measure}."
    by = None if antagonist is None else involved[antagonist].id
    return (Reason("unknown", 0.0, text, by, kind="uncertainty", ratio=arrays.ratio(at, slot)),)


def _measure(arrays: CandidateArrays, at: int, slot: int, beside: int | None) -> str:
    """The pair of workloads whose measurement would narrow the interval, where both are named."""
    involved = arrays.involved(at)
    names = [involved[slot_number].workload for slot_number in (slot, beside) if slot_number is not None]
    if len(names) < 2 or not all(names):
        return ""
    return f"; measuring {names[0]} beside {names[1]} would narrow it"
