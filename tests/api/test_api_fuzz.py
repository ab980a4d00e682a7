"""Generated questions: no answer is a 5xx, and none is outside of what the description says."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from tests.api.api_client import Client

SEARCH = os.environ.get("COTENANT_TEST_SEARCH") == "1"  # as in conftest.py
# An example takes 30 ms, most of them in the generator, and there are a hundred pairs of operation and mode. So every
# fourth operation is asked in each mode: `make test-fuzz` asks a real service thousands about all of them in both.
FEW = bounds(
    max_examples=100 if SEARCH else 2,
    deadline=None,
    database=None,
    derandomize=not SEARCH,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TYPED = st.dictionaries(
    st.sampled_from(["instance", "name", "workload", "vcpus", "memory_mb", "min_throughput_ratio", "service", "x"]),
    st.text(max_size=300)
    | st.sampled_from(["shop-3", "web-1k", "2", "0.9", "nan", "1e999", "-1", "9" * 5000, "\0", "<script>", "²"]),
)


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_no_generated_question_breaks_the_service_or_its_description(
    client: Client, mode: str, request: pytest.FixtureRequest
) -> None:
    import schemathesis  # takes a second, and every worker of pytest imports every file
    from schemathesis.checks import not_a_server_error
    from schemathesis.python import asgi
    from schemathesis.specs.openapi import checks

    request.addfinalizer(asgi.shutdown_lifespans)
    checked = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    schema = schemathesis.openapi.from_dict(client.app.openapi())
    schema.app = client.app
    asked = []
    for number, found in enumerate(schema.get_all_operations()):
        if not SEARCH and number % 4 != (2 if mode == "negative" else 0):
            continue
        operation = found.ok()

        @FEW
        @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def ask(case: Any) -> None:
            case.call_and_validate(base_url="http://127.0.0.1", checks=checked)

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked for
            ask()
            asked.append(operation.label)
    assert len(asked) > 12
    assert client.get("/readyz").status_code == 200


ODD = st.text(st.characters(exclude_categories=[]), max_size=3) | st.sampled_from(["\0", "\ud800", "h1"]) | st.none()


def test_no_made_up_cursor_breaks_a_list(client: Client) -> None:
    asked = {path: found.get("get", {}).get("parameters", ()) for path, found in client.app.openapi()["paths"].items()}
    lists = [path for path, parameters in asked.items() if any(one["name"] == "cursor" for one in parameters)]
    assert len(lists) > 3

    @bounds(FEW, max_examples=100 if SEARCH else 25)
    @given(st.sampled_from(lists), st.lists(ODD, min_size=1, max_size=2))
    def ask(path: str, parts: list[str | None]) -> None:
        text = json.dumps([path.rpartition("/")[2], *parts])
        cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        assert client.get(path, params={"cursor": cursor}).status_code in {200, 422}

    ask()


OURS = '<script src="/static/cotenant.js" defer></script>'


def test_nothing_that_is_typed_breaks_the_page(client: Client) -> None:
    @bounds(FEW, max_examples=100 if SEARCH else 15)
    @given(TYPED)
    def ask(typed: dict[str, str]) -> None:
        answer = client.get("/", params=typed, headers={"Accept": "text/html"})
        assert answer.status_code in {200, 422}
        assert answer.text.count("<script") == answer.text.count(OURS) == 1

    ask()
