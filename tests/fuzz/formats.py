"""Loaded by schemathesis (SCHEMATHESIS_HOOKS): it makes header values of letters and digits alone, but for formats."""

from __future__ import annotations

import schemathesis
from hypothesis import strategies as st

TAGS = st.from_regex(r'"[!#-~]{1,40}"', fullmatch=True)
LISTS = st.lists(TAGS | TAGS.map("W/{}".format), min_size=1, max_size=3).map(", ".join)
GENERATIONS = st.integers(min_value=0, max_value=10**15 - 1).map('"{}"'.format)

schemathesis.openapi.format("entity-tags", st.just("*") | GENERATIONS | LISTS)
