"""Generated questions: no answer is a 5xx, and none is outside of what the description says."""

from __future__ import annotations

import contextlib

import pytest
import schemathesis
from api_client import Client
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as bounds
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
FEW = bounds(
    max_examples=15,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
TYPED = st.dictionaries(
    st.sampled_from(["instance", "name", "workload", "vcpus", "memory_mb", "min_throughput_ratio", "service", "x"]),
    st.text(max_size=300)
    | st.sampled_from(["shop-3", "web-1k", "2", "0.9", "nan", "1e999", "-1", "9" * 5000, "\0", "<script>", "²"]),
)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_generated_question_breaks_the_service_or_its_description(client: Client, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(client.app.openapi())
    schema.app = client.app
    asked = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @FEW
        @given(operation.as_strategy(generation_mode=mode))
        def ask(case: schemathesis.Case) -> None:
            case.call_and_validate(base_url="http://127.0.0.1", checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # nothing can be wrong where nothing is asked for
            ask()
            asked.append(operation.label)
    assert len(asked) > 20
    assert client.get("/readyz").status_code == 200


def test_nothing_that_is_typed_breaks_the_page(client: Client) -> None:
    @FEW
    @given(TYPED)
    def ask(typed: dict[str, str]) -> None:
        answer = client.get("/", params=typed, headers={"Accept": "text/html"})
        assert answer.status_code in {200, 422}
        assert "<script" not in answer.text

    ask()
