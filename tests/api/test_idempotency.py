"""A question that is sent again with its key gets the answer that it got before, from whichever process."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from advisor import deadline
from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.advisor.service.service_clock import Clock
from tests.api.api_client import Bent, Client, bent_client, failing

KEY = "8e03978e-40d5-43dd-bc93-6894a57f9324"
PLACE = {"instance": {"id": "new", "vcpus": 1, "workload": "web-1k"}, "limit": 2}
BATCH = {"instances": [{"id": name, "vcpus": 1} for name in ("n-1", "n-2")], "dry_run": True}
PLAN = {"kind": "evacuate", "empty": ["h2"]}
QUESTIONS = [("/v1/placements", PLACE), ("/v1/placements:batch", BATCH), ("/v1/plans", PLAN)]


def ask(client: Client, path: str, body: Any, key: str = KEY, **headers: str) -> httpx.Response:
    return client.ask("POST", path, json=body, headers={"Idempotency-Key": key, **headers})


def answers(advisor: Advisor) -> int:
    return sum(one.operation.endswith((".answer", ".look")) for one in advisor.access.audit(limit=1000).items)


@pytest.mark.parametrize(("path", "body"), QUESTIONS)
def test_the_same_question_with_the_same_key_gets_the_same_answer(
    client: Client, advisor: Advisor, settings: Settings, path: str, body: dict[str, Any]
) -> None:
    first = ask(client, path, body)
    assert (first.status_code, "idempotent-replayed" in first.headers) == (200, False)
    made = answers(advisor)
    with Advisor(settings) as other:  # another worker
        again = ask(Client(create_app(other, settings)), path, dict(reversed(body.items())))
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers.get("location") == first.headers.get("location")
    assert again.headers["content-type"] == first.headers["content-type"]
    assert answers(advisor) == made, "nothing was asked a second time"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/placements", {**PLACE, "limit": 3}),
        ("/v1/placements?summary=true", PLACE),
        ("/v1/placements:batch", BATCH),
    ],
)
def test_another_question_with_the_same_key_is_refused(client: Client, path: str, body: dict[str, Any]) -> None:
    ask(client, "/v1/placements", PLACE)
    refused = ask(client, path, body)
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "idempotency.reused")
    assert problem["field"] == "idempotency-key"
    assert "another question" in problem["detail"]


def test_keys_are_each_callers_own(advisor: Advisor, client: Client) -> None:
    texts = [advisor.access.tokens.create(name, "write", lasts=None)[1] for name in ("one", "two")]
    first, second = (ask(client, "/v1/placements", PLACE, Authorization=f"Bearer {text}") for text in texts)
    assert first.json()["id"] != second.json()["id"]
    assert "idempotent-replayed" not in second.headers


def test_a_key_is_neither_logged_nor_stored(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        ask(client, "/v1/placements", PLACE)
        ask(client, "/v1/placements", PLACE)
    assert caplog.records
    assert not [one for one in caplog.records if KEY in str(vars(one))]
    for file in settings.state_dir.rglob("*"):
        assert file.is_dir() or KEY.encode() not in file.read_bytes()


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "sm\u00f8rrebr\u00f8d".encode()])
def test_what_is_no_key_is_refused_in_a_sentence(client: Client, key: Any) -> None:
    refused = ask(client, "/v1/placements", PLACE, key)
    assert (refused.status_code, refused.json()["code"]) == (422, "input.invalid")
    assert "idempotency-key" in refused.json()["field"]


def test_a_key_may_have_255_characters(client: Client) -> None:
    assert ask(client, "/v1/placements", PLACE, "~" * 255).status_code == 200


def test_of_two_requests_at_once_one_is_answered_and_the_other_has_to_wait(
    advisor: Advisor, settings: Settings
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slowly(request: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return advisor.placements.place(request)

    bent: Any = Bent(advisor, placements={"place": slowly})
    app = create_app(bent, settings)
    found: list[httpx.Response] = []
    first = threading.Thread(target=lambda: found.append(ask(Client(app), "/v1/placements", PLACE)))
    first.start()
    assert begun.wait(60)
    with Advisor(settings) as other:
        second = ask(Client(create_app(other, settings)), "/v1/placements", PLACE)
    go_on.set()
    first.join()
    assert (second.status_code, second.json()["code"]) == (409, "idempotency.in_use")
    assert second.headers["retry-after"] == "1"
    assert found[0].status_code == 200
    assert ask(Client(app), "/v1/placements", PLACE).content == found[0].content


@pytest.mark.parametrize(
    ("fail", "status"), [(failing(StorageUnavailable("away")), 503), (failing(RuntimeError("a bug")), 500)]
)
def test_what_failed_is_asked_anew(
    advisor: Advisor, settings: Settings, client: Client, fail: Callable[..., Any], status: int
) -> None:
    broken = bent_client(advisor, settings, placements={"place": fail})
    assert ask(broken, "/v1/placements", PLACE).status_code == status
    again = ask(client, "/v1/placements", PLACE)
    assert (again.status_code, "idempotent-replayed" in again.headers) == (200, False)


def test_a_question_that_is_refused_for_its_scope_leaves_its_key_alone(advisor: Advisor, client: Client) -> None:
    _, text = advisor.access.tokens.create("reader", "read", lasts=None)
    assert ask(client, "/v1/placements", PLACE, Authorization=f"Bearer {text}").status_code == 403
    dry = {**PLACE, "dry_run": True}
    assert ask(client, "/v1/placements", dry, Authorization=f"Bearer {text}").status_code == 200


def test_an_answer_is_given_again_for_a_day(settings: Settings) -> None:
    clock = Clock()
    with Advisor(settings, clock=clock) as advisor:
        client = Client(create_app(advisor, settings))
        dry = {**PLACE, "dry_run": True}
        first = ask(client, "/v1/placements", dry)
        clock.turn(24 * 3600 - 1)
        assert ask(client, "/v1/placements", dry).content == first.content
        clock.turn(1)
        assert ask(client, "/v1/placements", {**dry, "limit": 1}).json()["id"] != first.json()["id"]


def test_a_worker_that_died_while_it_answered_blocks_no_other_for_longer_than_a_request_may_take(
    settings: Settings,
) -> None:
    clock = Clock()
    with Advisor(settings, clock=clock) as advisor:
        advisor.access.idempotency.begin("local", KEY, "a question whose process was killed")
        client = Client(create_app(advisor, settings))
        clock.turn(settings.max_request_s)
        assert ask(client, "/v1/placements", PLACE).status_code == 422
        clock.turn(30)
        assert ask(client, "/v1/placements", PLACE).status_code == 200


def test_an_answer_that_came_too_late_for_its_caller_is_there_when_it_asks_again(
    advisor: Advisor, settings: Settings
) -> None:
    done = threading.Event()

    def late(request: Any) -> Any:
        with deadline.within(math.inf):  # the answer is made in time, however busy the machine
            answer = advisor.placements.place(request)
        done.wait(1.5)  # longer than the caller has
        return answer

    client = bent_client(advisor, settings, placements={"place": late})
    timed_out = ask(client, "/v1/placements", PLACE, **{"X-Request-Timeout": "1.4"})
    assert timed_out.status_code == 504
    for _ in range(100):
        again = ask(client, "/v1/placements", PLACE)
        if again.status_code != 409:
            break
        threading.Event().wait(0.05)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
