"""Traces of requests, sent by OpenTelemetry's libraries where the operator names a collector."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from advisor.errors import InvalidInput
from advisor.plug_ins import require

COLLECTORS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def traces() -> TelemetryConfig:
    """What FastAPI is given: spans of requests and stages go to the collector of the environment; without one, nowhere.

    Metrics are served at /metrics, and logs stay here, for they may quote what was sent. InvalidInput where a
    collector is named and the libraries that send are missing.
    """
    named = [name for name in COLLECTORS if os.environ.get(name)]
    is_on = bool(named) and os.environ.get("OTEL_SDK_DISABLED", "") != "true"
    if is_on:
        _check_collector(named[0])
        _send()
    return TelemetryConfig(tracing=is_on, metrics=False, logs=False, operation_spans=False, auto_configure=False)


def _check_collector(name: str) -> None:
    """InvalidInput where the library that sends would fail later, and say so in the log alone."""
    url = urlsplit(os.environ[name])
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidInput(f"{name} is no URL of a collector, such as http://127.0.0.1:4318", field=name)


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
