"""Writes the types of the plug-in for kube-scheduler and the provider for Terraform, from the OpenAPI document.

`python packaging/go_clients.py` writes them anew with oapi-codegen, whose version and hashes `packaging/oapi_codegen`
holds. The generator gets the one operation that each asks, and of bodies and answers the fields that each uses: types
of everything would be thousands of lines. The head of a file holds the hash of what the generator got, so that
`make test` sees without Go when a file is old. `--check` generates and compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GENERATOR = ROOT / "packaging" / "oapi_codegen"
_HASH = re.compile(r"^// Description: sha256 ([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GoClient:
    """One generated file. `fields` are those that are kept, by schema; all of a schema that is not named.

    An optional text, number or flag is a pointer where its zero differs from nothing (`pointers`). Lists and maps never
    are, but for those in `pointed`. `tags` gives every field its name for Terraform, but for those in `untagged`.
    """

    target: Path
    path: str
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    pointers: bool = True
    pointed: frozenset[str] = frozenset()
    problems: bool = True
    tags: bool = False
    untagged: frozenset[str] = frozenset()


CLIENTS = (
    GoClient(
        ROOT / "integrations" / "kubernetes" / "scheduler" / "rest" / "rest.gen.go",
        "/kubernetes/advice",
        pointers=False,
        problems=False,
    ),
    GoClient(
        ROOT / "integrations" / "terraform" / "rest" / "rest.gen.go",
        "/v1/placements:batch",
        {
            "BatchBody": (
                "instances", "hosts", "constraints", "objective", "limit", "dry_run", "order", "time_limit_s",
            ),
            "NewInstance": (
                "id", "vcpus", "memory_mb", "disk_gb", "like", "workload", "load", "service", "min_throughput_ratio",
                "max_latency_ratio", "max_time_short", "exclusive", "dedicated_vcpus", "labels",
            ),
            "BatchAnswer": ("answers",),
            "Recommendation": ("degraded", "notes", "candidates", "rejected"),
            "Candidate": ("host", "score", "new_vm", "tied_with", "pinning", "notes"),
            "Effect": ("throughput_ratio",),
            "Rejection": ("code", "reason"),
            "Problem": ("code", "detail", "field"),
        },
        pointed=frozenset({"hosts"}),  # an empty list is no host, which is not the same as all
        tags=True,
        untagged=frozenset({"new_vm"}),
    ),
)  # fmt: skip


def reduced(document: Mapping[str, Any], client: GoClient) -> str:
    """What the generator gets: the operation, and the fields and limits of its schemas that Go types can show."""
    method, operation = next(iter(document["paths"][client.path].items()))
    answer = operation["responses"]["200"]["content"]["application/json"]["schema"]
    whole = answer.get("anyOf", [answer])[0]  # of one that may be asked for in short
    responses = {"200": {"description": "The answer.", "content": {"application/json": {"schema": whole}}}}
    if client.problems:
        responses["default"] = {"description": "A problem.", "content": operation["responses"]["422"]["content"]}
    operation_kept = {
        "operationId": operation["operationId"].rpartition(".")[2],
        "summary": operation["summary"],
        "requestBody": operation["requestBody"],
        "responses": responses,
    }
    schemas: dict[str, Any] = {}

    def visit(name: str) -> None:
        if name not in schemas:
            schemas[name] = _schema(document["components"]["schemas"][name], client.fields.get(name), client)
            for other in _references(schemas[name]):
                visit(other)

    for name in _references(operation_kept):
        visit(name)
    info = {"title": document["info"]["title"], "version": "1"}
    paths = {client.path: {method: operation_kept}}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}, indent=1)


def _references(part: Any) -> list[str]:
    """The names of schemas that a part of the document refers to."""
    return re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(part))


def _schema(schema: Mapping[str, Any], names: tuple[str, ...] | None, client: GoClient) -> dict[str, Any]:
    """An object without what Go does not check. A later version's fields pass: `encoding/json` leaves them out."""
    properties = schema["properties"]
    properties_kept = {name: _field(name, properties[name], client) for name in names or properties}
    return {
        "type": "object",
        "description": schema.get("description", ""),
        "required": [name for name in schema.get("required", ()) if name in properties_kept],
        "properties": properties_kept,
    }


def _field(name: str, schema: Mapping[str, Any], client: GoClient) -> dict[str, Any]:
    plain = _plain(schema)
    collection = plain.get("type") in ("array", "object")
    reference = "$ref" in plain or "allOf" in plain
    if (collection and name not in client.pointed) or not (client.pointers or collection or reference):
        plain["x-go-type-skip-optional-pointer"] = True
    if client.tags:
        plain["x-oapi-codegen-extra-tags"] = {"tfsdk": "-" if name in client.untagged else name}
    return plain


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A field's schema without its limits; a number or a text is a text, and what may be null is optional."""
    kinds = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if {one.get("type") for one in kinds} == {"string", "number"}:
        return {"type": "string"}
    if len(kinds) == 1:
        made = _plain(kinds[0]) | ({"description": schema["description"]} if "description" in schema else {})
        if isinstance(made.get("type"), str) and made["type"] not in ("array", "object"):
            made["type"] = [made["type"], "null"]
        return made
    made = {key: one for key, one in schema.items() if key in {"type", "description", "$ref"}}
    if isinstance(schema.get("items"), dict):
        made["items"] = _plain(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = _plain(schema["additionalProperties"])
    if made.get("type") in _WIDE:
        made["format"] = _WIDE[made["type"]]
    return made


_WIDE = {"integer": "int64", "number": "double"}


def made_from(text: str) -> str:
    """The hash in the head of a generated file; empty = there is none."""
    found = _HASH.search(text)
    return found[1] if found else ""


def hash_of(description: str) -> str:
    """Of what the generator gets."""
    return hashlib.sha256(description.encode()).hexdigest()


def generated(description: str) -> str:
    """The file's text; runs the generator by Go."""
    with tempfile.TemporaryDirectory() as folder:
        openapi, options, written = (Path(folder) / name for name in ("openapi.json", "options.json", "rest.go"))
        openapi.write_text(description, encoding="utf-8")
        options.write_text(json.dumps({"package": "rest", "generate": {"models": True}, "output": str(written)}))
        argv = ["go", "tool", "oapi-codegen", "-config", str(options), str(openapi)]
        subprocess.run(argv, cwd=GENERATOR, env={"GOTOOLCHAIN": "auto", **os.environ}, check=True)
        text = written.read_text(encoding="utf-8")
    head = f"// Description: sha256 {hash_of(description)}\n// Write it anew: python packaging/go_clients.py\n\n"
    return head + text


def main(check: bool) -> int:
    """Write all, or tell which differ from what would be written."""
    sys.path.insert(0, str(ROOT))
    from docs.site.rest import document

    described, old = document(), []
    for client in CLIENTS:
        text = generated(reduced(described, client))
        if not check:
            client.target.parent.mkdir(exist_ok=True)
            client.target.write_text(text, encoding="utf-8")
        elif client.target.read_text(encoding="utf-8") != text:
            old.append(client.target.relative_to(ROOT))
    for path in old:
        print(f"{path} is old; write it anew: python packaging/go_clients.py", file=sys.stderr)  # noqa: T201
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(check=sys.argv[1:] == ["--check"]))
