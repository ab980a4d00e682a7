"""Any JSON at all, for routes that other programs ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from tests.api.api_client import Client
from tests.examples import examples

FEW = bounds(
    max_examples=examples(25), deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def check_that_no_json_breaks(client: Client, path: str, names: Sequence[str]) -> None:
    """Whatever is posted is answered or refused, also under the `names` of the protocol's fields."""
    keys = st.sampled_from([*names, "items", "metadata"])
    bodies = st.dictionaries(keys, ANYTHING, max_size=4) | ANYTHING

    @FEW
    @given(bodies)
    def ask(body: Any) -> None:
        raw = json.dumps(body).encode()  # NaN and Infinity as Python's parser lets them in
        answer = client.ask("POST", path, content=raw, headers={"Content-Type": "application/json"})
        assert answer.status_code in {200, 400, 422}, answer.text

    ask()
