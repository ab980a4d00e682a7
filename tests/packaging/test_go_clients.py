"""The types of the Go clients are made from what the service says now; what Go adds, `make` targets check."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from docs.site.rest import document
from tests.packaging.programs import load

AGAIN = "write it anew: make generated"


go_clients = load("go_clients")


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return document()


@pytest.mark.parametrize("client", go_clients.CLIENTS, ids=lambda one: one.path)
def test_a_go_client_is_made_from_what_the_service_says(openapi: dict[str, Any], client: Any) -> None:
    text = client.target.read_text(encoding="utf-8")
    assert go_clients.made_from(text) == go_clients.hash_of(go_clients.reduced(openapi, client)), AGAIN


def test_a_changed_field_makes_a_go_client_old(openapi: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(openapi))
    changed["components"]["schemas"]["AdviceAnswer"]["properties"]["Scores"] = {"type": "string"}
    for client in go_clients.CLIENTS:
        old = go_clients.reduced(openapi, client) != go_clients.reduced(changed, client)
        assert old == (client.path == "/kubernetes/advice")


def test_what_a_go_client_leaves_out_may_be_left_out(openapi: dict[str, Any]) -> None:
    for client in go_clients.CLIENTS:
        body = openapi["paths"][client.path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        sent = {body["$ref"].rpartition("/")[2], "NewInstance"} & set(client.fields)
        for name in sent:
            assert set(openapi["components"]["schemas"][name].get("required", ())) <= set(client.fields[name])


@pytest.mark.parametrize("client", go_clients.CLIENTS, ids=lambda one: one.path)
def test_a_go_client_has_no_type_that_costs_a_library_or_a_second_reading(client: Any) -> None:
    text = client.target.read_text(encoding="utf-8")
    assert re.findall(r'^\t"(\w+\.[^"]+)"$', text, re.MULTILINE) == []  # imports beside the standard library
    assert "UnmarshalJSON(" not in text


@pytest.mark.parametrize("client", go_clients.CLIENTS, ids=lambda one: one.path)
def test_a_go_client_asks_where_its_types_are_taken(client: Any) -> None:
    written = client.target.parents[1].rglob("*.go")
    assert any(f'"{client.path}"' in file.read_text(encoding="utf-8") for file in written if file != client.target)
