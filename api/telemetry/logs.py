"""Lines of a log on standard error, one per event, as JSON or as text; never a body, a query or a header."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

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
