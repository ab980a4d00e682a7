"""How sure a median over rounds is: by the rounds, and by the windows within them where these are known."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from profiler.lab.show.dataset import Dataset, Group, Key, Member
from profiler.lab.statistics import (
    FEWEST_FOR_ORDER,
    Description,
    hierarchical_interval,
    order_interval,
    variation,
    window_replicates,
)
from profiler.lab.windows import Series

_REPLICATES = 100  # per round: the ends are quantiles at 10 to 20 % of all of them, far from the rarest


def described(values: Iterable[float], replicates: Sequence[Sequence[float]] = ()) -> Description:
    """Describe at least one value; ValueError for none. One value has no interval.

    From six values on the interval is by order statistics; below, by the hierarchical bootstrap, over the rounds and
    their `replicates` (as many rounds as values, as many replicates in each), or over the rounds alone without them.
    """
    known = tuple(values)
    if not known:
        raise ValueError("no values to describe")
    middle = median(known)
    low: float | None = None
    high: float | None = None
    if len(known) >= FEWEST_FOR_ORDER:
        low, high = order_interval(known)
    elif len(known) > 1:
        low, high = hierarchical_interval(middle, replicates or [(value,) for value in known])
        low = max(low, 0.0)  # throughput, latency and their ratios have no less
    return Description(len(known), fmean(known), middle, variation(known), low, high)


class Replicates:
    """What ratios might as well have been, by the windows of the runs; each run is worked out once."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._known: dict[tuple[Key, str], list[float]] = {}

    def of(self, group: Group, member: Member) -> tuple[float, ...]:
        """T / B of a member in this round, as often as any other; nothing but the ratio itself without windows.

        ValueError when the ratio is not known.
        """
        outcome = member.outcomes.get("throughput")
        ratio = member.ratio()
        if outcome is None or ratio is None or not outcome.solo:
            raise ValueError(f"{member.instance} has no T/B in {group.run}")
        if not self._dataset.series:
            return (ratio,)
        together = self._run(group.key, member.instance, outcome.colocated or 0.0)
        alone = self._run(self._dataset.solo_key(group, member), "", outcome.solo)
        return tuple(top / bottom if bottom > 0 else ratio for top, bottom in zip(together, alone, strict=True))

    def _run(self, key: Key, instance: str, value: float) -> list[float]:
        """An empty instance stands for the only one of a solo run."""
        name = (key, instance)
        if name not in self._known:
            draw = random.Random(f"{key} {instance}")  # noqa: S311 - resampling, not a secret
            windows = self._windows(key, instance)
            self._known[name] = window_replicates(value, windows, _REPLICATES, draw)
        return self._known[name]

    def _windows(self, key: Key, instance: str) -> tuple[float, ...]:
        """The measured windows that follow the run's progress, as the lab itself judges it."""
        of = self._dataset.series.get(key, {})
        found = {metric: points for (who, metric), points in of.items() if instance in ("", who)}
        if not found:
            return ()
        at_s = tuple(at for at, _ in next(iter(found.values())))
        values = {metric: tuple(value for _, value in points) for metric, points in found.items()}
        return Series(at_s, {instance: values}).activity(instance)
