"""Telemetry: counts and times what the service does, and tells it to Prometheus."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol, get_args

from opentelemetry import trace
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from starlette.types import Scope

from advisor.domain import AnswerSource
from advisor.stages import STAGES, Stage
from api.problems import KINDS
from api.telemetry import workers
from api.telemetry.state import StateCollector

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


class Telemetry:
    """One per application, so that two in one process do not mix; workers that `share` a folder add up.

    Labels are bounded: routes are templates, methods, codes and results come from tables of this program.
    """

    def __init__(self, cloud: CloudService, outcomes: OutcomeService, changes: ChangeService) -> None:
        self._cloud = cloud
        self._folder = workers.folder()
        self._state = StateCollector(cloud, outcomes, changes)
        self._remembering = threading.Lock()
        self._remembered = (0, 0)
        self._lanes: tuple[LaneState, ...] = ()
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
        self._lanes = tuple(lanes)
        for lane in self._lanes:
            self.threads.labels(lane.name).set(lane.threads)
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
        return encode(workers.registry(self._folder, self._state)), content_type

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
        for lane in self._lanes:
            self.busy.labels(lane.name).set(lane.running)
            self.waiting.labels(lane.name).set(lane.waiting)

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
