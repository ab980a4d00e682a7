"""Lines of a log on standard error, and traces of requests where the operator names a collector."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from fastapi.telemetry import TelemetryConfig
from opentelemetry import trace

from advisor.errors import InvalidInput
from advisor.plug_ins import require

Format = Literal["json", "text"]
# What a request's line says, in this order; `actor` is who asked, `code` the problem that was the answer.
FIELDS = ("request_id", "method", "route", "path", "status", "code", "duration_ms", "bytes", "client", "actor")


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, message, the request's fields, and a traceback where there is one."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info and record.exc_info[1]:
            line["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=True, default=str)


class TextLines(logging.Formatter):
    """One line for people: time, level, logger, message, then name=value; quoted where it could be taken for more."""

    def format(self, record: logging.LogRecord) -> str:
        """The same as JsonLines writes; a traceback is quoted too, so that one event is one line."""
        words = [_time(record), record.levelname.lower(), record.name, _plain(record.getMessage())]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items() if value is not None]
        if record.exc_info and record.exc_info[1]:
            words.append(f"traceback={_quoted(''.join(traceback.format_exception(record.exc_info[1])))}")
        return " ".join(words)


def start_logging(level: str, lines: Format = "json") -> None:
    """Send every log line to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if lines == "json" else TextLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # at every start-up it logs that there is nothing to do


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    return {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}


def _plain(text: str) -> str:
    """Text that cannot end its line or move a terminal's cursor."""
    return json.dumps(text, ensure_ascii=True)[1:-1].replace('\\"', '"')


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isascii() and text.isprintable() and not set(' "=\\') & set(text) and text else json.dumps(text)


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
