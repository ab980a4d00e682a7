"""The page of REST routes, from the OpenAPI document of `api.app`, and of the web pages beside them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from api.app import ROUTES, description_with
from docs.site.tables import capital, code, made_by, prose, table

Schema = Mapping[str, Any]


def document() -> dict[str, Any]:
    """The OpenAPI document of the service, with the routes of packages that this reference describes."""
    return description_with(("cotenant_kubernetes",))


def page() -> str:
    """The whole page."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_parts(document()))).rstrip() + "\n"


def _common(operations: Iterable[Mapping[str, Any]]) -> set[int]:
    """The statuses of errors that all of these operations have."""
    return set.intersection(*({int(status) for status in one["responses"] if int(status) >= 400} for one in operations))


def _parts(openapi: Mapping[str, Any]) -> Iterator[str]:
    operations = [operation for methods in openapi["paths"].values() for operation in methods.values()]
    every = _common(operations)
    with_body = _common(one for one in operations if "requestBody" in one) - every
    yield "# REST\n"
    yield made_by("`api/app.py` and `api/schemas/`")
    yield (
        "`GET /openapi.json` gives the same as an OpenAPI 3.1 document, `GET /docs` as a page of the running service.\n"
        "*Scope* is what the token must have; [Access](../access.md) says how to send it. [Error codes](errors.md)\n"
        "are the same for all routes.\n"
    )
    yield (
        "- Bodies are JSON in UTF-8. Unknown fields, and below `/v1` unknown query parameters, are refused with 422.\n"
        "- Every request may carry `X-Request-Timeout` (seconds) and `X-Request-ID`; every answer has `X-Request-ID`.\n"
        f"- Every route may answer {_codes(every)}; one with a body also {_codes(with_body)}.\n"
        "  The lines *errors* name what else a route may answer.\n"
        "- Listings answer a page: `items` and `next_cursor`. Give the latter as `cursor` to get the next page; null\n"
        "  is the end.\n"
        "- `ETag`, `If-Match` and `If-None-Match` keep two writers from overwriting each other (412).\n"
    )
    for tag in openapi["tags"]:
        yield f"## {capital(tag['name'])}\n\n{prose(capital(tag['description']))}\n"
        for path, methods in openapi["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _route(f"{method.upper()} {path}", operation, every | with_body)
    yield "## Web pages\n\nThey answer HTML. A query parameter that a page does not have is refused with 422."
    pages = [route for route in ROUTES if route.tag == "pages"]
    yield table(
        ("page", "scope", "shows"),
        [(code(f"{one.method} {one.path}"), one.needs, prose(_doc(one.endpoint))) for one in pages],
    )
    yield "## Bodies and answers\n"
    for name, schema in openapi["components"]["schemas"].items():
        if not name.startswith("PageOut_"):
            yield from _schema(name, schema)
    yield "**Next:** [watch the service](../monitoring.md)."


def _doc(endpoint: Any) -> str:
    return " ".join((inspect.getdoc(endpoint) or "").split())


def _codes(statuses: Any) -> str:
    return ", ".join(map(str, sorted(statuses)))


def _route(title: str, operation: Mapping[str, Any], common: set[int]) -> Iterator[str]:
    text = " ".join(operation.get("description", "").split())
    summary = prose(operation["summary"])
    said = summary if text.rstrip(".") == operation["summary"].rstrip(".") else f"{summary} {text}"
    yield f"### {title}\n\n{said}\n"
    rows = [
        (
            code(one["name"].title() if one["in"] == "header" else one["name"]),
            one["in"],
            _with_default(one["schema"]),
            prose(capital(one.get("description", ""))),
        )
        for one in operation["parameters"]
        if one["name"] != "X-Request-Timeout"
    ]
    if rows:
        yield table(("parameter", "in", "type", "is"), rows).lstrip("\n")
    yield f"- scope: {_scope(operation)}"
    if body := operation.get("requestBody"):
        wanted = "" if body.get("required") else ", may be left out"
        (first, *_) = body["content"].items()
        yield f"- body: {_media(*first)}{wanted}"
    good = [(status, one) for status, one in operation["responses"].items() if int(status) < 400]
    yield f"- answers: {'; '.join(_answer(status, one) for status, one in sorted(good))}"
    own = {int(status) for status in operation["responses"] if int(status) >= 400} - common
    yield f"- errors: {_codes(own)}\n" if own else ""


def _scope(operation: Mapping[str, Any]) -> str:
    scopes = [scope for one in operation["security"] for names in one.values() for scope in names]
    return scopes[0] if scopes else "none, it is open"


def _answer(status: str, answer: Mapping[str, Any]) -> str:
    content = [_media(*one) for one in answer.get("content", {}).items()]
    text = content[0] if content else {"204": "nothing", "304": "the caller has it already"}.get(status, "")
    return f"{status} {text}".rstrip()


def _media(kind: str, content: Mapping[str, Any]) -> str:
    return _type(content.get("schema", {})) if kind == "application/json" else f"`{kind}`"


def _schema(name: str, schema: Schema) -> Iterator[str]:
    needed = schema.get("required", ())
    rows = [
        (
            code(field),
            _type(value),
            "**required**" if field in needed else _default(value),
            prose(capital(value.get("description", ""))),
        )
        for field, value in schema.get("properties", {}).items()
    ]
    yield f"### {name}\n\n{' '.join(schema.get('description', '').split())}"
    yield table(("field", "type", "default", "is"), rows)


def _with_default(schema: Schema) -> str:
    default = _default(schema)
    return f"{_type(schema)}, default {default}" if default else _type(schema)


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return (
        ""
        if isinstance(default, dict) or default in (None, "", [])
        else code(str(default).lower() if isinstance(default, bool) else f"{default}")
    )


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if page_of := re.fullmatch("PageOut_(.+)_", name):
            return f"page of [{page_of[1]}](#{page_of[1].lower()})"
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        kinds = [_type(one) for one in schema["anyOf"]]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return ", ".join(code(str(one)) or "empty" for one in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {_type(values)}" if isinstance(values, dict) else "mapping"
    return f"{_word(kind, schema)}{_limits(schema)}"


def _word(kind: str, schema: Schema) -> str:
    if schema.get("format") == "date-time":
        return "time (RFC 3339)"
    return {"string": "text", "integer": "whole number", "boolean": "true or false"}.get(kind, kind)


def _limits(schema: Schema) -> str:
    low = f"from {schema['minimum']:,g}" if "minimum" in schema else ""
    low = f"above {schema['exclusiveMinimum']:,g}" if "exclusiveMinimum" in schema else low
    high = f"to {schema['maximum']:,g}" if "maximum" in schema else ""
    high = f"below {schema['exclusiveMaximum']:,g}" if "exclusiveMaximum" in schema else high
    high = "" if high in ("to 1e+15", "below 1e+15") else high  # what only keeps sums finite says nothing to a reader
    said = " ".join(one for one in (low, high) if one)
    return f", {said}" if said else ""
