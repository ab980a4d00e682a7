"""The first candidate beside the second: by how much it is ahead, whether that is sure, and who decides it."""

from __future__ import annotations

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.scheduling import scoring


def compare(shown: CandidateArrays) -> Reason:
    """How the first of two or more candidates compares with the second."""
    scores = shown.scores
    best, other = shown.hosts[0].id, shown.hosts[1].id
    gap = float(scores.score[0] - scores.score[1])
    if scoring.tied(_gap(shown), *scores.half_width[:2].tolist()):
        text = f"{best} and {other} are tied: the difference of what is expected ({_gap(shown):+.3f}) lies inside the "
        text += "uncertainty."
    elif shown.objective == "pack" and scores.score[1] > 1:
        text = f"{best} is fuller than {other} by {gap:.3f} vCPUs per pCPU, and every ratio is kept on both."
    elif shown.objective == "pack" and scores.score[0] > 1:
        text = f"Every ratio is kept on {best} and not on {other}, where the worst-off is {_worst(shown, 1)}."
    elif shown.objective == "total":
        text = f"{best} is ahead of {other} by {gap:.3f} in the sum of what everybody there gains and loses."
    else:
        text = f"{best} is ahead of {other} by {gap:.3f}: the worst-off on {best} is {_worst(shown, 0)}, "
        text += f"on {other} {_worst(shown, 1)}."
    return Reason("comparison", 0.0, text, kind="comparison")


def _gap(shown: CandidateArrays) -> float:
    return float(shown.scores.expected[0] - shown.scores.expected[1])


def _worst(shown: CandidateArrays, at: int) -> str:
    slot = shown.worst_off(at)
    before = f" ({shown.before[at, slot]:.2f} before)" if slot != shown.scenes.slots - 1 else ""
    return f"{shown.involved(at)[slot].id} with {shown.ratio(at, slot):.2f}{before}"
