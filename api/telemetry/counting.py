"""Telemetry: counts and times what the service does, in one worker or several, and shows it to Prometheus."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

from opentelemetry import trace
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    values,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from starlette.types import Scope

from advisor.deadline import STAGES, Stage
from advisor.domain import SCORE_BUCKETS, AnswerSource, RolloutState, Verdict
from advisor.errors import AdvisorError
from api.problems import KINDS

# Metrics of several worker processes: counted in files of one folder, added up by whichever worker is scraped.

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # prometheus-client's own name, read by it in spawned workers
_LIVE = "gauge_livesum_"  # begins the name of a file that every worker has until it is gone
_BEGAN = "process_start_time_seconds"  # the first of all; everything else is added up


def share(folder: Path) -> None:
    """Count in files of this folder from now on; to be called before workers start, in the process that starts them.

    The folder must be empty and is removed by who made it. Workers may be forked or spawned.
    """
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue()  # prometheus-client chose when it was imported


def worker_gone(pid: int) -> None:
    """Forget what only counts while a worker lives; to be called by whoever notices that it ended."""
    if folder() is not None:
        mark_process_dead(pid)


def folder() -> Path | None:
    """Where workers count together; None while each process counts alone."""
    name = os.environ.get(_FOLDER)
    return Path(name) if name else None


def registry(path: Path, own: Collector) -> CollectorRegistry:
    """What all workers counted so far, what their processes use together, and this worker's `own` state."""
    together = CollectorRegistry()
    MultiProcessCollector(together, str(path))
    together.register(_Processes(path))
    together.register(own)
    return together


class _Processes(Collector):
    """CPU time, memory and files of all workers together."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        pids = sorted(int(file.stem.removeprefix(_LIVE)) for file in self._path.glob(f"{_LIVE}*.db"))
        sums: dict[str, Metric] = {}
        for pid in pids:
            for metric in ProcessCollector(registry=None, pid=partial(int, pid)).collect():
                former = sums.setdefault(metric.name, metric)
                if former is not metric:
                    both = former.samples[0].value, metric.samples[0].value
                    value = min(both) if former.samples[0].name == _BEGAN else sum(both)
                    former.samples = [former.samples[0]._replace(value=value)]
        yield from sums.values()
        yield GaugeMetricFamily("cotenant_workers", "Worker processes that count together", len(pids))


# The advisor's state as metrics, read at scrape time so that it is never older than the scrape.

if TYPE_CHECKING:
    from advisor.domain import QualityGroup
    from advisor.service import ChangeService, CloudService, OutcomeService

_CAUSES = ("neighbour", "itself", "host")
_QUALITY: tuple[tuple[str, str, Callable[[QualityGroup], float]], ...] = (
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


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from advisor.domain import Recommendation, SceneEffects
    from advisor.service import ChangeService, CloudService, OutcomeService

access_log = logging.getLogger("cotenant.access")
_QUIET = ("/static/", "/healthz", "/readyz")  # paths that are asked for again and again, and say nothing when they work
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_tracer = trace.get_tracer("cotenant")  # does nothing unless a provider is set
_METHODS = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}
disable_created_metrics()  # a second series for every counter, which only OpenMetrics has a use for


class LaneState(Protocol):
    """What is counted of a lane: threads of its own for one kind of request."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def waiting(self) -> int: ...


class _WatchedLane:
    """A lane and its gauges, which are written where it is busier or idler than at the last look."""

    def __init__(self, lane: LaneState, busy: Gauge, waiting: Gauge) -> None:
        self.lane = lane
        self._gauges = busy, waiting
        self._seen = (-1, -1)

    def look(self) -> None:
        now = self.lane.running, self.lane.waiting
        if now != self._seen:
            self._seen = now
            for gauge, number in zip(self._gauges, now, strict=True):
                gauge.set(number)


class Telemetry:
    """One per application, so that two in one process do not mix; workers that `share` a folder add up.

    Labels are bounded: routes are templates, methods, codes and results come from tables of this program.
    """

    def __init__(self, cloud: CloudService, outcomes: OutcomeService, changes: ChangeService) -> None:
        self._cloud = cloud
        self._folder = folder()
        self._state = StateCollector(cloud, outcomes, changes)
        self._remembering = threading.Lock()
        self._remembered = (0, 0)
        self._lanes: tuple[_WatchedLane, ...] = ()
        # Metrics in files are read from there; in a registry they would be reported twice.
        self._registry = registry = CollectorRegistry() if self._folder is None else None
        if registry is not None:
            registry.register(self._state)
            ProcessCollector(registry=registry)
        self.requests = Histogram(
            "cotenant_http_request_duration_seconds",
            "Time from the first byte of a request to the last byte of its answer",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=registry,
        )
        gauge = partial(Gauge, registry=registry, multiprocess_mode="livesum")
        self.stages = Histogram(
            "cotenant_stage_duration_seconds",
            "Time of the stages of questions about placements",
            ("stage",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_progress = gauge("cotenant_http_requests_in_progress", "Requests that are being answered")
        self.busy = gauge(
            "cotenant_lane_busy_threads", "Threads at work, by lane, as of each worker's last request", ("lane",)
        )
        self.threads = gauge("cotenant_lane_threads", "Threads that there are at most, by lane", ("lane",))
        self.waiting = gauge(
            "cotenant_lane_waiting_requests",
            "Requests that wait for a thread, by lane, as of each worker's last request",
            ("lane",),
        )
        counter = partial(Counter, registry=registry)
        self.problems = counter("cotenant_problems", "Answers that were problem documents, by their code", ("code",))
        self.placements = counter(
            "cotenant_placements",
            "Answered placement questions, by outcome: placed, or no_host that can take it",
            ("outcome", "degraded"),
        )
        self.predictions = counter(
            "cotenant_predictions", "Instances predicted for POST /v1/predictions", ("degraded",)
        )
        self.lookups = counter(
            "cotenant_remembered_lookups",
            "Predictions that placement questions needed: hit = remembered, miss = the model was asked",
            ("result",),
        )
        self.answers = counter(
            "cotenant_remembered_answers",
            "Answers to POST /v1/placements: hit = decided for another question, former = a moment ago, miss = now",
            ("result",),
        )
        self.samples = counter("cotenant_samples", "Metric samples received, by what became of them", ("result",))
        self._begin_at_zero()

    def watch(self, lanes: Iterable[LaneState]) -> None:
        """Tell how busy these are from now on."""
        self._lanes = tuple(
            _WatchedLane(lane, self.busy.labels(lane.name), self.waiting.labels(lane.name)) for lane in lanes
        )
        for watched in self._lanes:
            self.threads.labels(watched.lane.name).set(watched.lane.threads)
        self._look()

    @contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Around a stage of a question: times it, and makes a span of it where traces are sent."""
        began = time.perf_counter()
        try:
            with _tracer.start_as_current_span(name):
                yield
        finally:
            self.stages.labels(name).observe(time.perf_counter() - began)

    def waited(self, seconds: float) -> None:
        """A request has waited so long for a thread."""
        self.stages.labels("queue").observe(seconds)

    def request_began(self) -> None:
        """One more request is being answered; `request_done` must follow."""
        self.in_progress.inc()

    def request_done(self, scope: Scope, request_id: str, status: int, seconds: float, size: int) -> None:
        """Time and log one request. Query strings and headers stay out of the log: they may hold secrets."""
        self.in_progress.dec()
        self._look()
        route = getattr(scope.get("route"), "path", "unmatched")
        method = scope["method"] if scope["method"] in _METHODS else "other"  # a made-up one is no new series
        self.requests.labels(method, route, str(status)).observe(seconds)
        state = scope.get("state", {})
        code = state.get("problem")
        if code is not None:
            self.problems.labels(code).inc()
        client = scope.get("client")
        access_log.log(
            _level(scope["path"], status),
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"][:20],
                "route": route,
                "path": scope["path"][:300],
                "status": status,
                "code": code,
                "duration_ms": round(seconds * 1000, 2),
                "bytes": size,
                "client": client[0] if client else None,
                "actor": state.get("actor"),
            },
        )

    def placed(self, answer: Recommendation, source: AnswerSource) -> None:
        """Count an answered placement."""
        self.answers.labels(source).inc()
        outcome = "placed" if answer.candidates else "no_host"
        self.placements.labels(outcome, str(answer.degraded).lower()).inc()
        self._count_remembered()  # now, since another worker may be scraped

    def predicted(self, answer: SceneEffects) -> None:
        """Count the instances of an answered scene."""
        self.predictions.labels(str(answer.degraded).lower()).inc(len(answer.effects))

    def ingested(self, *, accepted: int, duplicate: int, dropped: int) -> None:
        """Count samples by what became of them."""
        for result, number in (("accepted", accepted), ("duplicate", duplicate), ("dropped", dropped)):
            self.samples.labels(result).inc(number)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that the scraper accepts, and its content type."""
        self._look()
        encode, content_type = choose_encoder(accept)
        if self._folder is None:
            assert self._registry is not None  # noqa: S101 - see __init__
            return encode(self._registry), content_type
        return encode(registry(self._folder, self._state)), content_type

    def _begin_at_zero(self) -> None:
        """Let every series be there from the start: of one that appears, Prometheus does not see the first increase."""
        for kind in KINDS:
            self.problems.labels(kind.code)
        for degraded in ("false", "true"):
            self.predictions.labels(degraded)
            for outcome in ("placed", "no_host"):
                self.placements.labels(outcome, degraded)
        for result in ("accepted", "duplicate", "dropped"):
            self.samples.labels(result)
        for result in ("hit", "miss"):
            self.lookups.labels(result)
        for source in get_args(AnswerSource):
            self.answers.labels(source)
        for name in STAGES:
            self.stages.labels(name)

    def _look(self) -> None:
        """Note how busy the lanes are: whoever is scraped next may be another worker, which cannot look here."""
        for watched in self._lanes:
            watched.look()

    def _count_remembered(self) -> None:
        """Add what is new since the last time; another model remembers, and counts, from 0 on."""
        with self._remembering:
            now = self._cloud.remembered()
            before = self._remembered if sum(now) >= sum(self._remembered) else (0, 0)
            self._remembered = now
            for result, count, former in zip(("hit", "miss"), now, before, strict=True):
                self.lookups.labels(result).inc(max(count - former, 0))


def _level(path: str, status: int) -> int:
    """The level at which a request is logged: files of pages and probes of health only where they fail."""
    return logging.DEBUG if status < 400 and path.startswith(_QUIET) else logging.INFO
