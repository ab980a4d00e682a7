"""The advisor's state as metrics, read at scrape time so that it is never older than the scrape."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from advisor.domain import SCORE_BUCKETS, RolloutState, Verdict
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.domain import ModelGroup
    from advisor.service import ChangeService, CloudService, OutcomeService

_CAUSES = ("neighbour", "itself", "host")
_QUALITY: tuple[tuple[str, str, Callable[[ModelGroup], float]], ...] = (
    (
        "cotenant_model_coverage",
        "Share of observations inside the active model's own 90 % intervals",
        lambda group: group.figures.coverage,
    ),
    ("cotenant_model_error", "Mean |observed - predicted| ratio", lambda group: group.figures.error),
    ("cotenant_model_drift", "Drift alarms that stand, 0 = none", lambda group: len(group.alarms)),
)


class StateCollector(Collector):
    """One worker's view of the database; with several workers, that of the one that answers the scrape."""

    def __init__(self, cloud: CloudService, outcomes: OutcomeService, changes: ChangeService) -> None:
        self._cloud, self._outcomes, self._changes = cloud, outcomes, changes
        self._version = version("cotenant")  # once: it lists all that is installed, in objects that refer to each other

    def describe(self) -> Iterable[Metric]:
        """Names are known without asking the database at start-up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Version, readiness, and where ready: snapshot, hosts, pending answers, the active model and how it holds."""
        build = InfoMetricFamily("cotenant_build", "Version of the service")
        build.add_metric((), {"version": self._version, "python": platform.python_version()})
        yield build
        try:
            vitals = self._cloud.vitals()
        except AdvisorError:
            yield _gauge("cotenant_ready", "1 while questions can be answered", 0)
            return
        yield _gauge("cotenant_ready", "1 while questions can be answered", 1)
        yield _gauge("cotenant_inventory_generation", "How often the inventory was written", vitals.generation)
        yield _gauge("cotenant_hosts", "Hosts in the inventory", vitals.hosts)
        yield _gauge(
            "cotenant_hosts_without_data",
            "Hosts that were not seen for COTENANT_FRESH_S and are rejected for that",
            vitals.hosts_without_data,
        )
        yield _gauge(
            "cotenant_hosts_disagreeing",
            "Hosts on which sources differ in size, kind or place of something",
            len(vitals.disagreements),
        )
        known = GaugeMetricFamily(
            "cotenant_instances", "Instances by what is known of their demand for CPUs", labels=("demand",)
        )
        for source, number in vitals.demand.items():
            known.add_metric((source,), number)
        yield known
        alarms = GaugeMetricFamily(
            "cotenant_alarms", "Instances with less CPU delivered than predicted", labels=("cause",)
        )
        for cause in _CAUSES:
            alarms.add_metric((cause,), vitals.alarms.get(cause, 0))
        yield alarms
        yield from self._scores()
        yield _gauge("cotenant_snapshot_age_seconds", "Age of the snapshot that answers", vitals.snapshot_age_s)
        yield _gauge("cotenant_pending_answers", "Answers that hold their host for a while", vitals.pending)
        yield _gauge(
            "cotenant_degraded", "1 while the analytic model answers in place of a broken one", int(vitals.degraded)
        )
        model = InfoMetricFamily("cotenant_model", "The model that answers")
        model.add_metric((), {"version": vitals.model, "origin": vitals.origin})
        yield model
        yield from self._rollouts()
        yield from self._quality()

    def _scores(self) -> Iterator[Metric]:
        """The cloud's histogram, mean and lowest score, and each host's mean; no mean where no VM runs."""
        try:
            now, low = self._cloud.scores(), self._cloud.low_scores()
        except AdvisorError:
            return
        buckets = GaugeMetricFamily(
            "cotenant_score_instances", "VMs by the fifth that their score (0-100) lies in", labels=("scores",)
        )
        for name, number in zip(SCORE_BUCKETS, now.cloud.counts, strict=True):
            buckets.add_metric((name,), number)
        yield buckets
        yield _gauge("cotenant_low_scores", "VMs with a measured score below COTENANT_SCORE_ALARM for long", len(low))
        yield _gauge("cotenant_score_measured", "VMs whose score rests on a measured CPU share", now.cloud.measured)
        if now.cloud.mean is not None and now.cloud.lowest is not None:
            yield _gauge("cotenant_score", "Mean score of all VMs, 100 = uncontended", now.cloud.mean)
            yield _gauge("cotenant_score_lowest", "Lowest score of a VM", now.cloud.lowest)
        of_hosts = GaugeMetricFamily("cotenant_host_score", "Mean score of a host's VMs", labels=("host",))
        for host, of in now.hosts_lowest_first:
            of_hosts.add_metric((host,), of.mean or 0.0)
        yield of_hosts

    def _rollouts(self) -> Iterator[Metric]:
        try:
            numbers, frozen, verdicts = self._changes.numbers(), self._changes.frozen(), self._changes.verdicts()
        except AdvisorError:
            return
        gauge = GaugeMetricFamily("cotenant_rollouts", "Rollouts by how far they came", labels=("state",))
        for state in get_args(RolloutState):
            gauge.add_metric((state,), numbers.get(state, 0))
        yield gauge
        gauge = GaugeMetricFamily(
            "cotenant_rollout_verdicts", "Measurements of rollouts by verdict", labels=("verdict",)
        )
        for verdict in get_args(Verdict):
            gauge.add_metric((verdict,), verdicts.get(verdict, 0))
        yield gauge
        yield _gauge("cotenant_changes_frozen", "1 while no change may be applied", int(frozen is not None))

    def _quality(self) -> Iterator[Metric]:
        """Per platform, how the predictions of the active model held; no series where nothing was observed."""
        try:
            quality = self._outcomes.quality()
        except AdvisorError:
            return
        here = [group for group in quality.groups if group.role == "active" and group.scope == "platform"]
        for name, text, value in _QUALITY:
            gauge = GaugeMetricFamily(name, text, labels=("version", "platform", "target"))
            for group in here:
                gauge.add_metric((quality.version, group.name, group.target), value(group))
            yield gauge


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
