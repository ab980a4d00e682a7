"""What is not sure about a candidate: whose interval decides, whether it was learned, and what would narrow it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.explanation.losses import Loss

NARROW, NARROW_PRIOR = 0.02, 0.15  # widths that are not worth a sentence; the prior's is 0.1 where nobody contends


def uncertainty(shown: CandidateArrays, at: int, losses: Sequence[Loss]) -> tuple[Reason, ...]:
    """One sentence on the worst-off of candidate `at`; () where it is alone or its interval is narrow."""
    there = shown.involved(at)
    slot = shown.worst_off(at)
    band = shown.prediction.throughput
    low, high = float(band.lower[at, slot]), float(band.upper[at, slot])
    unknown = bool(shown.scenes.profile[at, slot] == 0)
    guessed = shown.predictor.origin == "prior"
    if len(there) < 2 or high - low < (NARROW_PRIOR if guessed else NARROW):
        return ()
    name, interval = there[slot].id, f"{low:.2f}-{high:.2f}"
    beside = next((one.presser for one in losses if one.victim == slot and one.presser is not None), None)
    measure = _measure(shown, at, slot, beside)
    if unknown:
        text = f"Nothing is known of what {name} runs, so its interval is wide ({interval}); a profile would narrow it."
    elif guessed:
        text = f"No learned model answers: the queueing prior puts {name} at {interval}{measure}."
    elif shown.prediction.outside[at, slot]:
        text = f"{name} is outside the training data here, so the queueing prior answers for it ({interval}){measure}."
    else:
        text = f"{name} is inside the training data here: it keeps {interval} in 90 of 100 such cases."
    by = None if beside is None else there[beside].id
    return (Reason("unknown", 0.0, text, by, kind="uncertainty", ratio=shown.ratio(at, slot)),)


def _measure(shown: CandidateArrays, at: int, slot: int, beside: int | None) -> str:
    """The pair of workloads whose measurement would tell, where both have a name."""
    there = shown.involved(at)
    names = [there[one].workload for one in (slot, beside) if one is not None]
    if len(names) < 2 or not all(names):
        return ""
    return f"; measuring {names[0]} beside {names[1]} would tell"
