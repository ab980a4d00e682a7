"""Commands run in this process; what they print with `--json` is held against its schema each time."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema_rs
from pydantic import TypeAdapter
from typer.testing import CliRunner, Result

from api.cli import app
from api.cli.schema import shapes


def run(*arguments: object) -> Result:
    words = [str(argument) for argument in arguments]
    result = CliRunner().invoke(app, words)
    if "--json" in words and result.stdout:
        name = next(name for name in (" ".join(words[:2]), words[0]) if name in shapes())
        strict_schema(name).validate(json.loads(result.stdout))
    return result


@cache
def strict_schema(command: str) -> jsonschema_rs.Validator:
    """The schema of what a command prints, as it is today: without the fields that later versions may add."""
    return jsonschema_rs.validator_for(_closed(TypeAdapter(shapes()[command]).json_schema(mode="serialization")))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _closed(part) for name, part in schema.items()}
    is_whole = schema.get("type") == "object" and "properties" in schema  # and no rule about some fields of an object
    return parts | {"additionalProperties": False} if is_whole else parts
