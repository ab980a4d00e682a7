"""What the ratios of a dataset might as well have been, by the windows within runs where these are known."""

from __future__ import annotations

from lab.show.dataset import DatasetGroup, DatasetMember, Key, LabDataset
from lab.statistics import MemberRepeat, RatioBootstrap
from lab.usage_windows import UsageSeries


class Replicates:
    """What the ratios of a dataset might as well have been, by the windows of its runs."""

    def __init__(self, dataset: LabDataset) -> None:
        self._dataset = dataset
        self._redraws = RatioBootstrap()
        self._known: dict[tuple[Key, str], MemberRepeat] = {}

    def of(self, group: DatasetGroup, member: DatasetMember) -> tuple[float, ...]:
        """T / B of a member in this round, as often as any other; nothing but the ratio itself without windows.

        ValueError when the ratio is not known.
        """
        outcome = member.outcomes.get("throughput")
        ratio = member.ratio()
        if outcome is None or ratio is None or not outcome.solo:
            raise ValueError(f"{member.instance} has no T/B in {group.run}")
        if not self._dataset.series:
            return (ratio,)
        together = self._repeat(group.key, member.instance, outcome.colocated or 0.0)
        return self._redraws.ratios(together, self._repeat(self._dataset.solo_key(group, member), "", outcome.solo))

    def _repeat(self, key: Key, instance: str, value: float) -> MemberRepeat:
        """An empty instance stands for the only one of a solo run; the key is what the lab itself has for it."""
        name = (key, instance)
        if name not in self._known:
            run, number = key
            self._known[name] = MemberRepeat(f"{run} {number} {instance}", value, self._windows(key, instance))
        return self._known[name]

    def _windows(self, key: Key, instance: str) -> tuple[float, ...]:
        """The measured windows that follow the run's progress, as the lab itself judges it."""
        of = self._dataset.series.get(key, {})
        found = {metric: points for (who, metric), points in of.items() if instance in ("", who)}
        if not found:
            return ()
        at_s = tuple(at for at, _ in next(iter(found.values())))
        values = {metric: tuple(value for _, value in points) for metric, points in found.items()}
        return UsageSeries(at_s, {instance: values}).activity(instance)
