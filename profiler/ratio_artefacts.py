"""Which measured ratios to the value alone are faults of the measurement, by a rule that was stated before it was
applied (decision 175)."""

from __future__ import annotations

from typing import Literal

Artefact = Literal["unsure", "above_alone"]
ANSWERED = "answers per question"
"""Unit of the throughput of an open loop in an on/off run: questions come at moments fixed in advance."""
ERRORS_ABOVE = 3.0
"""Standard errors above 1 from which on a ratio is an artefact: a neighbour gives nothing that was lacking alone."""
MOST_ERROR = 0.25
"""The largest standard error of a ratio that says something: T/B itself varies by 0.29 between measured rows."""


def artefact_of(ratio: float, error: float) -> Artefact | None:
    """What is wrong with T/B: it says nothing (`unsure`) or what cannot be (`above_alone`); None = nothing is wrong.

    `error` is its standard error.
    """
    if error > MOST_ERROR:
        return "unsure"
    return "above_alone" if ratio > 1 + ERRORS_ABOVE * error else None
