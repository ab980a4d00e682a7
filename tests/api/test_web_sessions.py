"""Signing in to the pages: which caller a cookie lets in, for how long, and that no other site can use it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from advisor.domain import Caller
from advisor.service import Advisor
from advisor.settings import Settings
from api import serving
from api.app import create_app
from api.auth import gate
from api.http.envelope import RateLimit
from tests.advisor.service.service_clock import Clock
from tests.api.api_client import Client

HERE = {"Origin": "http://127.0.0.1"}  # what a browser says of a form on one of our pages
PAGE = {"Accept": "text/html"}


class Browser:
    """Holds the cookie and knows the key of the page's form, as a person's browser does."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.cookie: dict[str, str] = {}

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.client.get(path, headers={**PAGE, **self.cookie, **headers})

    def post(self, path: str, fields: Mapping[str, str], **headers: str) -> httpx.Response:
        shown = re.search(
            r'name="form_key" value="(\w*)"', self.get("/signin" if path == "/signin" else "/nothing").text
        )
        key = {"form_key": shown[1]} if shown else {}
        answer = self.client.ask(
            "POST", path, data={**key, **fields}, headers={**PAGE, **HERE, **self.cookie, **headers}
        )
        for text in answer.headers.get_list("set-cookie"):
            name, _, rest = text.partition("=")
            if not rest.startswith('""'):
                self.cookie = {"Cookie": f"{name}={rest.partition(';')[0]}"}
        return answer

    def sign_in(self, token: str, after: str = "/cloud", **headers: str) -> httpx.Response:
        return self.post("/signin", {"token": token, "next": after}, **headers)


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime.now(UTC))


@pytest.fixture
def advisor(settings: Settings, clock: Clock) -> Iterator[Advisor]:
    with Advisor(settings, clock=clock) as opened:
        yield opened


@pytest.fixture
def token(advisor: Advisor) -> str:
    """A token that reads."""
    return advisor.access.tokens.create("operators", "read", lasts=None)[1]


@pytest.fixture
def browser(advisor: Advisor, settings: Settings) -> Browser:
    return Browser(Client(create_app(advisor, settings)))


def test_who_signs_in_reads_pages_and_who_signs_out_does_not_any_more(advisor: Advisor, browser: Browser) -> None:
    _, text = advisor.access.tokens.create("operators <b>", "read", lasts=None)
    sent_away = browser.get("/cloud?a=b")
    assert (sent_away.status_code, sent_away.headers["location"]) == (303, "/signin?next=%2Fcloud%3Fa%3Db")
    assert 'value="/cloud?a=b"' in browser.get(sent_away.headers["location"]).text
    answer = browser.sign_in(text, "/cloud?a=b")
    assert (answer.status_code, answer.headers["location"]) == (303, "/cloud?a=b")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    shown = browser.get("/cloud")
    assert shown.status_code == 200
    assert "operators &lt;b&gt;" in shown.text
    stored = str(list(advisor._database._engine.raw_connection().execute("SELECT * FROM sessions")))
    assert browser.cookie["Cookie"].partition("=")[2] not in stored
    assert browser.post("/signout", {}).headers["location"] == "/signin"
    assert browser.get("/cloud").status_code == 303
    reported = {entry.operation: entry.actor for entry in advisor.access.audit(limit=3).items}
    assert reported["session.begin"] == reported["session.end"] != "anybody"


def test_a_cookie_counts_for_pages_only(advisor: Advisor, browser: Browser) -> None:
    _, text = advisor.access.tokens.create("operators", "admin", lasts=None)
    browser.sign_in(text)
    for path in ("/v1/hosts", "/v1/nothing", "/metrics", "/v1/audit"):
        assert browser.get(path).status_code == 401
    put = browser.client.ask(
        "PUT", "/v1/hosts/h9", json={"kind": "kvm", "pcpus": 1, "memory_mb": 1}, headers=browser.cookie | HERE
    )
    assert put.status_code == 401
    assert browser.get("/nothing").status_code == 404, "who is signed in learns what is not there"


def test_a_session_may_what_its_token_may(advisor: Advisor, browser: Browser) -> None:
    _, text = advisor.access.tokens.create("readers", "read", lasts=None)
    browser.sign_in(text)
    answer = browser.post("/models/analytic/activate", {})
    assert answer.status_code == 403
    assert "this needs a token of scope admin" in answer.text


def test_a_session_ends_with_its_token_and_after_half_a_day(advisor: Advisor, browser: Browser, clock: Clock) -> None:
    token, text = advisor.access.tokens.create("revoked", "read", lasts=None)
    browser.sign_in(text)
    advisor.access.tokens.revoke(token.id)
    assert browser.get("/cloud").status_code == 303
    late = browser.post("/models/analytic/activate", {})  # a form that was open meanwhile
    assert (late.status_code, 'href="/signin"' in late.text) == (401, True)
    _, text = advisor.access.tokens.create("short", "read", lasts=timedelta(hours=1))
    assert "Max-Age=3600" in browser.sign_in(text).headers["set-cookie"]
    clock.now += timedelta(minutes=59)
    assert browser.get("/cloud").status_code == 200
    clock.now += timedelta(minutes=1)
    assert browser.get("/cloud").status_code == 303
    _, text = advisor.access.tokens.create("for ever", "read", lasts=None)
    browser.sign_in(text)
    clock.now += timedelta(hours=11, minutes=59)
    assert browser.get("/cloud").status_code == 200
    clock.now += timedelta(minutes=1)
    assert browser.get("/cloud").status_code == 303
    clock.now -= timedelta(hours=2)  # a clock that steps back brings none back
    assert browser.get("/cloud").status_code == 303


def test_each_sign_in_is_another_session_and_ends_the_one_before(advisor: Advisor, browser: Browser) -> None:
    _, text = advisor.access.tokens.create("operators", "read", lasts=None)
    browser.cookie = {"Cookie": f"cotenant={'A' * 43}"}  # put there by another site
    browser.sign_in(text)
    first = dict(browser.cookie)
    assert first != {"Cookie": f"cotenant={'A' * 43}"}
    browser.sign_in(text)
    ended, begun = sorted(advisor.access.audit(limit=2).items, key=lambda entry: entry.operation, reverse=True)
    assert (begun.operation, ended.operation) == ("session.begin", "session.end")
    assert begun.request_id == ended.request_id != ""
    assert begun.actor == ended.actor != "anybody"
    assert browser.cookie != first
    assert browser.client.get("/cloud", headers={**PAGE, **first}).status_code == 303
    assert browser.get("/cloud").status_code == 200


def test_signing_in_leads_nowhere_else(token: str, browser: Browser) -> None:
    for after in ("//evil.example", "/\\evil.example", "https://evil.example", "/a\r\nX: y", "", "/signin"):
        assert browser.sign_in(token, after).headers["location"] == "/"


@pytest.mark.usefixtures("token")
def test_a_wrong_token_is_refused_and_audited_and_too_many_wait(
    advisor: Advisor, browser: Browser, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    answer = browser.sign_in("cot_wrong")
    assert answer.status_code == 401
    assert "This token is not valid" in answer.text
    assert "cot_wrong" not in answer.text
    refused = advisor.access.audit(limit=1).items[0]
    assert (refused.operation, refused.actor, refused.detail) == ("session.refuse", "anybody", {"client": "127.0.0.1"})
    monkeypatch.setattr(gate, "ATTEMPTS_AT_ONCE", 2)
    monkeypatch.setattr(gate, "RateLimit", partial(RateLimit, monotonic=lambda: 0.0))  # however long an attempt takes
    eager = Browser(Client(create_app(advisor, settings)))
    answers = [eager.sign_in("cot_wrong") for _ in range(3)]
    assert [one.status_code for one in answers] == [401, 401, 429]
    assert answers[-1].headers["retry-after"] == "1"
    assert len([one for one in advisor.access.audit().items if one.operation == "session.refuse"]) == 3


def attempts(app: Any, clients: list[tuple[str, str]]) -> list[int]:
    """The status of one wrong sign-in each, from these addresses with this X-Forwarded-For."""
    headers = {**PAGE, "Sec-Fetch-Site": "same-origin"}
    return [
        Client(app, address=address)
        .ask("POST", "/signin", data={"token": "cot_wrong"}, headers=headers | {"X-Forwarded-For": forwarded})
        .status_code
        for address, forwarded in clients
    ]


@pytest.mark.usefixtures("token")
def test_attempts_are_counted_by_place_and_one_network_of_ipv6_is_one(
    advisor: Advisor, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "ATTEMPTS_AT_ONCE", 2)
    monkeypatch.setattr(gate, "ATTEMPTS_PER_S", 0.001)
    there = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"]
    assert attempts(create_app(advisor, settings), [(one, "") for one in there]) == [401, 401, 429, 401]
    mapped = ["::ffff:192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"]
    assert attempts(create_app(advisor, settings), [(one, "") for one in mapped]) == [401, 401, 429, 401]


@pytest.mark.parametrize(
    ("trusted", "statuses", "known"), [("", [401, 429, 429], "127.0.0.1"), ("127.0.0.1", [401, 429, 401], "192.0.2.2")]
)
@pytest.mark.usefixtures("token")
def test_callers_behind_a_proxy_are_distinguished_where_the_proxy_is_trusted(
    advisor: Advisor, settings: Settings, monkeypatch: pytest.MonkeyPatch, trusted: str, statuses: list[int], known: str
) -> None:
    monkeypatch.setattr(gate, "ATTEMPTS_AT_ONCE", 1)
    monkeypatch.setattr(gate, "ATTEMPTS_PER_S", 0.001)
    chosen = settings.model_copy(update={"trusted_proxies": trusted})
    served = serving.Server(create_app(advisor, chosen), chosen, lambda: None).config
    served.load()
    people = ["192.0.2.1", "203.0.113.9, 192.0.2.1", "192.0.2.2"]  # the second forges who it is
    assert attempts(served.loaded_app, [("127.0.0.1", one) for one in people]) == statuses
    assert advisor.access.audit(limit=1).items[0].detail == {"client": known}


def test_a_proxy_that_is_no_address_is_refused() -> None:
    for text in ("*", "proxy.example", "10.0.0.1/24", "10.0.0.1,"):
        with pytest.raises(ValidationError, match="trusted_proxies"):
            Settings(trusted_proxies=text)
    assert Settings(trusted_proxies="10.0.0.0/24, ::1").trusted_proxies


def test_a_form_counts_only_from_a_page_of_ours(token: str, browser: Browser) -> None:
    for headers, status in (
        ({"Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://127.0.0.1"}, 303),
        ({"Origin": "null", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://127.0.0.1:8080"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({}, 403),
    ):
        asked = {"data": {"token": token}, "headers": {**PAGE, **headers}}
        assert browser.client.ask("POST", "/signin", **asked).status_code == status, headers


def test_a_form_counts_only_in_the_session_that_it_was_made_for(token: str, browser: Browser) -> None:
    other = Browser(browser.client)
    other.sign_in(token)
    browser.sign_in(token)
    stolen = re.search(r'name="form_key" value="(\w+)"', other.get("/cloud").text)
    assert stolen
    for key in ({"form_key": stolen[1]}, {"form_key": ""}):
        refused = browser.post("/signout", key)
        assert (refused.status_code, "request.cross_site" in refused.text) == (403, True)
    assert browser.get("/cloud").status_code == 200


def test_behind_tls_the_cookie_is_for_tls_only(token: str, browser: Browser) -> None:
    cookie = browser.sign_in(token, Origin="https://127.0.0.1").headers["set-cookie"]
    assert cookie.startswith("__Host-cotenant=")
    assert "Secure" in cookie.split("; ")
    assert browser.get("/cloud").status_code == 200


@pytest.mark.parametrize(
    ("url", "sent", "signed_in"),
    [
        ("http://cloud.example", {}, True),
        ("https://cloud.example", {}, False),
        ("http://cloud.example", {"Sec-Fetch-Site": "none"}, False),  # a proxy that is not trusted took the TLS off
        ("http://127.0.0.1", {"Sec-Fetch-Site": "none"}, True),
    ],
)
def test_over_tls_the_cookie_of_plain_http_does_not_count(
    token: str, browser: Browser, url: str, sent: dict[str, str], signed_in: bool
) -> None:
    browser.sign_in(token)
    assert browser.cookie["Cookie"].startswith("cotenant=")

    shown = Client(browser.client.app, base_url=url).get("/cloud", headers={**PAGE, **browser.cookie, **sent})
    assert shown.status_code == (200 if signed_in else 303)


def test_without_a_token_pages_are_open_here_and_forms_are_guarded_all_the_same(browser: Browser) -> None:
    assert browser.get("/signin").headers["location"] == "/"
    assert browser.get("/cloud").status_code == 200
    assert browser.get("/cloud", Host="evil.example").status_code == 421
    posted: dict[str, Any] = {"data": {"any": "thing"}, "headers": {**PAGE, "Sec-Fetch-Site": "cross-site"}}
    assert browser.client.ask("POST", "/models/analytic/activate", **posted).status_code == 403


@pytest.mark.parametrize(
    ("says", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),  # a program
    ],
)
def test_a_page_of_another_site_changes_nothing_by_the_api(
    advisor: Advisor, browser: Browser, says: dict[str, str], status: int
) -> None:
    path = "/v1/models/analytic/shadow"  # a change without a body, which any form on any site can ask for
    assert browser.client.ask("POST", path, headers=says).status_code == status, "no caller has a token"
    _, text = advisor.access.tokens.create("admins", "admin", lasts=None)
    basic = {"Authorization": f"Basic {base64.b64encode(f'x:{text}'.encode()).decode()}"}  # which a browser remembers
    assert browser.client.ask("POST", path, headers=says | basic).status_code == status
    bearer = {"Authorization": f"Bearer {text}"}  # which no other site can have sent
    assert browser.client.ask("POST", path, headers=says | bearer).status_code == 200


class Keystone:
    """Knows one token, until it is revoked."""

    def __init__(self) -> None:
        self.valid = True

    def was_valid(self, token: str) -> bool:
        return False

    def remembered(self, token: str) -> None:
        return None

    def ask(self, token: str) -> Caller | None:
        return Caller("keystone:u1", "write") if self.valid and token == "gAAAA-of-keystone" else None


def test_a_token_of_keystone_signs_in_too_and_is_asked_about_again(
    advisor: Advisor, browser: Browser, settings: Settings
) -> None:
    access: Any = advisor.access
    access.keystone = access.sessions._keystone = known = Keystone()
    assert browser.sign_in("gAAAA-of-another").status_code == 401
    assert browser.sign_in("gAAAA-of-keystone").status_code == 303
    assert "keystone:u1" in browser.get("/cloud").text
    stored = str(list(advisor._database._engine.raw_connection().execute("SELECT * FROM sessions")))
    assert "gAAAA-of-keystone" not in stored
    known.valid = False
    assert browser.get("/cloud").status_code == 303
