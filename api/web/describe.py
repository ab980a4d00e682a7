"""The OpenAPI document → the page on `/docs`: groups of operations with parameters, bodies and answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from api.html.render import page
from api.problems import KINDS

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A parameter or a field of a body."""

    name: str
    type: str
    shape: str  # the name of the schema that the type speaks of, empty for plain types
    required: bool
    text: str
    place: str = ""  # of a parameter: path, query or header


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    id: str
    method: str
    path: str
    summary: str
    text: str
    parameters: tuple[SchemaField, ...]
    body: tuple[SchemaField, ...]
    example: str
    answers: tuple[str, ...]
    problems: tuple[str, ...]
    tried: bool  # whether the page has a form that sends it: not for pages, nor for bodies that are not JSON


@dataclass(frozen=True, slots=True)
class NamedSchema:
    """A named schema."""

    name: str
    text: str
    fields: tuple[SchemaField, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of one tag."""

    name: str
    text: str
    operations: tuple[Operation, ...]


def describe(document: Document) -> tuple[Group, ...]:
    """All operations by tag, in the document's order."""
    by_tag: dict[str, list[Operation]] = {tag["name"]: [] for tag in document["tags"]}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            by_tag[operation["tags"][0]].append(_operation(document, method, path, operation))
    texts = {tag["name"]: tag["description"] for tag in document["tags"]}
    return tuple(Group(name, texts[name], tuple(operations)) for name, operations in by_tag.items() if operations)


def shapes(document: Document) -> tuple[NamedSchema, ...]:
    """Every schema that bodies and answers are made of."""
    return tuple(
        NamedSchema(name, schema.get("description", ""), _fields(schema))
        for name, schema in document["components"]["schemas"].items()
        if "properties" in schema
    )


def _sentence(text: str) -> str:
    return text if text.endswith(("?", ".")) else f"{text}."


def _operation(document: Document, method: str, path: str, operation: Document) -> Operation:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = _resolve(document, content.get("schema", {}))
    examples = schema.get("examples", [])
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=_sentence(operation["summary"]),
        text="" if operation.get("description", "").startswith(operation["summary"]) else operation["description"],
        parameters=tuple(
            SchemaField(
                parameter["name"],
                _type(parameter["schema"]),
                "",
                parameter.get("required", False),
                _text(parameter, parameter["schema"]),
                parameter["in"],
            )
            for parameter in operation.get("parameters", [])
        ),
        body=_fields(schema),
        example=json.dumps(examples[0], indent=2) if examples else "",
        answers=tuple(sorted(status for status in operation["responses"] if status < "4")),
        problems=tuple(sorted(status for status in operation["responses"] if status >= "4")),
        tried=operation["tags"][0] != "pages" and ("requestBody" not in operation or bool(schema)),
    )


def _fields(schema: Document) -> tuple[SchemaField, ...]:
    required = schema.get("required", [])
    return tuple(
        SchemaField(name, _type(field), _shape(field), name in required, _text(field, field))
        for name, field in schema.get("properties", {}).items()
    )


def _text(described: Document, schema: Document) -> str:
    parts = [described.get("description", "")]
    if not isinstance(schema.get("default"), dict | list) and schema.get("default") not in (None, ""):
        parts.append(f"default {json.dumps(schema['default'])}")
    limits = [f"{words} {schema[key]:g}" for key, words in _LIMITS if key in schema]
    return "; ".join(part for part in (*parts, *limits) if part)


_LIMITS = (("minimum", "at least"), ("exclusiveMinimum", "above"), ("maximum", "at most"))


def _type(schema: Document) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema:
        return " | ".join(_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def _shape(schema: Document) -> str:
    """The name of the first schema that a type refers to; empty = none."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    parts = [*schema.get("anyOf", []), schema.get("items"), schema.get("additionalProperties")]
    return next((name for part in parts if isinstance(part, dict) and (name := _shape(part))), "")


def _resolve(document: Document, schema: Document) -> Document:
    while "$ref" in schema:
        schema = document["components"]["schemas"][str(schema["$ref"]).rpartition("/")[2]]
    return schema


# The page that describes the API, on `/docs`.


def docs(request: Request) -> HTMLResponse:
    """Every operation, its fields and its problems, from the OpenAPI document."""
    document: dict[str, Any] = request.app.openapi()
    groups = describe(document)
    return page(request, "docs.html", document=document, groups=groups, shapes=shapes(document), kinds=KINDS)
