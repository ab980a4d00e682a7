"""Compares the first candidate with the second: the lead, whether it is certain, and who decides it."""

from __future__ import annotations

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.scheduling import scoring


def compare(arrays: CandidateArrays) -> Reason:
    """How the first of two or more candidates compares with the second."""
    scores = arrays.scores
    best, other = arrays.hosts[0].id, arrays.hosts[1].id
    gap = float(scores.score[0] - scores.score[1])
    if scoring.tied(_gap(arrays), *scores.half_width[:2].tolist()):
        text = f"{best} and {other} are tied: the difference of what is expected ({_gap(arrays):+.3f}) lies inside the "
        text += "uncertainty."
    elif arrays.objective == "pack" and scores.score[1] > 1:
        text = f"{best} is fuller than {other} by {gap:.3f} vCPUs per pCPU, and every ratio is kept on both."
    elif arrays.objective == "pack" and scores.score[0] > 1:
        text = f"Every ratio is kept on {best} and not on {other}, where the worst-off is {_worst(arrays, 1)}."
    elif arrays.objective == "total":
        text = f"{best} is ahead of {other} by {gap:.3f} in the sum of what everybody there gains and loses."
    else:
        text = f"{best} is ahead of {other} by {gap:.3f}: the worst-off on {best} is {_worst(arrays, 0)}, "
        text += f"on {other} {_worst(arrays, 1)}."
    return Reason("comparison", 0.0, text, kind="comparison")


def _gap(arrays: CandidateArrays) -> float:
    return float(arrays.scores.expected[0] - arrays.scores.expected[1])


def _worst(arrays: CandidateArrays, at: int) -> str:
    slot = arrays.worst_off(at)
    before = f" ({arrays.before[at, slot]:.2f} before)" if slot != arrays.scenes.slots - 1 else ""
    return f"{arrays.involved(at)[slot].id} with {arrays.ratio(at, slot):.2f}{before}"
