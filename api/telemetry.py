"""What the service says about itself: Prometheus metrics in a registry per application, and log lines as JSON."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.types import Scope

from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.domain import ModelGroup, Recommendation, SceneEffects
    from advisor.service import Advisor

access_log = logging.getLogger("cotenant.access")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_QUALITY: tuple[tuple[str, str, Callable[[ModelGroup], float]], ...] = (
    (
        "cotenant_model_coverage",
        "Share of observations inside the active model's own 90 % intervals",
        lambda group: group.figures.coverage,
    ),
    ("cotenant_model_error", "Mean |observed - predicted| ratio", lambda group: group.figures.error),
    ("cotenant_model_drift", "Drift alarms that stand, 0 = none", lambda group: len(group.alarms)),
)
_LOG_FIELDS = ("request_id", "method", "route", "path", "status", "duration_ms", "bytes", "client")


class Telemetry:
    """Counts and times what the service does; one per application, so that two in one process do not mix."""

    def __init__(self, advisor: Advisor) -> None:
        self.registry = CollectorRegistry()
        self.requests = Histogram(
            "cotenant_http_request_duration_seconds",
            "Time from the first byte of a request to the last byte of its answer",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.placements = Counter(
            "cotenant_placements",
            "Answered placement questions, by outcome: placed, or no_host that can take it",
            ("outcome", "degraded"),
            registry=self.registry,
        )
        self.predictions = Counter(
            "cotenant_predictions",
            "Instances predicted for POST /v1/predictions",
            ("degraded",),
            registry=self.registry,
        )
        self.samples = Counter(
            "cotenant_samples", "Metric samples received, by what became of them", ("result",), registry=self.registry
        )
        self.registry.register(StateCollector(advisor))

    def request_done(self, scope: Scope, request_id: str, status: int, seconds: float, size: int) -> None:
        """Time and log one request. Query strings and headers stay out of the log: they may hold secrets."""
        route = getattr(scope.get("route"), "path", "unmatched")
        self.requests.labels(_known_method(scope["method"]), route, str(status)).observe(seconds)
        client = scope.get("client")
        access_log.info(
            "request",
            extra={
                "request_id": request_id,
                "method": scope["method"][:20],
                "route": route,
                "path": scope["path"][:300],
                "status": status,
                "duration_ms": round(seconds * 1000, 2),
                "bytes": size,
                "client": client[0] if client else None,
            },
        )

    def placed(self, answer: Recommendation) -> None:
        """Count an answered placement."""
        outcome = "placed" if answer.candidates else "no_host"
        self.placements.labels(outcome, str(answer.degraded).lower()).inc()

    def predicted(self, answer: SceneEffects) -> None:
        """Count the instances of an answered scene."""
        self.predictions.labels(str(answer.degraded).lower()).inc(len(answer.effects))

    def ingested(self, *, accepted: int, duplicate: int, dropped: int) -> None:
        """Count samples by what became of them."""
        for result, number in (("accepted", accepted), ("duplicate", duplicate), ("dropped", dropped)):
            self.samples.labels(result).inc(number)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format that the scraper accepts, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class StateCollector(Collector):
    """Reads the advisor's state at scrape time, so that it is never older than the scrape."""

    def __init__(self, advisor: Advisor) -> None:
        self._advisor = advisor

    def describe(self) -> Iterable[Metric]:
        """Names are known without asking the database at start-up."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Readiness, and where ready: snapshot age, generation, hosts, the active model and how it holds."""
        try:
            state = self._advisor.ready()
        except AdvisorError:
            yield _gauge("cotenant_ready", "1 while questions can be answered", 0)
            return
        yield _gauge("cotenant_ready", "1 while questions can be answered", 1)
        yield _gauge("cotenant_inventory_generation", "Generation of the inventory", state["generation"])
        yield _gauge("cotenant_hosts", "Hosts in the inventory", state["hosts"])
        yield _gauge("cotenant_snapshot_age_seconds", "Age of the snapshot that answers", state["snapshot_age_s"])
        yield _gauge("cotenant_degraded", "1 while the prior stands in for a broken model", int(state["degraded"]))
        model = GaugeMetricFamily("cotenant_model_info", "The model that answers", labels=("version",))
        model.add_metric((str(state["model"]),), 1)
        yield model
        yield from self._quality()

    def _quality(self) -> Iterator[Metric]:
        """Per platform, how the predictions of the active model held; no series where nothing was observed."""
        try:
            quality = self._advisor.model_quality()
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


def _known_method(method: str) -> str:
    # A made-up method must not become a new time series.
    return method if method in {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} else "other"


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, the request's fields, and a traceback where there is one."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: getattr(record, name) for name in _LOG_FIELDS if hasattr(record, name)})
        if record.exc_info and record.exc_info[1]:
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=True, default=str)


def start_logging(level: str) -> None:
    """Send every log line as JSON to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells every start-up that there is nothing to do
