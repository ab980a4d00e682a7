"""What goes wrong between client and service: what is tried again, what is not, and what is said in the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest

from cotenant_client import (
    BadAnswer,
    Client,
    Conflict,
    CotenantError,
    InvalidInput,
    NotFound,
    Refused,
    Unauthorised,
    Unavailable,
)
from tests.client.stand_in import Reply, StandIn, by

READY = Reply(body=b'{"status": "ready"}')
BUSY = Reply(503, b'{"detail": "more is asked than there are threads", "code": "service.busy"}')
HTML = b"<html>Bad gateway</html>"
NEW = {"id": "n"}


ready = methodcaller("ready")
place = methodcaller("place", instance=NEW)
place_dry = methodcaller("place", instance=NEW, dry_run=True)
put = methodcaller("put_inventory", hosts=[], instances=[])
put_with_generation = methodcaller("put_inventory", mode="merge", generation=7)


@pytest.mark.parametrize("call", [ready, place_dry, put_with_generation])
@pytest.mark.parametrize(
    "first",
    [BUSY, Reply(502, HTML), Reply(504, HTML), Reply(429, b'{"detail": "slower"}'), Reply(how="nothing"),
     Reply(body=b'{"status": "ready"}', how="half")],
    ids=["503", "502", "504", "429", "no answer", "half an answer"],
)  # fmt: skip
def test_what_does_no_harm_is_asked_again(
    stand_in: StandIn, kind: str, first: Reply, call: Callable[[Any], Any]
) -> None:
    stand_in.replies = [first, READY]
    assert by(kind, stand_in.url, call) == {"status": "ready"}
    assert [one.body for one in stand_in.seen] == [stand_in.seen[0].body] * 2


@pytest.mark.parametrize("call", [place, put])
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (BUSY, "more is asked"),
        (Reply(how="nothing"), "the connection broke"),
        (Reply(how="half"), "the connection broke"),
    ],
    ids=["503", "no answer", "half an answer"],
)
def test_what_may_have_been_carried_out_is_not_asked_again(
    stand_in: StandIn, kind: str, first: Reply, words: str, call: Callable[[Any], Any]
) -> None:
    stand_in.replies = [first, READY]
    with pytest.raises(Unavailable, match=words) as failed:
        by(kind, stand_in.url, call)
    assert (failed.value.sent, len(stand_in.seen)) == (True, 1)


def test_what_was_turned_away_before_it_began_is_asked_again(stand_in: StandIn, kind: str) -> None:
    stand_in.replies = [Reply(429, b'{"detail": "slower"}'), READY]
    assert by(kind, stand_in.url, place) == {"status": "ready"}


def test_it_gives_up_after_so_many_tries_and_says_why(stand_in: StandIn, kind: str) -> None:
    stand_in.replies = [BUSY]
    with pytest.raises(Unavailable, match="more is asked") as failed:
        by(kind, stand_in.url, ready, tries=3)
    assert (failed.value.code, failed.value.status, len(stand_in.seen)) == ("service.busy", 503, 3)


@pytest.mark.parametrize("failure", [500, 501, 507])
def test_a_failure_that_stays_is_not_asked_again(stand_in: StandIn, kind: str, failure: int) -> None:
    stand_in.replies = [Reply(failure, b'{"detail": "no space"}')]
    with pytest.raises(Unavailable, match="no space"):
        by(kind, stand_in.url, ready)
    assert len(stand_in.seen) == 1


@pytest.mark.parametrize(
    ("url", "failure", "words"),
    [
        ("http://127.0.0.1:1", "refused", "http://127.0.0.1:1 cannot be asked: nothing listens there$"),
        ("http://cotenant.invalid", "name", "name cannot be resolved"),
    ],
)
def test_an_absent_far_end_is_one_sentence(kind: str, url: str, failure: str, words: str) -> None:
    with pytest.raises(Unavailable, match=words) as failed:
        by(kind, url, ready, tries=1)
    assert (failed.value.kind, failed.value.sent, failed.value.status) == (failure, False, None)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(200, HTML), BadAnswer),
        (Reply(200, b""), BadAnswer),
        (Reply(200, b"[" * 100_000), BadAnswer),
        (Reply(404, HTML), BadAnswer),
        (Reply(302, HTML, {"Location": "/v1/hosts"}), BadAnswer),
        (Reply(502, HTML), Unavailable),
        (Reply(500, b"[]"), Unavailable),
    ],
)
def test_what_is_no_cotenant_is_one_sentence(
    stand_in: StandIn, kind: str, reply: Reply, error: type[CotenantError]
) -> None:
    stand_in.replies = [reply]
    with pytest.raises(error) as failed:
        by(kind, stand_in.url, ready, tries=1)
    words = "and does not say why" if error is Unavailable else "and is no Cotenant"
    assert str(failed.value) == f"{stand_in.url} answers {reply.status} {words}"
    assert (failed.value.code, failed.value.field, failed.value.status) == ("", None, reply.status)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidInput), (401, Unauthorised), (403, Unauthorised), (404, NotFound), (405, Refused),
        (409, Conflict), (412, Conflict), (413, InvalidInput), (415, InvalidInput), (421, Refused), (422, InvalidInput),
    ],
)  # fmt: skip
def test_each_kind_of_problem_is_a_class(stand_in: StandIn, kind: str, status: int, error: type[CotenantError]) -> None:
    problem = {"detail": "it is wrong", "code": "some.code", "field": "instance.id", "request_id": "r1"}
    stand_in.replies = [Reply(status, json.dumps(problem).encode())]
    with pytest.raises(Refused) as failed:
        by(kind, stand_in.url, ready)
    assert type(failed.value) is error
    assert (str(failed.value), failed.value.code, failed.value.field) == ("it is wrong", "some.code", "instance.id")
    assert (failed.value.status, failed.value.request_id, len(stand_in.seen)) == (status, "r1", 1)


def test_redirects_are_not_followed(stand_in: StandIn, kind: str) -> None:
    stand_in.replies = [Reply(307, b"", {"Location": f"{stand_in.url}/elsewhere"}), READY]
    with pytest.raises(BadAnswer, match="answers 307"):
        by(kind, stand_in.url, ready)
    assert [one.path for one in stand_in.seen] == ["/readyz"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"items": [1], "next_cursor": "a"}', "gives the same page of hosts again and again"),
        (b"[]", "something that is no page of hosts"),
        (b'{"items": []}', "something that is no page of hosts"),
    ],
)
def test_pages_that_are_none_end_in_one_sentence(stand_in: StandIn, kind: str, body: bytes, words: str) -> None:
    stand_in.replies = [Reply(body=body)]
    with pytest.raises(BadAnswer, match=words):
        by(kind, stand_in.url, lambda client: client.hosts())


def test_an_answer_that_never_ends_is_cut_at_the_deadline(stand_in: StandIn, kind: str) -> None:
    stand_in.replies = [Reply(how="drip")]
    with pytest.raises(Unavailable) as failed:
        by(kind, stand_in.url, ready, deadline_s=0.3)
    assert failed.value.kind in {"connection", "timeout"}
    assert len(stand_in.seen) == 1


def test_too_large_an_answer_is_not_read(stand_in: StandIn, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_client.calls._LARGEST_ANSWER", 2**20)
    stand_in.replies = [Reply(body=b" " * (2**20 + 1))]
    with pytest.raises(BadAnswer, match="more than 1 MiB is not read"):
        by(kind, stand_in.url, ready)


def test_what_another_thread_has_under_way_ends_when_the_client_is_closed(stand_in: StandIn) -> None:
    stand_in.replies = [Reply(how="silence")]
    client, said = Client(stand_in.url), []

    def ask() -> None:
        with pytest.raises(Unavailable) as failed:
            client.ready()
        said.append(failed.value.kind)

    thread = threading.Thread(target=ask)
    thread.start()
    assert stand_in.asked.wait(30)
    client.close()
    thread.join(20)
    assert said == ["closed"]
    with pytest.raises(Unavailable, match="the client was closed"):
        client.ready()


@pytest.mark.parametrize("name", [".", "..", "a/b", "a?b=c", "ä%2F", "a b#"])
def test_a_name_leads_nowhere_else(stand_in: StandIn, kind: str, name: str) -> None:
    by(kind, stand_in.url, lambda client: client.placement(name))
    (seen,) = stand_in.seen
    assert seen.path.startswith("/v1/placements/")
    assert (seen.path.count("/"), "?" in seen.path, ".." in seen.path) == (3, False, False)


@pytest.mark.parametrize("path", ["http://127.0.0.1:1/v1/hosts", "//127.0.0.1:1/v1/hosts", "v1/hosts"])
def test_a_path_leads_to_no_other_server(stand_in: StandIn, kind: str, path: str) -> None:
    with pytest.raises(InvalidInput, match="is no path"):
        by(kind, stand_in.url, lambda client: client.get(path))
    assert stand_in.seen == []


def test_a_service_below_a_path_is_asked_there(stand_in: StandIn, kind: str) -> None:
    by(kind, f"{stand_in.url}/cotenant/", lambda client: client.get("/v1/hosts", kind="kvm", cursor=None))
    assert [one.path for one in stand_in.seen] == ["/cotenant/v1/hosts?kind=kvm"]


def test_what_is_no_json_is_not_sent(stand_in: StandIn, kind: str) -> None:
    with pytest.raises(InvalidInput, match="is no JSON"):
        by(kind, stand_in.url, lambda client: client.post("/v1/predictions", {"load": float("nan")}))
    assert stand_in.seen == []
