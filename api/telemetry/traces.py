"""Traces of requests, sent by OpenTelemetry's libraries where the operator names a collector."""

from __future__ import annotations

import os

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from advisor.plug_ins import require

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def traces() -> TelemetryConfig:
    """What FastAPI is given: spans of requests and stages go to the collector of the environment; without one, nowhere.

    Metrics are served at /metrics, and logs stay here, for they may quote what was sent. InvalidInput where a
    collector is named and the libraries that send are missing.
    """
    is_on = any(os.environ.get(name) for name in COLLECTORS) and os.environ.get("OTEL_SDK_DISABLED", "") != "true"
    if is_on:
        _send()
    return TelemetryConfig(tracing=is_on, metrics=False, logs=False, operation_spans=False, auto_configure=False)


def _send() -> None:
    """From now on, spans of this process; what else there is to set is read from the environment (OTEL_*)."""
    require("otel", "sending traces")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    if isinstance(trace.get_tracer_provider(), TracerProvider):
        return  # for another application of this process
    os.environ.setdefault("OTEL_SERVICE_NAME", "cotenant")
    provider = TracerProvider()  # which sends what is left when the process ends
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
