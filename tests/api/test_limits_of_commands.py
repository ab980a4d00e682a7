"""An option of a command that is a parameter of REST has its default, its limits and its choices."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
import typer.main

from api.app import create_app
from api.cli import ON_THIS_MACHINE
from api.cli import app as cotenant
from docs.site.commands import commands
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables

# Where each command is answered by a service; those that ask declared questions have tests of their own.
ASKED = {
    "audit": "/v1/audit",
    "changes list": "/v1/changes",
    "changes show": "/v1/changes/{rollout}",
    "doctor": "/v1/checkup",
    "models history": "/v1/activations",
    "models list": "/v1/models",
    "models quality": "/v1/models/{version}/quality",
    "models show": "/v1/models/{version}",
    "obtained": "/v1/instances/{instance}/obtained",
    "plans list": "/v1/plans",
    "plans show": "/v1/plans/{plan}",
    "profile": "/v1/instances/{instance}/profile",
    "score": "/v1/scores",
    "slowing": "/v1/hosts/{host}/slowing",
    "worth": "/v1/worth",
}
DECLARED = {"where", "predict", "plan", "tune", "report", "migrate", "probe-plan"}
CHANGING = {"changes approve", "freeze", "models gate", "models activate", "models rollback", "models shadow"}
WHOLE = {"snapshot"}  # reads listings to their end
EVERY_PAGE = {("models list", "limit"), ("models history", "limit")}  # a listing that is short is printed whole


def options_of(command: str) -> dict[str, Any]:
    """The parameters of a command by the name of REST."""
    found: Any = typer.main.get_command(cotenant)
    for word in command.split():
        found = found.load(word) if hasattr(found, "load") else found.commands[word]
    return {option.opts[0].strip("-").replace("-", "_"): option for option in found.params}


@pytest.fixture(scope="module")
def parameters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Schemas of the query of each route that is asked, by path and name."""
    from advisor.service import Advisor
    from advisor.settings import Settings

    settings = Settings(database=sqlite_with_tables(tmp_path_factory.mktemp("db") / "c.sqlite3"))
    with Advisor(settings) as advisor:
        paths = Client(create_app(advisor, settings)).get("/openapi.json").json()["paths"]
    return {
        path: {one["name"]: one["schema"] for one in paths[path]["get"].get("parameters", ()) if one["in"] == "query"}
        for path in ASKED.values()
    }


def limits(schema: dict[str, Any]) -> tuple[Any, Any, Any, tuple[str, ...]]:
    """Default, least, most and choices that a schema of REST has."""
    parts = [schema, *schema.get("anyOf", ())]

    def first(name: str) -> Any:
        return next((part[name] for part in parts if name in part), None)

    return schema.get("default"), first("minimum"), first("maximum"), tuple(first("enum") or ())


def test_every_command_is_compared_or_named() -> None:
    names = {one.name.removeprefix("cotenant ") for one in commands() if one.name.startswith("cotenant ")}
    elsewhere = {name for name in names if name in ON_THIS_MACHINE or name.split()[0] in ON_THIS_MACHINE}
    assert names == {*ASKED, *DECLARED, *CHANGING, *WHOLE, *elsewhere}


@pytest.mark.parametrize("command", ASKED)
def test_an_option_has_the_limits_that_rest_has(command: str, parameters: dict[str, dict[str, Any]]) -> None:
    options, query = options_of(command), parameters[ASKED[command]]
    missing = query.keys() - options.keys() - {"cursor"}
    assert missing == {name for where, name in EVERY_PAGE if where == command}
    for name in query.keys() & options.keys():
        option = options[name]
        kind = option.type_descriptor.annotation
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        assert (option.default, option.min, option.max, choices) == limits(query[name]), f"{command} --{name}"
