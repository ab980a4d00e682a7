"""The description is complete: every operation is summed up, and its problems are documented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import ROUTES, create_app, description_with
from api.problems import KINDS
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables

IDS = Path(__file__).with_name("operation_ids.txt")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One for the file: nothing here changes it, and making the description takes a second."""
    folder = tmp_path_factory.mktemp("openapi")
    settings = Settings(database=sqlite_with_tables(folder / "db.sqlite3"), state_dir=folder)
    with Advisor(settings) as advisor:
        yield Client(create_app(advisor, settings))


@pytest.fixture(scope="module")
def document(client: Client) -> dict[str, Any]:
    answer: dict[str, Any] = client.get("/openapi.json").json()
    return answer


def _operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(m.upper(), path, one) for path, methods in document["paths"].items() for m, one in methods.items()]


def test_every_route_that_is_no_page_is_described(document: dict[str, Any]) -> None:
    described = {(method, path) for method, path, _ in _operations(document)}
    assert described == {(route.method, route.path) for route in ROUTES if route.tag != "pages"}


def test_every_operation_has_a_summary_a_tag_and_an_id_of_its_own(document: dict[str, Any]) -> None:
    operations = _operations(document)
    assert all(one["summary"] and one["tags"] for _, _, one in operations)
    ids = [one["operationId"] for _, _, one in operations]
    assert len(set(ids)) == len(ids)


def test_ids_of_operations_stay_what_generated_clients_call_them_by() -> None:
    """A new route adds a line to the file. Another id for an old one breaks clients: docs/stability.md."""
    kept = {tuple(line.split()) for line in IDS.read_text(encoding="utf-8").splitlines()}
    described = description_with(("cotenant_kubernetes",))
    assert {(method, path, one["operationId"]) for method, path, one in _operations(described)} == kept


def test_every_field_and_parameter_says_what_it_is(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    fields = [(name, field, one) for name in schemas for field, one in schemas[name].get("properties", {}).items()]
    assert len(fields) > 800
    assert sorted(f"{name}.{field}" for name, field, one in fields if not one.get("description")) == []
    asked = [(path, one) for _, path, operation in _operations(document) for one in operation["parameters"]]
    assert [f"{path} {one['name']}" for path, one in asked if not one.get("description")] == []


def test_every_problem_is_described_as_a_problem_document(document: dict[str, Any]) -> None:
    for method, path, operation in _operations(document):
        problems = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert {"400", "422", "500", "503"} <= set(problems), f"{method} {path}"
        for status, answer in problems.items():
            assert list(answer["content"]) == ["application/problem+json"], f"{method} {path} {status}"
            assert answer["description"]


def test_nothing_is_referred_to_that_is_not_there(document: dict[str, Any]) -> None:
    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*(references(one) for one in value.values()))
        return set().union(*(references(one) for one in value)) if isinstance(value, list) else set()

    parts = document["components"]
    known = {f"#/components/{part}/{name}" for part in ("schemas", "headers") for name in parts[part]}
    assert references(document) <= known


def test_a_header_that_takes_entity_tags_says_how_they_look(document: dict[str, Any]) -> None:
    taken = [
        (one["schema"], path)
        for _, path, operation in _operations(document)
        for one in operation["parameters"]
        if one["name"].lower() in {"if-match", "if-none-match"}
    ]
    assert len(taken) == 14
    for schema, path in taken:
        assert schema["type"] == "string"
        assert re.fullmatch(schema["pattern"], "*")
        assert re.fullmatch(schema["pattern"], '"7"')
        assert not re.fullmatch(schema["pattern"], "7"), path


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("get", "/v1/hosts/{host}", {"200", "304"}),
        ("put", "/v1/hosts/{host}", {"200", "201"}),
        ("delete", "/v1/hosts/{host}", set()),
        ("put", "/v1/inventory", {"200"}),
        ("get", "/v1/hosts", set()),
    ],
)
def test_an_answer_with_an_entity_tag_is_described_with_it(
    document: dict[str, Any], method: str, path: str, statuses: set[str]
) -> None:
    answers = document["paths"][path][method]["responses"]
    assert {status for status, answer in answers.items() if "ETag" in answer["headers"]} == statuses


def test_a_described_header_comes_with_the_answer(client: Client, document: dict[str, Any]) -> None:
    host = {"kind": "xen", "pcpus": 8, "memory_mb": 65536}
    answer = client.ask("PUT", "/v1/hosts/described", json=host)
    for name in document["paths"]["/v1/hosts/{host}"]["put"]["responses"][str(answer.status_code)]["headers"]:
        schema = document["components"]["headers"][name]["schema"]
        assert re.fullmatch(schema["pattern"], answer.headers[name]), name


def test_a_parameter_can_be_left_out_and_is_never_null(document: dict[str, Any]) -> None:
    for _, path, operation in _operations(document):
        for one in operation["parameters"]:
            assert {"type": "null"} not in one["schema"].get("anyOf", ()), f"{path} {one['name']}"


def test_a_pattern_of_keys_holds_for_all_keys(document: dict[str, Any]) -> None:
    assert "patternProperties" not in json.dumps(document)
    labels = document["components"]["schemas"]["HostBody"]["properties"]["labels"]
    assert labels["additionalProperties"]["type"] == "string"
    assert re.fullmatch(labels["propertyNames"]["pattern"], "zone")
    assert not re.fullmatch(labels["propertyNames"]["pattern"], "zo\nne")


def test_the_page_lists_every_operation_and_explains_every_code(client: Client, document: dict[str, Any]) -> None:
    page = client.page("/docs").text
    for _, path, operation in _operations(document):
        assert f'id="{operation["operationId"]}"' in page
        assert path in page
    for kind in KINDS:
        assert f'<tr id="{kind.code}">' in page, "the type of a problem points here"


def test_what_has_an_id_is_called_by_it_and_only_workloads_are_keyed_by_a_name(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    named = {schema for schema, one in schemas.items() if "name" in one.get("properties", {})}
    kubernetes, no_key = {"Metadata", "Owner"}, {"ClassSizing", "QualityGroup", "Variant"}
    assert named - kubernetes - no_key == {"WorkloadBody", "WorkloadItem"}


def test_a_path_names_a_thing_by_its_kind_and_a_model_by_its_version(document: dict[str, Any]) -> None:
    found = {name for path in document["paths"] if path.startswith("/v1/") for name in re.findall(r"{(\w+)}", path)}
    assert found == {"host", "instance", "workload", "placement", "plan", "rollout", "version"}


def test_no_field_or_parameter_has_a_second_word_for_what_another_one_names(document: dict[str, Any]) -> None:
    fields = {name for one in document["components"]["schemas"].values() for name in one.get("properties", {})}
    parameters = {one["name"] for _, _, operation in _operations(document) for one in operation.get("parameters", ())}
    instead_of = {"whatif": "what_if", "rungs": "mitigation", "mend": "mitigate", "anyway": "force", "window": "last"}
    assert (fields | parameters) & set(instead_of) == set()
    assert set(instead_of.values()) <= fields | parameters
