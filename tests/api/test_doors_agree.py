"""A plan's question has the same fields, defaults and limits at every door: REST, the command and the page's form."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from pydantic import ValidationError

from advisor.domain import PLAN_LIMITS, Growth, PlanRequest
from api.cli import app
from api.schemas.plan_questions import GrowthBody, PlanBody
from api.web.plan_fields import FIELDS, KINDS

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
