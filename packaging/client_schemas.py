"""Writes cotenant_client/schemas.py: the bodies and answers of the client's calls as types, from the OpenAPI document.

`python packaging/client_schemas.py` writes it anew; a test fails when it differs from what the service says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "cotenant_client" / "schemas.py"
WANTED = (
    "BatchAnswer", "BatchBody", "Generation", "GenerationStored", "HostItem", "HostScoresOut", "InstanceItem",
    "InventoryBody", "ModelOut", "OutcomeBody",
    "PlacementBody", "PlanAnswer", "PlanBody", "PlanItem", "Problem", "Readiness", "Recommendation",
    "SceneBody", "SceneEffects", "ScoresOut", "VmScoresOut", "WorkloadItem",
)  # fmt: skip
HEAD = '''"""Bodies and answers of the service; docs/reference/rest.md says what their fields mean.

Made by `python packaging/client_schemas.py` from the OpenAPI document; change `api/schemas/`, not this file.
Answers may hold more: later versions add fields.
"""

from typing import Any, Literal, NotRequired, TypedDict
'''
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def page(document: Mapping[str, Any]) -> str:
    """The module's text for an OpenAPI document."""
    schemas = document["components"]["schemas"]
    text = HEAD + "".join(_class(name, schemas[name]) for name in _in_order(schemas))
    argv = [str(Path(sys.executable).with_name("ruff")), "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(argv, input=text, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def _in_order(schemas: Mapping[str, Any]) -> list[str]:
    """The wanted schemas and all that they refer to, each after what it refers to."""
    in_order: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in in_order:
            for other in _references(schemas[name].get("properties", {})):
                visit(other)
            in_order[name] = None

    for name in WANTED:
        visit(name)
    return list(in_order)


def _references(part: Any) -> list[str]:
    """The names of schemas that a part of the document refers to."""
    return re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(part))


def _class(name: str, schema: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    description = textwrap.fill(
        re.sub(r"\s+", " ", schema.get("description", name)).strip(), 110, subsequent_indent="    "
    )
    fields = [
        f"    {field}: {_type(one) if field in needed else f'NotRequired[{_type(one)}]'}\n"
        for field, one in schema["properties"].items()
    ]
    return f'\n\nclass {name}(TypedDict):\n    """{description}"""\n\n{"".join(fields)}'


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a field as Python writes it."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(map(repr, schema.get('enum', [schema.get('const')])))}]"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(schema.get('items', {}))}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"dict[str, {_type(values) if isinstance(values, dict) else 'Any'}]"
    return _SIMPLE.get(str(kind), "Any")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from docs.site.rest import document

    TARGET.write_text(page(document()), encoding="utf-8")
