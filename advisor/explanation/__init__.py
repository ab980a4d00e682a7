"""Why a candidate stands where it stands: which resource, which neighbour, how much, what would change it, how sure."""

from __future__ import annotations

from advisor.domain import Reason
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.explanation.comparison import compare
from advisor.explanation.counterfactuals import counterfactuals
from advisor.explanation.losses import losses, sentences
from advisor.explanation.uncertainty import uncertainty

__all__ = ["CandidateArrays", "explain"]


def explain(shown: CandidateArrays) -> tuple[tuple[Reason, ...], ...]:
    """Reasons for each of the K candidates, best first, at most five each.

    What is lost (two at most), how the first compares with the second, what would put a later one before the first
    (the second's is told with the first, too), and what is not sure.
    """
    found = losses(shown)
    instead = counterfactuals(shown, found)
    told = []
    for at in range(len(shown.hosts)):
        why = sentences(shown, at, found[at])
        if at == 0 and len(shown.hosts) > 1:
            why = (*why, compare(shown), *instead[1][:1])
        told.append((*why, *instead[at], *uncertainty(shown, at, found[at])))
    return tuple(told)
