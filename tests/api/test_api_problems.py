"""Every error of the advisor has its status and code; what was not foreseen discloses nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from advisor import errors
from advisor.errors import AdvisorError
from advisor.service import Advisor
from advisor.settings import Settings
from api.problems import INTERNAL, KINDS, OF_ERROR, kind_of
from tests.api.api_client import Client, bent_client, failing


def _answer_to(error: Exception, advisor: Advisor, settings: Settings) -> Any:
    return bent_client(advisor, settings, inventory={"hosts": failing(error)}).get("/v1/hosts")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidInput, 422),
        (errors.NotFound, 404),
        (errors.Conflict, 409),
        (errors.StaleGeneration, 409),
        (errors.BrokenArtifact, 409),
        (errors.StorageUnavailable, 503),
        (errors.SchemaMismatch, 503),
        (errors.OutOfSpace, 507),
    ],
)
def test_an_error_of_the_advisor_has_its_status_and_its_own_code(
    error: type[AdvisorError], status: int, advisor: Advisor, settings: Settings
) -> None:
    answer = _answer_to(error("it went so", field="that"), advisor, settings)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": f"/docs#{error.code}",
        "title": OF_ERROR[error].title,
        "status": status,
        "detail": "it went so",
        "code": error.code,
        "request_id": answer.headers["x-request-id"],
        "field": "that",
        "errors": [],
    }


def test_every_error_of_the_advisor_stands_in_the_table_under_its_code() -> None:
    def tree(cls: type[AdvisorError]) -> list[type[AdvisorError]]:
        return [cls, *(found for child in cls.__subclasses__() for found in tree(child))]

    kinds = {cls: kind_of(cls("x")) for cls in tree(AdvisorError) if cls.__module__ == errors.__name__}
    assert kinds.pop(AdvisorError) is INTERNAL
    assert {cls: kind.code for cls, kind in kinds.items()} == {cls: cls.code for cls in kinds}


def test_codes_are_unique() -> None:
    assert len({kind.code for kind in KINDS}) == len(KINDS)


def test_storage_that_is_away_says_when_to_come_back(advisor: Advisor, settings: Settings) -> None:
    answer = _answer_to(errors.StorageUnavailable("gone"), advisor, settings)
    assert answer.headers["retry-after"] == "5"


@pytest.mark.parametrize("error", [RuntimeError("secret"), errors.AdvisorError("secret"), KeyError("secret")])
def test_an_unforeseen_error_shows_the_caller_nothing_and_the_log_everything(
    error: Exception, advisor: Advisor, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        answer = _answer_to(error, advisor, settings)
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text
    record = next(record for record in caplog.records if record.name == "cotenant.errors")
    assert record.exc_info
    assert "secret" in str(record.exc_info[1])
    assert record.request_id == answer.headers["x-request-id"]  # type: ignore[attr-defined]


def test_a_browser_gets_the_same_as_a_page(advisor: Advisor, settings: Settings) -> None:
    away = failing(errors.StorageUnavailable("database <b>x</b> does not answer"))
    answer = bent_client(advisor, settings, cloud={"ready": away}).page("/")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert answer.headers["content-type"].startswith("text/html")
    assert "database &lt;b&gt;x&lt;/b&gt; does not answer" in answer.text
    assert answer.headers["x-request-id"] in answer.text


def test_of_many_mistakes_in_one_thing_only_the_first_are_reported(client: Client) -> None:
    host = {"kind": "xen", "pcpus": 2, "memory_mb": 1024} | {f"field-{number}": 1 for number in range(50)}
    answer = client.ask("PUT", "/v1/hosts/h9", json=host)
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 20
    assert "and 49 more" in answer.json()["detail"]


def test_of_a_thousand_wrong_things_the_first_is_reported(client: Client) -> None:
    answer = client.ask("POST", "/v1/samples", json={"samples": [{}] * 1000})
    assert answer.status_code == 422
    assert {one["field"] for one in answer.json()["errors"]} == {
        f"samples.0.{name}" for name in ("host", "metric", "value", "time")
    }


def test_what_was_sent_is_not_sent_back(client: Client) -> None:
    answer = client.ask("PUT", "/v1/hosts/h9", json={"kind": "my-secret", "pcpus": "my-secret", "memory_mb": 1})
    assert answer.status_code == 422
    assert "my-secret" not in answer.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1"])
def test_json_in_another_encoding_than_utf_8_is_refused(client: Client, encoding: str) -> None:
    text = '{"kind": "kvm", "pcpus": 4, "memory_mb": 1024, "labels": {"a": "é"}}'
    headers = {"Content-Type": "application/json"}
    answer = client.ask("PUT", "/v1/hosts/h9", content=text.encode(encoding), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "input.malformed")
    assert client.ask("PUT", "/v1/hosts/h9", content=text.encode(), headers=headers).status_code == 201
