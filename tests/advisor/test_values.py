"""Values from outside are refused wherever they stand, and the refusal says where."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from advisor.errors import InvalidInput
from advisor.validation import MAX_NUMBER, MAX_WHOLE, check_value


@dataclass(frozen=True)
class _Part:
    amount: Any = 1.0
    more: dict[str, Any] = field(default_factory=dict)
    several: tuple[Any, ...] = ()


FINE = [0, 1.5, MAX_WHOLE, MAX_NUMBER, True, None, "", "Grüße", np.float64(2.0), (1, ("a",)), {"a": [1]}, object()]
REFUSED = [-1, -0.5, math.nan, math.inf, MAX_WHOLE + 1, 2 * MAX_NUMBER, "a\0", "\ud800", np.float64("nan")]


@pytest.mark.parametrize("value", FINE, ids=lambda value: type(value).__name__)
def test_what_a_database_stores_is_taken_wherever_it_stands(value: Any) -> None:
    check_value(_Part(value, {"part": _Part(value)}, (value, [value])))


@pytest.mark.parametrize("value", REFUSED, ids=ascii)
@pytest.mark.parametrize(
    ("where", "around"),
    [
        ("amount", _Part),
        ("more.part.amount", lambda value: _Part(more={"part": _Part(value)})),
        ("several[1][0]", lambda value: _Part(several=(1, [value]))),
    ],
    ids=["field", "mapping", "list"],
)
def test_what_is_refused_is_named_by_its_place(value: Any, where: str, around: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_value(around(value))
    assert refused.value.field == where


def test_a_key_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidInput):
        check_value({"a\0": 1})
