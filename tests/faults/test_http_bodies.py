"""Bodies made to be expensive: what is wrong in them is said in a few words, whatever there is of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from api.app import ROUTES
from api.schemas.base import Schema

MANY = 20_000
MOST_SHOWN = 40


def _all(kind: type[Schema]) -> Iterator[type[Schema]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _all(child)


BODIES = sorted({one for one in _all(Schema) if one.model_fields}, key=lambda one: f"{one.__module__}.{one.__name__}")
CROWDS: tuple[Any, ...] = ([0] * MANY, [{}] * MANY, ["é\0"] * MANY, {f"é{at}": [] for at in range(MANY)})


def test_there_are_bodies_to_be_tried() -> None:
    assert len(BODIES) > 15
    assert len(ROUTES) > 30


@pytest.mark.parametrize("body", BODIES, ids=lambda one: one.__name__)
def test_a_crowd_of_mistakes_is_reported_in_a_few_words(body: type[Schema]) -> None:
    names = [field.alias or name for name, field in body.model_fields.items()]
    for crowd in CROWDS:
        for name in names:
            assert _reported(body, {name: crowd}) <= MOST_SHOWN, name
    assert _reported(body, {f"unknown{at}": 0 for at in range(MANY)}) <= MOST_SHOWN


def _reported(body: type[Schema], value: dict[str, Any]) -> int:
    try:
        body.model_validate(value)
    except ValidationError as error:
        return error.error_count()
    return 0
