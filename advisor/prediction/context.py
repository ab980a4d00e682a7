"""What every question needs, whatever it asks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from advisor.prediction.active import ActivePredictor


@dataclass(frozen=True, slots=True)
class QuestionContext:
    """Who answers, when it is asked, and for how many seconds the data of a host count as fresh."""

    active: ActivePredictor
    now: datetime
    fresh_s: float
