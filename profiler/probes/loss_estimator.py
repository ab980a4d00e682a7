"""Badabing's estimator: which slots to probe, and loss frequency and duration from what the probes saw.

After Sommers, Barford, Duffield, Ron, "Improving accuracy in end-to-end packet loss measurement", SIGCOMM 2005. Time
is cut into slots. At each slot an experiment starts with probability p: a basic one probes two slots in a row, an
extended one three. Its outcome is one digit per slot, 1 = the slot was congested. With p1 the chance that an outcome
with one digit set (01, 10, 001, 100) is seen as it is, and p2 the same of 11, 011, 110 (otherwise all zeros are seen):

- frequency F = sum of first digits / experiments;
- R counts basic outcomes 01, 10, 11 and S those of 01, 10: E[R] / E[S] = r (D - 1) / 2 + 1 with r = p2 / p1, so that
  the basic algorithm, which takes r = 1, has duration D = 2 (R / S - 1) + 1 slots;
- U counts extended outcomes 011, 110 and V those of 001, 100: as many episodes begin as end, so E[U] / E[V] = r, and
  the improved algorithm has D = (2 V / U) (R / S - 1) + 1 slots.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

SLOT_MS = 5.0  # defaults of the tool that EC2NET §VI used
PROBABILITY = 0.3
_EXTENDED_SHARE = 0.5  # the improved algorithm starts basic and extended experiments with equal chance


@dataclass(frozen=True, slots=True)
class Experiment:
    """Probes in `slots` consecutive slots (2 basic, 3 extended) from slot `first` on."""

    first: int
    slots: int

    def outcome(self, congested: Collection[int]) -> str:
        """One digit per slot; `congested` are the numbers of the slots seen congested."""
        return "".join("1" if slot in congested else "0" for slot in range(self.first, self.first + self.slots))


def draw(slots: int, probability: float, seed: int, *, improved: bool = True) -> tuple[Experiment, ...]:
    """The experiments of a run of `slots` slots; the same seed gives the same ones.

    Raises ValueError unless 0 < probability <= 1 and there are at least 3 slots.
    """
    if not 0 < probability <= 1 or slots < 3:
        raise ValueError(f"{slots} slots with probability {probability}: needs 3 slots and a probability in (0, 1]")
    dice = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    return tuple(
        Experiment(slot, 3 if improved and dice.random() < _EXTENDED_SHARE else 2)
        for slot in range(slots - 2)
        if dice.random() < probability
    )


def probed_slots(experiments: Iterable[Experiment]) -> tuple[int, ...]:
    """The slots that need a probe, in order; experiments that overlap share it."""
    return tuple(sorted({experiment.first + step for experiment in experiments for step in range(experiment.slots)}))


@dataclass(frozen=True, slots=True)
class LossEstimate:
    """Loss frequency (share of slots), mean duration of loss episodes in slots, and the numbers they rest on.

    None = the outcomes do not determine it. `asymmetry` is |#01 - #10| / (#01 + #10) and `violations` counts 010 and
    101: the assumptions hold when both are small (Sommers et al., validation of their estimates).
    """

    experiments: int
    frequency: float | None
    duration_slots: float | None
    duration_basic_slots: float | None
    asymmetry: float | None
    violations: int


def estimate(outcomes: Iterable[str]) -> LossEstimate:
    """Frequency and duration from the outcomes of all experiments, by the formulas on top of this module."""
    seen = Counter(outcomes)
    total = seen.total()
    first = sum(count for outcome, count in seen.items() if outcome.startswith("1"))
    changes = seen["01"] + seen["10"]  # S
    ratio = seen["11"] / changes if changes else None  # R / S - 1
    short, long = seen["001"] + seen["100"], seen["011"] + seen["110"]  # V, U
    return LossEstimate(
        experiments=total,
        frequency=first / total if total else None,
        duration_slots=2 * short / long * ratio + 1 if ratio is not None and short and long else None,
        duration_basic_slots=2 * ratio + 1 if ratio is not None else None,
        asymmetry=abs(seen["01"] - seen["10"]) / changes if changes else None,
        violations=seen["010"] + seen["101"],
    )
