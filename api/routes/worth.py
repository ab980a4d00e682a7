"""Effect of the advice."""

from __future__ import annotations

from advisor.domain import AdviceWorth
from api.routes.common import OutcomeDep
from api.routes.instances import Since


def get(outcomes: OutcomeDep, since: Since = "7d") -> AdviceWorth:
    """How placements that were asked for fared: followed or not, predicted against measured, and beside others alike.

    From windows that agents measured. A difference between those that are compared is no proof of a cause.
    """
    return outcomes.worth(since=since)
