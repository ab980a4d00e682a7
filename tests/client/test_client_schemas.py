"""The client says what the service's OpenAPI document says: routes, parameters, bodies and answers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, assert_type, get_args, get_origin, get_type_hints

import pytest

from cotenant_client import AsyncClient, Client
from cotenant_client.calls import Answer, Calls, Listing, Page
from cotenant_client.schemas import HostItem, Recommendation
from docs.site.rest import document
from tests.packaging.programs import ROOT, load

ANY = {"get", "post", "put", "delete", "every_item"}  # they ask what their caller names
DESCRIBED: dict[str, Answer[..., Any] | Listing[..., Any]] = {
    name: one for name, one in vars(Calls).items() if isinstance(one, Answer | Listing) and name not in ANY
}


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return document()


def test_the_types_are_what_the_service_says(openapi: dict[str, Any]) -> None:
    made = load("client_schemas")
    written = (ROOT / "cotenant_client" / "schemas.py").read_text(encoding="utf-8")
    assert written == made.page(openapi), "write it anew: make generated"


def operation(openapi: dict[str, Any], method: str, path: str) -> dict[str, Any]:
    """What the document says of a path in which every parameter is `x`."""
    for template, methods in openapi["paths"].items():
        if method.lower() in methods and re.sub(r"\{\w+\}", "x", template) == path:
            return dict(methods[method.lower()])
    raise AssertionError(f"there is no {method} {path}")


def schema_of(content: dict[str, Any]) -> str:
    """The answer's; of one that may be asked for in short, the whole one, which comes first."""
    schema = content["content"]["application/json"]["schema"]
    return str(schema.get("anyOf", [schema])[0]["$ref"].rpartition("/")[2])


@pytest.mark.parametrize("name", DESCRIBED)
def test_each_call_is_a_route_with_its_body_and_answer(openapi: dict[str, Any], name: str) -> None:
    describe: Callable[..., Any] = DESCRIBED[name].describe
    hints = get_type_hints(describe)
    parameters = list(inspect.signature(describe).parameters.values())[1:]
    names = [one.name for one in parameters if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    call = describe(None, *("x" for _ in names))
    route = operation(openapi, call.method, call.path)

    (answer,) = get_args(hints["return"])
    success = next(one for status, one in sorted(route["responses"].items()) if status < "300")
    if get_origin(answer) is Page:
        (item,) = get_args(answer)
        assert schema_of(success) == f"PageOut_{item.__name__}_"
    elif answer is NoneType:
        assert "content" not in success
    else:
        assert schema_of(success) == answer.__name__

    bodies = [get_args(hints[one.name])[0] for one in parameters if one.kind is inspect.Parameter.VAR_KEYWORD]
    assert [one.__name__ for one in bodies] == ([schema_of(route["requestBody"])] if "requestBody" in route else [])

    asked = {one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY}
    there = {one["name"] for one in route["parameters"] if one["in"] == "query"}
    assert asked == there - {"cursor", "limit", "summary"}  # pages are followed, and answers are whole


def test_every_method_of_one_client_is_one_of_the_other_with_its_description() -> None:
    for name, one in DESCRIBED.items():
        assert getattr(Client, name) is getattr(AsyncClient, name) is one
        assert inspect.getdoc(one)


def _typed(client: Client) -> Iterator[Any]:
    """Never called: mypy reads it."""
    yield assert_type(client.place(instance={"id": "n", "vcpus": 2}, dry_run=True), Recommendation)
    yield assert_type(client.hosts(kind="kvm"), Iterator[HostItem])
    yield client.place(instance={"id": 7})  # type: ignore[typeddict-item]
    yield client.place(limit=5)  # type: ignore[call-arg]


async def _typed_too(client: AsyncClient) -> None:
    assert_type(await client.placement("p"), Recommendation)
    async for one in client.hosts():
        assert_type(one, HostItem)
