"""The description is complete: every operation is summed up, and its problems are documented."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from api_client import Client

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import ROUTES, create_app
from api.problems import KINDS
from tests.servers.fixtures import sqlite_with_tables


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

    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) <= known


def test_the_page_lists_every_operation_and_explains_every_code(client: Client, document: dict[str, Any]) -> None:
    page = client.page("/docs").text
    for _, path, operation in _operations(document):
        assert f'id="{operation["operationId"]}"' in page
        assert path in page
    for kind in KINDS:
        assert f'<tr id="{kind.code}">' in page, "the type of a problem points here"
