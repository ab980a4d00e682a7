"""Bootstrap replicates of a dataset's ratios, by the windows within runs where these are known."""

from __future__ import annotations

from lab.show.dataset import DatasetGroup, DatasetMember, Key, LabDataset
from lab.statistics import MemberRepeat, RatioBootstrap
from lab.usage_windows import UsageSeries


class Replicates:
    """Bootstrap replicates of a dataset's ratios; each run is resampled once."""

    def __init__(self, dataset: LabDataset) -> None:
        self._dataset = dataset
        self._redraws = RatioBootstrap()
        self._known: dict[tuple[Key, str], MemberRepeat] = {}

    def of(self, group: DatasetGroup, member: DatasetMember) -> tuple[float, ...]:
        """Replicates of a member's T/B in this round, equally many for each; without windows only the ratio itself.

        ValueError when the ratio is not known.
        """
        outcome = member.outcomes.get("throughput")
        ratio = member.ratio
        if outcome is None or ratio is None or not outcome.solo:
            raise ValueError(f"{member.instance} has no T/B in {group.run}")
        if not self._dataset.series:
            return (ratio,)
        together = self._repeat(group.key, member.instance, outcome.colocated or 0.0)
        return self._redraws.ratios(together, self._repeat(self._dataset.solo_key(group, member), "", outcome.solo))

    def _repeat(self, key: Key, instance: str, value: float) -> MemberRepeat:
        """An empty `instance` means the only one of a solo run; the key of the repeat is the one that the lab uses."""
        name = (key, instance)
        if name not in self._known:
            run, number = key
            self._known[name] = MemberRepeat(f"{run} {number} {instance}", value, self._windows(key, instance))
        return self._known[name]

    def _windows(self, key: Key, instance: str) -> tuple[float, ...]:
        """The measured windows that follow the instance's progress, by the lab's own rule."""
        of_run = self._dataset.series.get(key, {})
        series = {metric: points for (name, metric), points in of_run.items() if instance in ("", name)}
        if not series:
            return ()
        at_s = tuple(at for at, _ in next(iter(series.values())))
        values = {metric: tuple(value for _, value in points) for metric, points in series.items()}
        return UsageSeries(at_s, {instance: values}).activity(instance)
