"""Takes faults of on/off measurements out of a dataset's ratios: what open loops carry over between states, and T/B
above 1 that no neighbour can give (docs/decisions/0175-above-alone-is-an-artefact.md).

Only outcomes with a standard error are looked at (`ratio_se` of the table of co-locations), which on/off runs have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from profiler.observed import Colocation, IsolationSettings, Outcome
from profiler.ratio_artefacts import ANSWERED, artefact_of

_Kind = tuple[str, str, str, float, IsolationSettings]  # platform, pinning form, workload, load, settings


@dataclass(frozen=True, slots=True)
class ArtefactCounts:
    """Rows of throughput by what reading did to them; the others are as they were measured.

    `open_loops` are relative to their usual value alone, `at_most_asked` of these would have been above it, and what is
    `set_aside` has no outcome: `above_alone` for a ratio above 1 + 3 standard errors, `unsure` for an error that says
    nothing.
    """

    rows: int = 0
    open_loops: int = 0
    at_most_asked: int = 0
    above_alone: int = 0
    unsure: int = 0

    @property
    def set_aside(self) -> int:
        return self.above_alone + self.unsure

    def __str__(self) -> str:
        return (
            f"{self.open_loops} of {self.rows} rows are of open loops and relative to their usual value alone, "
            f"{self.at_most_asked} of them held at what was asked; {self.set_aside} rows are set aside, "
            f"{self.above_alone} above 1 + 3 standard errors and {self.unsure} with an error that says nothing"
        )


def without_artefacts(colocations: Sequence[Colocation]) -> tuple[tuple[Colocation, ...], ArtefactCounts]:
    """The same co-locations with ratios by the rule, and how many rows that changed.

    An instance whose outcome is set aside stays a neighbour: its `colocated` is None.
    """
    alone: dict[_Kind, list[float]] = defaultdict(list)
    for one in colocations:
        for outcome in one.outcomes:
            if _asks(outcome) and outcome.solo is not None:
                alone[_kind(one, outcome)].append(outcome.solo)
    usual = {kind: median(values) for kind, values in alone.items()}
    found: Counter[str] = Counter()

    def ruled(one: Colocation, outcome: Outcome) -> Outcome:
        if outcome.outcome != "throughput" or outcome.ratio_se is None or not outcome.solo or outcome.colocated is None:
            return outcome
        found["rows"] += 1
        if _asks(outcome):
            solo = usual[_kind(one, outcome)]
            found["open_loops"] += 1
            found["at_most_asked"] += outcome.colocated > solo
            return replace(outcome, solo=solo, colocated=min(outcome.colocated, solo))
        artefact = artefact_of(outcome.colocated / outcome.solo, outcome.ratio_se)
        if artefact is None:
            return outcome
        found[artefact] += 1
        return replace(outcome, colocated=None)

    changed = tuple(replace(one, outcomes=tuple(ruled(one, each) for each in one.outcomes)) for one in colocations)
    return changed, ArtefactCounts(**found)


def _asks(outcome: Outcome) -> bool:
    return outcome.outcome == "throughput" and outcome.unit == ANSWERED and outcome.ratio_se is not None


def _kind(one: Colocation, outcome: Outcome) -> _Kind:
    """What an open loop alone depends on; names of the lab's runs begin with their pinning form."""
    instance = outcome.instance
    form = one.run.partition(":")[0]
    return one.platform, form, instance.workload or "", instance.load, replace(instance.settings, pinning=None)
