"""Loaded by schemathesis (SCHEMATHESIS_HOOKS): it makes header values of letters and digits alone, but for formats."""

from __future__ import annotations

import re
from typing import Any

import schemathesis
from hypothesis import strategies as st

TAGS = st.from_regex(r'"[!#-~]{1,40}"', fullmatch=True)
LISTS = st.lists(TAGS | TAGS.map("W/{}".format), min_size=1, max_size=3).map(", ".join)
GENERATIONS = st.integers(min_value=0, max_value=10**15 - 1).map('"{}"'.format)

schemathesis.openapi.format("entity-tags", st.just("*") | GENERATIONS | LISTS)

SOON = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?s?")
PATIENT = "60"


def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Ask with patience: whether an answer comes within a second depends on the machine. What is no time stays so."""
    given = str((case.headers or {}).get("X-Request-Timeout", ""))
    if SOON.fullmatch(given) and 0 < float(given.rstrip("s")) < float(PATIENT):
        case.headers["X-Request-Timeout"] = PATIENT


schemathesis.hook(before_call)
