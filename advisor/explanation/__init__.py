"""Explains a candidate: resources and neighbours that cost it, alternatives, and uncertainty."""

from __future__ import annotations

from advisor.domain import Reason
from advisor.explanation.comparison import compare, counterfactuals, uncertainty
from advisor.explanation.losses import CandidateArrays, losses, sentences

__all__ = ["CandidateArrays", "explain"]


def explain(arrays: CandidateArrays) -> tuple[tuple[Reason, ...], ...]:
    """Reasons for each of the K candidates, best first, at most five each.

    The reasons are the losses (two at most), the comparison of the first with the second, what would rank a later
    candidate first (the second's is shown with the first too), and what is uncertain.
    """
    losses_by_candidate = losses(arrays)
    alternatives = counterfactuals(arrays, losses_by_candidate)
    reasons = []
    for at in range(len(arrays.hosts)):
        parts = sentences(arrays, at, losses_by_candidate[at])
        if at == 0 and len(arrays.hosts) > 1:
            parts = (*parts, compare(arrays), *alternatives[1][:1])
        reasons.append((*parts, *alternatives[at], *uncertainty(arrays, at, losses_by_candidate[at])))
    return tuple(reasons)
