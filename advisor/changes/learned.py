"""What a measured change teaches: two results for each host, as it was before and as it was after.

CPU delivered stands for throughput, as in predictions. The figure after is that before plus the effect beside the
controls, so that what happened to all instances alike is not taken for an effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from advisor.domain import Instance, MeasuredEffect, RolloutStanding
from profiler.observed import DEFAULT_WEIGHT, Colocation, Outcome

UNIT = "CPU delivered"
_LOWEST = 0.01


def results_of(standing: RolloutStanding) -> Iterator[Colocation]:
    """Of each host on which an effect was measured; none of effects whose verdict is unknown."""
    known = {one.instance: one for one in standing.effects if one.verdict != "unknown" and one.effect is not None}
    rollout = standing.rollout
    for repeat, instances in (("before", rollout.there), ("after", rollout.then)):
        for host in sorted({one.host for one in instances if one.host is not None}):
            beside = [one for one in instances if one.host == host]
            outcomes = tuple(_outcome(one, known, after=repeat == "after") for one in beside)
            if len(beside) > 1 and any(one.colocated is not None for one in outcomes):
                yield Colocation(f"change-{rollout.id}", host, repeat, outcomes)


def _outcome(one: Instance, known: Mapping[str, MeasuredEffect], *, after: bool) -> Outcome:
    """What an instance reached; unknown where it was not measured: it is beside the others all the same."""
    # Said outright: what is as usual would be taken from the inventory, where it has changed meanwhile.
    settings = replace(one.settings, weight=one.settings.weight or DEFAULT_WEIGHT)
    alone = replace(one, host=None, settings=settings)
    effect = known.get(one.id)
    if effect is None or effect.before is None or effect.effect is None:
        return Outcome(alone, "throughput", None, None, UNIT)
    reached = effect.before + (effect.effect.expected if after else 0.0)
    return Outcome(alone, "throughput", 1.0, min(max(reached, _LOWEST), 1.0), UNIT)
