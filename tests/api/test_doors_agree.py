"""A plan's question has the same fields, defaults and limits at every door: REST, the command and the page's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from advisor.domain import PLAN_LIMITS, Growth, PlanRequest
from api.cli import app
from api.schemas.inventory import InstanceItem
from api.schemas.placements import PlacementBody
from api.schemas.plan_questions import GrowthBody, PlanBody
from api.web.plan_fields import FIELDS, KINDS
from profiler.observed import Pinning
from tests.api.cli_runs import run
from tests.servers.fixtures import sqlite_with_cloud

OPTIONS = {
    "growth.instances_per_month": "growth", "growth.load_percent_per_month": "load_growth", "growth.months": "months",
    "growth.uncertain_percent": "growth_uncertain", "time_limit_s": "time_limit", "instances": "add",
}  # fmt: skip
FORM = {"growth.instances_per_month": "per_month", "growth.load_percent_per_month": "load_percent"}
NOT_TYPED = {"kind", "instances", "what_if", "growth"}  # on the page: the address, rows of the mix, fields of their own


def standard(name: str) -> Any:
    asked, _, part = name.rpartition(".")
    return getattr(Growth() if asked else PlanRequest(), part)


def option(name: str) -> Any:
    command: Any = typer.main.get_command(app)
    wanted = OPTIONS.get(name, name)
    return next(each for each in command.load("plan").params if each.name == wanted)


def field_of_form(name: str) -> str:
    return FORM.get(name, name.rpartition(".")[2])


def taken_over_rest(name: str, value: float) -> bool:
    asked, _, part = name.rpartition(".")
    number = int(value) if isinstance(standard(name), int) or float(value).is_integer() else value
    try:
        (GrowthBody if asked else PlanBody).model_validate({part: number})
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("name", PLAN_LIMITS)
def test_every_door_has_the_limits_and_the_default(name: str) -> None:
    least, most = PLAN_LIMITS[name]
    beyond = 1 if name != "keep_ratio" else 0.001
    assert [taken_over_rest(name, value) for value in (least, most)] == [True, True]
    assert [taken_over_rest(name, value) for value in (least - beyond, most + beyond)] == [False, False]
    asked = option(name)
    assert (asked.min, asked.max) == (least, most)
    typed = FIELDS[field_of_form(name)]
    assert (typed.low, typed.high) == (least, most)
    default = standard(name)
    assert typed.default == ("" if default is None else f"{default:g}")
    in_rest = (GrowthBody if "." in name else PlanBody).model_fields[name.rpartition(".")[2]].default
    assert in_rest == default
    assert asked.default in {default, None}


@pytest.mark.parametrize("name", sorted(set(PlanBody.model_fields) - {"growth"}))
def test_every_field_of_rest_is_an_option_and_on_the_page(name: str) -> None:
    assert name in PlanRequest.__slots__
    assert option(name) is not None
    on_page = {field for _, _, sections in KINDS.values() for _, names in sections for field in names}
    assert name in NOT_TYPED or name in on_page


@pytest.mark.parametrize("name", sorted(set(PlanBody.model_fields) - {"growth", "instances"}))
def test_defaults_of_rest_are_those_of_the_domain(name: str) -> None:
    default = getattr(PlanBody(), name)
    assert (tuple(default) if isinstance(default, list) else default) == getattr(PlanRequest(), name)


def test_an_instance_is_written_over_rest_as_in_files() -> None:
    body = {"id": "a", "vcpus": 2, "pinning": "0:4-5|1:6", "cpu_percent": 130}
    over_rest = InstanceItem.model_validate(body).as_domain()
    assert over_rest.settings.pinning == Pinning(((4, 5), (6,)))
    assert over_rest.demand["cpu"].mean == 1.3
    placed = PlacementBody.model_validate({"instance": {**body, "id": "new"}}).to_domain().instance
    assert (placed.settings.pinning, placed.demand["cpu"].mean) == (over_rest.settings.pinning, 1.3)
    assert "cpu_percent" not in InstanceItem.of(over_rest).model_dump(mode="json")


@pytest.mark.parametrize("wrong", [{"pinning": "0:x"}, {"pinning": "4-5"}, {"cpu_percent": 50, "demand": {"cpu": 1}}])
def test_what_files_refuse_rest_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InstanceItem.model_validate({"id": "a", **wrong})


@pytest.mark.parametrize("command", ["plan", "report"])
def test_a_path_that_ends_in_html_is_one_file(command: str, tmp_path: Path) -> None:
    page = tmp_path / "cloud.html"
    given = ("--kind", "rebalance", "--report", page) if command == "plan" else ("--out", page)
    told = run(command, Path(__file__).parent / "cloud.yaml", *given, "--time-limit", "5")
    assert told.exit_code == 0, told.output
    assert page.read_text("utf-8").startswith("<!")
    assert [path.name for path in tmp_path.iterdir()] == ["cloud.html"]
    assert str(page) in told.stdout


def test_an_imagined_cloud_in_which_nothing_differs_needs_a_question(tmp_path: Path) -> None:
    imagined = tmp_path / "imagined.yaml"
    imagined.write_text("cpu_overcommit: 8")
    cloud = Path(__file__).parent / "cloud.yaml"
    refused = run("plan", cloud, "--what-if", imagined)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--then" in refused.stderr
    imagined.write_text("remove: [h3]")
    assert run("plan", cloud, "--what-if", imagined, "--time-limit", "5").exit_code == 0


def test_a_database_that_holds_something_is_replaced_by_an_option_that_is_named(tmp_path: Path) -> None:
    database = sqlite_with_cloud(tmp_path / "c.sqlite3", Path(__file__).parent / "cloud.yaml")
    assert run("db", "backup", tmp_path / "b.gz", "--database", database).exit_code == 0
    refused = run("db", "restore", tmp_path / "b.gz", "--database", database)
    assert refused.exit_code != 0
    assert "--replace" in refused.stderr
