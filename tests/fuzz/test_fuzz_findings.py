"""The report of schemathesis is read whole, and explanations cover neither too much nor nothing."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.fuzz.explained import EXPLAINED
from tests.fuzz.findings import Explained, Finding, outdated, read, unexplained

CURSOR = Explained("GET /v1/hosts", "positive_data_acceptance", "cursor was not", "opaque")
END = json.dumps({"EngineFinished": {}})


def _packed(value: Any) -> dict[str, str]:
    return {"$base64": base64.b64encode(json.dumps(value).encode()).decode()}


def _scenario(check: str, detail: str, *, status: str = "failure") -> str:
    recorder = {
        "label": "GET /v1/hosts",
        "cases": {
            "x": {"value": {"method": "GET", "path": "/v1/hosts", "meta": {"phase": {"data": {"description": "odd"}}}}}
        },
        "checks": {"x": [{"name": "not_a_server_error", "status": "success"}, {"name": check, "status": status}]},
        "interactions": {
            "x": {
                "request": {"uri": "http://127.0.0.1/v1/hosts?cursor=0", "headers": {}, "body": None},
                "response": {"status_code": 422, "content": _packed({"detail": detail})},
            }
        },
    }
    return json.dumps({"ScenarioFinished": {"recorder": recorder}})


def test_every_failed_check_is_read_with_what_the_service_said() -> None:
    found = read([_scenario("positive_data_acceptance", "cursor was not handed out"), END])
    assert [(one.operation, one.check, one.status, one.said) for one in found] == [
        ("GET /v1/hosts", "positive_data_acceptance", 422, "cursor was not handed out")
    ]
    assert unexplained(found, [CURSOR]) == []
    assert outdated(found, [CURSOR]) == []


def test_a_failed_check_of_an_accepted_question_is_reported_by_what_the_question_was() -> None:
    (found,) = read([_scenario("negative_data_rejection", "unread"), END])
    assert found.said == "odd"


def test_checks_that_hold_are_no_findings() -> None:
    assert read([_scenario("positive_data_acceptance", "fine", status="success"), END]) == []


@pytest.mark.parametrize(
    "found",
    [
        Finding("GET /v1/hosts", "positive_data_acceptance", 422, "kind: something else", ""),
        Finding("GET /v1/hosts/x", "positive_data_acceptance", 422, "cursor was not", ""),
        Finding("GET /v1/hosts", "not_a_server_error", 500, "cursor was not", ""),
    ],
)
def test_an_explanation_is_of_one_check_of_some_operations_and_words(found: Finding) -> None:
    assert unexplained([found], [CURSOR]) == [found]
    assert outdated([found], [CURSOR]) == [CURSOR]


@pytest.mark.parametrize(
    "lines", [[], [_scenario("positive_data_acceptance", "x")], [json.dumps({"NonFatalError": {"value": "no"}}), END]]
)
def test_a_run_that_did_not_come_to_its_end_is_an_error(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no end|NonFatalError"):
        read(lines)


def test_no_explanation_covers_an_error_of_the_service() -> None:
    assert {row.check for row in EXPLAINED}.isdisjoint({"not_a_server_error", "response_schema_conformance"})
    assert all(row.reason for row in EXPLAINED)
