"""Spans of a real service at a collector: made by OpenTelemetry's own libraries, read by its own messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from advisor.errors import InvalidInput
from api.telemetry.logs import traces
from tests.servers.service import Service

pytest.importorskip("opentelemetry.sdk", reason="needs cotenant[otel]")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    """Takes spans as a collector does, and keeps them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.spans: list[tuple[str, Span]] = []  # with the name of the service


class _Take(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.server.spans += [
                (named["service.name"], span) for scope in resource.scope_spans for span in scope.spans
            ]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


@contextmanager
def _serving(folder: Path) -> Iterator[httpx.Client]:
    """Ended as an operator ends it, so that what waits is sent."""
    service = Service(f"sqlite:///{folder}/db.sqlite3", folder).start()
    try:
        with httpx.Client(base_url=service.url, timeout=60) as client:
            yield client
    finally:
        service.running.stop()


def test_a_question_is_one_trace_whose_stages_are_spans_below_the_request(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    with _serving(tmp_path) as client:
        client.put("/v1/hosts/h1", json={"kind": "kvm", "pcpus": 2, "memory_mb": 4096}).raise_for_status()
        question = {"instance": {"id": "secret-name", "vcpus": 1}, "dry_run": True}
        client.post("/v1/placements", json=question).raise_for_status()
    assert {name for name, _ in collector.spans} == {"cotenant"}
    spans = [span for _, span in collector.spans]
    request = next(span for span in spans if span.name == "POST /v1/placements")
    inside = [span for span in spans if span.trace_id == request.trace_id and span is not request]
    assert {span.name for span in inside} == {"snapshot", "filters", "predict", "explain", "store"}
    assert {span.parent_span_id for span in inside} == {request.span_id}
    assert all(request.start_time_unix_nano <= span.start_time_unix_nano for span in inside)
    assert b"secret-name" not in b"".join(span.SerializeToString() for span in spans)


@pytest.mark.parametrize("url", ["not-a-url", "ftp://collector:4318", "http://"])
def test_a_collector_that_is_no_url_is_refused_before_anything_is_served(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with pytest.raises(InvalidInput) as refused:
        traces()
    assert refused.value.field == "OTEL_EXPORTER_OTLP_ENDPOINT"


def test_nothing_is_sent_where_no_collector_is_named(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    with _serving(tmp_path) as client:
        client.get("/v1/hosts").raise_for_status()
    assert collector.spans == []
