"""What FastAPI's OpenAPI document lacks: problem documents on every operation, headers, security."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from fastapi.openapi.utils import get_openapi
from starlette.routing import BaseRoute

from api.http.bodies import REPLAYED
from api.http.envelope import HEADER
from api.problems import INTERNAL, KINDS, MEDIA_TYPE
from api.schemas.base import FieldError, Problem

_REF = "#/components/schemas/{model}"
_EVERY = (400, 401, 403, 421, 422, 429, 431, 500, 503, 504)  # statuses that any operation can answer
_SCHEMES: dict[str, dict[str, str]] = {
    "token": {"type": "http", "scheme": "bearer", "description": "a token of `cotenant token create`"},
    "password": {"type": "http", "scheme": "basic", "description": "any name, and a token as the password"},
    "keystone": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Auth-Token",
        "description": "a token of OpenStack's Keystone, where the service is configured with one",
    },
}
_WITH_BODY = (408, 413, 415, 507)
_TIME = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "seconds after which the answer is of no use; the service may allow fewer",
    # Fewer are accepted, too, but what can be answered in less than a second is no promise.
    "schema": {"type": "number", "minimum": 1, "maximum": 999999},
}
_OF_STATUS = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
_HEADERS: dict[str, dict[str, Any]] = {
    "ETag": {
        "description": "what the resource is now, for `If-Match` and `If-None-Match`",
        "required": True,
        "schema": {"type": "string", "pattern": '^"[!#-~]{1,200}"$'},
    },
    REPLAYED: {
        "description": "the same question was answered before under this `Idempotency-Key`, and this is that answer",
        "schema": {"type": "string", "enum": ["true"]},
    },
    "Retry-After": {
        "description": "seconds after which it may be asked again",
        "schema": {"type": "integer", "minimum": 1},
    },
    "WWW-Authenticate": {"description": "how to show a token", "required": True, "schema": {"type": "string"}},
    "X-Request-ID": {
        "description": "the request's id, as the caller gave it or made here; it stands in the log, too",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$"},
    },
}


def responses(
    endpoint: Callable[..., Any], fails: tuple[int, ...], *, success: int, takes_body: bool, created: bool
) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route: its problems, 201 and 304, and the headers of its success."""
    statuses = sorted({*_EVERY, *fails, *(_WITH_BODY if takes_body else ())})
    documented: dict[int | str, dict[str, Any]] = {status: _problem(status) for status in statuses}
    if "once" in endpoint.__annotations__:
        documented.setdefault(success, {})["headers"] = _headers(REPLAYED)
    conditions = {"if_match", "if_none_match"} & set(endpoint.__annotations__)
    if conditions == {"if_none_match"}:
        documented[304] = {"description": "The caller has it already"}
    if created:
        documented[201] = {"model": get_type_hints(endpoint)["return"], "description": "Created"}
    if conditions and success != 204:  # a deleted resource has no tag
        for status in {success, 201, 304} & {success, *documented}:
            documented.setdefault(status, {})["headers"] = _headers("ETag")
    return documented


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def security(needs: str) -> dict[str, Any]:
    """What a route needs of a token, in OpenAPI 3.1; the empty scheme, because a service without tokens needs none."""
    schemes = [] if needs == "open" else [{name: [needs]} for name in _SCHEMES]
    return {"security": [{}, *schemes]}


def _problem(status: int) -> dict[str, Any]:
    kinds = [kind for kind in KINDS if kind.status == status] or [INTERNAL]
    text = "; ".join(f"`{kind.code}`: {kind.title}. {kind.help}" for kind in kinds)
    return {
        "description": text,
        "headers": _headers(*_OF_STATUS.get(status, ())),
        "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}},
    }


def complete(routes: Sequence[BaseRoute], **about: Any) -> dict[str, Any]:
    """The whole document of these routes; `about` are title, version and so on."""
    document = get_openapi(
        **about,
        routes=routes,
        tags=[
            {"name": "questions", "description": "where a VM should go, and its effect on the others"},
            {"name": "inventory", "description": "hosts, instances and workloads as the service knows them"},
            {"name": "observations", "description": "what was measured"},
            {"name": "changes", "description": "what is carried out, and what it brought"},
            {"name": "models", "description": "learned models"},
            {"name": "schedulers", "description": "other schedulers' own protocols; see docs/schedulers.md"},
            {"name": "operations", "description": "for the operators of the service"},
        ],
    )
    document["components"]["securitySchemes"] = _SCHEMES
    for methods in document["paths"].values():
        for operation in methods.values():
            parameters = operation.setdefault("parameters", [])
            for parameter in parameters:
                _without_null(parameter)
            parameters.append(_TIME)
            for answer in operation["responses"].values():
                answer["headers"] = answer.get("headers", {}) | _headers("X-Request-ID")
    document["components"]["headers"] = _HEADERS
    schemas = document["components"]["schemas"]
    for model in (Problem, FieldError):
        schema = model.model_json_schema(ref_template=_REF, mode="serialization")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    _drop_unused(document)
    _name_keys(schemas)
    return document


def _drop_unused(document: dict[str, Any]) -> None:
    """Take out schemas that nothing refers to: FastAPI's own of errors, and types of which answers have other forms."""
    schemas = document["components"]["schemas"]
    while unused := schemas.keys() - set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))):
        for name in unused:
            del schemas[name]


def _without_null(parameter: dict[str, Any]) -> None:
    """Take null out of a parameter's schema: FastAPI writes it for one that may be left out, but no text is null."""
    schema = parameter["schema"]
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    if len(options) == 1:
        del schema["anyOf"]
        schema.update(options[0])


def _name_keys(part: Any) -> None:
    """Write, in place, that all keys of a mapping with a pattern for its keys follow that pattern.

    Pydantic writes `patternProperties`, which allows keys that do not match, and which generators of clients ignore.
    """
    for child in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _name_keys(child)
    if isinstance(part, dict) and isinstance(part.get("patternProperties"), dict):
        ((pattern, values),) = part.pop("patternProperties").items()
        part["additionalProperties"] = values
        part["propertyNames"] = {**part.get("propertyNames", {}), "pattern": pattern}
