"""What FastAPI's OpenAPI document lacks: problem documents on every operation, and what they look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.deadlines import HEADER
from api.problems import INTERNAL, KINDS, MEDIA_TYPE
from api.schemas.pages import FieldError, Problem

_REF = "#/components/schemas/{model}"
_EVERY = (400, 401, 403, 421, 422, 429, 500, 503, 504)  # what any operation can answer
_SCHEMES: dict[str, dict[str, str]] = {
    "token": {"type": "http", "scheme": "bearer", "description": "a token of `cotenant token create`"},
    "password": {"type": "http", "scheme": "basic", "description": "any name, and a token as the password"},
    "keystone": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Auth-Token",
        "description": "a token of OpenStack's Keystone, where the service is told of one",
    },
}
_WITH_BODY = (408, 413, 415, 507)
_TIME = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "seconds after which the answer is of no use; the service may allow fewer",
    # Fewer are taken, too; but what can be asked with so little time is no promise.
    "schema": {"type": "number", "minimum": 1, "maximum": 999999},
}


def responses(
    endpoint: Callable[..., Any], fails: tuple[int, ...], *, takes_body: bool, created: bool
) -> dict[int | str, dict[str, Any]]:
    """The documented answers of a route beside its success."""
    statuses = sorted({*_EVERY, *fails, *(_WITH_BODY if takes_body else ())})
    documented: dict[int | str, dict[str, Any]] = {status: _problem(status) for status in statuses}
    if {"if_match", "if_none_match"} & set(endpoint.__annotations__) == {"if_none_match"}:
        documented[304] = {"description": "The caller has it already"}
    if created:
        documented[201] = {"model": get_type_hints(endpoint)["return"], "description": "Created"}
    return documented


def security(needs: str) -> dict[str, Any]:
    """What a route asks of a token, as OpenAPI 3.1 says it; `{}` as long as the service has never had one."""
    schemes = [] if needs == "open" else [{name: [needs]} for name in _SCHEMES]
    return {"security": [{}, *schemes]}


def _problem(status: int) -> dict[str, Any]:
    kinds = [kind for kind in KINDS if kind.status == status] or [INTERNAL]
    text = "; ".join(f"`{kind.code}`: {kind.title}. {kind.help}" for kind in kinds)
    return {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="Problem")}}}}


def install(app: FastAPI) -> None:
    """Make the application's document the complete one; it is built once, on first use."""

    def complete() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(app)
        return app.openapi_schema

    app.openapi = complete  # type: ignore[method-assign] # FastAPI's documented way to extend the document


def _complete(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        license_info=app.license_info,
        routes=app.routes,
        tags=[
            {"name": "questions", "description": "where should this go, and what would it do to whom"},
            {"name": "inventory", "description": "hosts, instances and workloads as the service knows them"},
            {"name": "observations", "description": "what was measured"},
            {"name": "models", "description": "learned models"},
            {"name": "schedulers", "description": "other schedulers' own protocols; see docs/schedulers.md"},
            {"name": "operations", "description": "for those who run the service"},
        ],
    )
    document["components"]["securitySchemes"] = _SCHEMES
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.setdefault("parameters", []).append(_TIME)
    schemas = document["components"]["schemas"]
    for model in (Problem, FieldError):
        schema = model.model_json_schema(ref_template=_REF, mode="serialization")
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    return document
