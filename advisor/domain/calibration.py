"""What has shown how often the ranges of an answer hold, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

# What an answer's ranges were calibrated on: outcomes on hosts like this one, pairs or windows of hosts that training
# left out, or nothing. Only ranges that outcomes have calibrated are called 90 % intervals.
Calibration = Literal["observed", "trained", "windows", "none"]
SENTENCES: dict[Calibration, str] = {
    "none": "The ranges are not calibrated on your hosts: no outcome there has shown how often they hold.",
    "trained": "The ranges held for 90 of 100 pairs that the model's training left out. "
    "They are not calibrated on your hosts: too little was observed there.",
    "windows": "The ranges held for 90 % of the windows of hosts that the model's training left out. "
    "They are not calibrated on your hosts: too little was observed there.",
    "observed": "The ranges are 90 % intervals: what was observed on such hosts was held against them.",
}
_WEAKEST_FIRST: tuple[Calibration, ...] = ("none", "trained", "windows", "observed")


def calibration_in_words(calibrations: Iterable[Calibration], hosts: int | None = None) -> str:
    """One sentence on several candidates, by the weakest of them; empty where there is none.

    `hosts` is of how many hosts the windows of the model's training were, None = not known.
    """
    known = set(calibrations)
    weakest = next((one for one in _WEAKEST_FIRST if one in known), None)
    if weakest is None:
        return ""
    if weakest == "windows" and hosts is not None:
        return SENTENCES[weakest].replace("windows of hosts", f"windows of {hosts:,} host{'' if hosts == 1 else 's'}")
    return SENTENCES[weakest]
