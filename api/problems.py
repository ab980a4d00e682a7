"""The table of errors and their statuses; error answers as RFC 9457 problem documents, or as pages for browsers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, get_args, get_origin

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from advisor.errors import (
    AdvisorError,
    BrokenArtifact,
    CellsUnavailable,
    Conflict,
    DeadlinePassed,
    IdentityUnavailable,
    InvalidInput,
    KeyInUse,
    KeyReused,
    NotFound,
    OutOfSpace,
    PreconditionFailed,
    ProcessLost,
    RefusedByGate,
    SchemaMismatch,
    SeriesUnavailable,
    StaleGeneration,
    StorageDamaged,
    StorageUnavailable,
)
from advisor.validation import DuplicateKey
from api.html.render import error_page, wants_page
from api.schemas.base import FieldError, Problem, in_words

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20  # in one answer: a batch may have ten thousand wrong samples
_NOT_PARSED = "There was an error parsing the body"  # FastAPI's own words
log = logging.getLogger("cotenant.errors")


class Busy(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """There are more requests than threads and places to wait, or than can be answered in time."""

    code = "service.busy"

    def __init__(self, message: str, *, field: str | None = None, retry_after_s: int = 1) -> None:
        super().__init__(message, field=field)
        self.retry_after_s = retry_after_s


class Stopping(AdvisorError):  # noqa: N818
    """The service is stopping."""

    code = "service.stopping"


class CrossSite(AdvisorError):  # noqa: N818
    """A form that another site could have sent."""

    code = "request.cross_site"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its stable code, status, title, what the caller can do, and headers that go with it."""

    code: str
    status: int
    title: str
    help: str
    headers: Mapping[str, str] | None = None


_RETRY = {"Retry-After": "5"}

# An error's kind is that of the first class in its method resolution order that is listed here.
OF_ERROR: Mapping[type[AdvisorError], Kind] = {
    InvalidInput: Kind("input.invalid", 422, "Invalid input", "Mend the named field and send it again."),
    NotFound: Kind("not_found", 404, "Not found", "Check the name, or create it first."),
    Conflict: Kind("conflict", 409, "Conflict", "Look at the current state, then decide anew."),
    StaleGeneration: Kind(
        "conflict.generation", 409, "Stale generation", "Read the current generation, merge, and send it again."
    ),
    PreconditionFailed: Kind(
        "precondition.failed", 412, "Precondition failed", "Read it again; another client has changed it."
    ),
    KeyReused: Kind(
        "idempotency.reused", 422, "Idempotency key reused", "Give each question a key of its own, and a retry its key."
    ),
    KeyInUse: Kind(
        "idempotency.in_use",
        409,
        "Idempotency key in use",
        "Send it again after as many seconds as Retry-After says: it gets the answer that is being made.",
        {"Retry-After": "1"},
    ),
    BrokenArtifact: Kind(
        "model.broken", 409, "Broken model artifact", "Train or copy the model again; the active one stays."
    ),
    RefusedByGate: Kind(
        "model.refused", 409, "Refused by the gate", "Train on more data, or activate by force; the active one stays."
    ),
    ProcessLost: Kind(
        "process.lost",
        503,
        "A process ended",
        "Look at its memory, and use fewer processes or smaller parts; start the workers of the cluster.",
    ),
    SeriesUnavailable: Kind(
        "series.unavailable",
        503,
        "Store of series unavailable",
        "Look at COTENANT_SAMPLES_URL or COTENANT_PROMETHEUS_URL, and try again.",
        _RETRY,
    ),
    CellsUnavailable: Kind(
        "cells.unavailable", 503, "No cell answers", "Look at the services that COTENANT_CELLS names.", _RETRY
    ),
    StorageUnavailable: Kind(
        "storage.unavailable", 503, "Storage unavailable", "Wait and try again; look at /readyz.", _RETRY
    ),
    StorageDamaged: Kind(
        "storage.damaged",
        503,
        "Storage damaged",
        "Stop the service, move the database away, and restore a backup with `cotenant db restore FILE`.",
    ),
    SchemaMismatch: Kind(
        "storage.schema", 503, "Database of another version", "Run `cotenant db upgrade`, or name another database."
    ),
    IdentityUnavailable: Kind(
        "auth.unavailable", 503, "Keystone unavailable", "Wait and try again, or use a token of Cotenant.", _RETRY
    ),
    Busy: Kind("service.busy", 503, "Service busy", "Wait and try again, or run more workers.", {"Retry-After": "1"}),
    CrossSite: Kind("request.cross_site", 403, "Not sent from here", "Open the page again, and send the form from it."),
    Stopping: Kind("service.stopping", 503, "Service stopping", "Ask another worker, or this one once it is back."),
    DeadlinePassed: Kind(
        "deadline.passed", 504, "Out of time", "Allow it more time; look before repeating a change, it may be done."
    ),
    OutOfSpace: Kind("storage.full", 507, "Storage full", "Free disk space; reading still works."),
}
# What is refused by the rules of HTTP.
OF_STATUS: Mapping[int, Kind] = {
    kind.status: kind
    for kind in (
        Kind("input.malformed", 400, "Malformed request", "Send well-formed JSON in UTF-8."),
        Kind(
            "auth.required",
            401,
            "Token required",
            "Send `Authorization: Bearer TOKEN`, or sign in with it on /signin. "
            "Whoever runs the service makes one with `cotenant token create`.",
        ),
        Kind("auth.forbidden", 403, "Not allowed", "Ask with a token of the scope that is named."),
        Kind("route.unknown", 404, "Unknown path", "See /docs for the paths of this service."),
        Kind("method.not_allowed", 405, "Method not allowed", "See the Allow header."),
        Kind("request.slow", 408, "Slow request", "Send the whole body without long pauses."),
        Kind("input.too_large", 413, "Request too large", "Send it in smaller parts."),
        Kind("input.media_type", 415, "Unsupported media type", "Send application/json, not compressed."),
        Kind("request.head_too_large", 431, "Request head too large", "Send fewer and shorter headers."),
        Kind("limit.rate", 429, "Too many requests", "Wait for as many seconds as Retry-After says."),
        Kind("request.misdirected", 421, "Misdirected request", "Without a token, ask by a loopback name or address."),
    )
}
INTERNAL = Kind("internal", 500, "Internal error", "Report it with the request id; the log has the details.")
KINDS: tuple[Kind, ...] = (*OF_STATUS.values(), *OF_ERROR.values(), INTERNAL)


def kind_of(error: AdvisorError) -> Kind:
    """The row of the table for an error; INTERNAL for an unforeseen one."""
    return next((OF_ERROR[cls] for cls in type(error).__mro__ if cls in OF_ERROR), INTERNAL)


def respond(
    request: Request,
    kind: Kind,
    detail: str,
    *,
    field: str | None = None,
    errors: Sequence[FieldError] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer for a problem: a page where a person asked with a browser, a problem document everywhere else."""
    problem = Problem(
        type=f"/docs#{kind.code}",
        title=kind.title,
        status=kind.status,
        detail=detail,
        code=kind.code,
        request_id=getattr(request.state, "request_id", ""),
        field=field,
        errors=list(errors),
    )
    request.state.problem = kind.code  # for the log and the count of problems
    all_headers = {**(kind.headers or {}), **(headers or {})}
    if wants_page(request):
        return error_page(request, problem, kind.help, all_headers)
    return Response(problem.model_dump_json(), kind.status, all_headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Teach the application to answer every foreseen error with a problem document."""
    app.add_exception_handler(AdvisorError, _advisor_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)


def unexpected(request: Request, error: Exception) -> Response:
    """The answer when our code fails: the log gets everything, the caller only the request id."""
    log.error("unexpected error", exc_info=error, extra={"request_id": getattr(request.state, "request_id", "")})
    return respond(request, INTERNAL, "something went wrong inside the service")


def _advisor_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AdvisorError)  # noqa: S101 - registered for this class only
    kind = kind_of(error)
    if kind is INTERNAL:
        return unexpected(request, error)
    headers = {"Retry-After": str(error.retry_after_s)} if isinstance(error, Busy) else None
    return respond(request, kind, error.message, field=error.field, headers=headers)


def _invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    items = error.errors()
    if any(item["type"] == "json_invalid" for item in items):
        return respond(request, OF_STATUS[400], f"the body is not JSON: {items[0]['ctx']['error']}")
    field = getattr(request.scope.get("route"), "body_field", None)
    body = None if field is None else field.field_info.annotation
    errors = [_field_error(item, body) for item in items[:MOST_ERRORS]]
    # A misspelt field is two errors, for the right one is missing: the one about the spelling says more.
    first = next((error for error in errors if error.code == "extra_forbidden"), errors[0])
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    detail = f"{first.field}: {first.detail}{more}"
    return respond(request, OF_ERROR[InvalidInput], detail, field=first.field, errors=errors)


def _field_error(item: Mapping[str, Any], body: object) -> FieldError:
    # The input itself is left out: it may be huge or secret, or hold what JSON cannot express.
    steps = [str(step)[:80] for step in item["loc"] if step != ""]  # empty: one of several forms, which has no name
    shown = steps[1:] if steps[0] in {"body", "query", "path"} and len(steps) > 1 else steps
    message = in_words(item)
    if item["type"] == "extra_forbidden" and (known := _fields_at(body, item["loc"][1:-1])):
        name = str(item["loc"][-1])[:80]
        near = get_close_matches(name, known, n=1) or [other for other in known if {name, other} == {"id", "name"}]
        message = f"there is no such field; {f'is {near[0]} meant?' if near else 'there are ' + ', '.join(known)}"
    return FieldError(field=_printable(".".join(shown)), code=str(item["type"]), detail=_printable(message))


def _fields_at(body: object, steps: Sequence[object]) -> list[str]:
    """The fields of the schema at this place in a body; none where there is not exactly one schema."""
    schemas, is_key = _schemas(body), False
    for step in steps:
        if isinstance(step, str) and step and len(schemas) == 1 and not is_key:
            annotation = schemas[0].model_fields[step].annotation if step in schemas[0].model_fields else None
            schemas, is_key = _schemas(annotation), get_origin(annotation) is dict
        else:
            is_key = False
    return list(schemas[0].model_fields) if len(schemas) == 1 else []


def _schemas(kind: object) -> list[type[BaseModel]]:
    """The schemas that an annotation is made of: those of its parts, such as of the items of a list."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [schema for part in get_args(kind) for schema in _schemas(part)]


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "�" for char in text)


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    if isinstance(error.__cause__, AdvisorError):  # raised while FastAPI read the body
        return _advisor_error(request, error.__cause__)
    kind = OF_STATUS.get(error.status_code) or Kind(f"http.{error.status_code}", error.status_code, error.detail, "")
    detail, headers = error.detail, error.headers
    if detail == HTTPStatus(error.status_code).phrase:  # the router's own, which says no more than the status
        detail = f"nothing answers {request.method[:20]} {_printable(request.url.path[:200])}"
    elif detail == _NOT_PARSED:
        detail = _why_not_parsed(error.__cause__)
    if error.status_code == 405 and (methods := _methods_of_path(request)):
        headers = {**(headers or {}), "Allow": ", ".join(methods)}
    return respond(request, kind, detail, headers=headers)


def _why_not_parsed(cause: BaseException | None) -> str:
    """Why FastAPI could not read a body, where it is not simply no JSON."""
    match cause:
        case RecursionError():
            return "the JSON of the body is nested too deeply"
        case UnicodeDecodeError():
            return "the body is not UTF-8"
        case DuplicateKey():
            return f"in the JSON of the body, {cause}"
        case ValueError():  # int() refuses it, because reading takes time that grows with the square of its length
            return "a number in the body has too many digits"
    return "the body could not be read"


def _methods_of_path(request: Request) -> list[str]:
    """Every method that the path has: Starlette names only those of its first route."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})
