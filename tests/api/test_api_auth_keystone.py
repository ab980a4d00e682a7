"""Tokens of Keystone: its answers are believed as they are, for a short while, and without it no caller gets in by it.

The answers of the double are those of a real Keystone 30, shortened; the last test asks a real one.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from advisor.access.keystone import CACHE_S, REFUSED_S, Keystone
from advisor.domain import Caller
from advisor.errors import IdentityUnavailable, InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.auth.gate import STRANGERS
from tests.api.api_client import Client, session
from tests.servers.keystone import PASSWORD, keystone
from tests.servers.local_http import QuietHandler, on_loopback
from tests.servers.running import NotInstalled

ROLES = "admin=admin, Member=write,reader=read"
OURS, THEIRS = "d67b684f49404dd39d81831abbbf0c59", "0d1f0c2d0a1e4f6c8f0b0f6c6f1d2e3a"
TOKEN = "gAAAAABpIaVq" + "x" * 170


def token_of(roles: tuple[str, ...], *, project: str | None = OURS, lasts_s: float = 3600, **more: Any) -> Any:
    expires = datetime.now(UTC) + timedelta(seconds=lasts_s)
    described = {
        "methods": ["password"],
        "user": {"domain": {"id": "default", "name": "Default"}, "id": "9bd9384a61b24ccc8fb4951242b785c4", "name": "w"},
        "audit_ids": ["1tyJ3oqNSu-1YYeutbz2bg"],
        "expires_at": f"{expires:%Y-%m-%dT%H:%M:%S.%f}Z",
        "roles": [{"id": "5ea03ac0543d4682b78d358980f9c843", "name": role} for role in roles],
        **more,
    }
    if project:
        described["project"] = {"domain": {"id": "default", "name": "Default"}, "id": project, "name": "service"}
    return {"token": described}


class Double:
    """Says of every token what the test says."""

    def __init__(self) -> None:
        self.status, self.body = 200, json.dumps(token_of(("member",)))
        self.asked: list[str | None] = []
        self.url = ""


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    _credential(monkeypatch)
    double = Double()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            if "/auth/tokens" not in self.path:  # where the API lies, which a client asks first
                links = [{"rel": "self", "href": double.url}]
                self._json(200, json.dumps({"version": {"id": "v3.14", "status": "stable", "links": links}}))
                return
            assert self.headers["X-Auth-Token"] == "ours"
            double.asked.append(self.headers["X-Subject-Token"])
            self._json(double.status, double.body)

        def do_POST(self) -> None:
            self.request_body()
            self._json(201, json.dumps(token_of(("service",))), {"X-Subject-Token": "ours"})

        def _json(self, status: int, body: str, headers: Mapping[str, str] | None = None) -> None:
            self.reply(status, body.encode(), {"Content-Type": "application/json", **(headers or {})})

    with on_loopback(Handler) as server:
        double.url = f"http://127.0.0.1:{server.server_port}/v3"
        yield double


def _credential(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    given = {"USERNAME": "cotenant", "PASSWORD": PASSWORD, "PROJECT_NAME": "service"}
    for name, value in {**given, "USER_DOMAIN_ID": "default", "PROJECT_DOMAIN_ID": "default"}.items():
        monkeypatch.setenv(f"OS_{name}", value)


@pytest.mark.parametrize(
    ("roles", "scope"),
    [
        (("reader",), "read"),
        (("reader", "MEMBER"), "write"),
        (("admin", "member", "reader"), "admin"),
        (("service",), None),
        ((), None),
    ],
)
def test_the_widest_scope_of_all_roles_counts(double: Double, roles: tuple[str, ...], scope: str | None) -> None:
    double.body = json.dumps(token_of(roles))
    caller = Keystone(double.url, ROLES).ask(TOKEN)
    assert (caller and caller.scope) == scope
    assert caller is None or caller.actor == "keystone:9bd9384a61b24ccc8fb4951242b785c4"


@pytest.mark.parametrize(
    ("described", "counts"),
    [
        ({"project": THEIRS}, False),
        ({"project": None}, False),
        ({"project": None, "domain": {"id": "default"}}, False),
        ({"project": None, "system": {"all": True}}, True),
        ({"lasts_s": -1}, False),
    ],
    ids=["another project", "no scope", "a domain", "the system", "expired"],
)
def test_roles_count_in_our_own_project_and_in_the_system_only(double: Double, described: Any, counts: bool) -> None:
    double.body = json.dumps(token_of(("admin",), **described))  # now: tests are collected long before they run
    assert (Keystone(double.url, ROLES).ask(TOKEN) is not None) == counts


def test_an_answer_is_kept_for_a_minute_a_refusal_shorter_and_neither_beyond_the_token(double: Double) -> None:
    clock = [0.0]
    asked = Keystone(double.url, ROLES, monotonic=lambda: clock[0])

    def kept_s() -> float:
        asked.ask(TOKEN)
        answer = asked.remembered(TOKEN)
        assert answer is not None
        clock[0] = answer.until
        assert asked.remembered(TOKEN) is None
        kept, clock[0] = answer.until, 0.0
        return kept

    assert kept_s() == CACHE_S <= 60
    double.body = json.dumps(token_of(("member",), lasts_s=20))
    assert 15 < kept_s() <= 20
    double.status, double.body = (
        404,
        '{"error":{"code":404,"message":"Could not recognize Fernet token","title":"Not Found"}}',
    )
    assert kept_s() == REFUSED_S
    assert "gAAAA" not in repr(vars(asked))


def test_of_more_tokens_than_are_remembered_the_oldest_are_asked_again(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.access.keystone.MOST_REMEMBERED", 5)
    asked = Keystone(double.url, ROLES)
    tokens = [f"{TOKEN}{number}" for number in range(8)]
    for token in tokens:
        asked.ask(token)
    assert [asked.remembered(token) is not None for token in tokens] == [False] * 3 + [True] * 5
    assert len(asked._valid) == 5


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, ""),
        (401, '{"error":{"code":401,"message":"The request you have made requires authentication."}}'),
        (403, "{}"),
        (200, "<html>"),
        (200, "[]"),
        (200, '{"token": {}}'),
        (200, '{"token": {"expires_at": 7}}'),
        (200, '{"token": null}'),
        (302, ""),
    ],
)
def test_a_malformed_answer_admits_no_user(double: Double, status: int, body: str) -> None:
    double.status, double.body = status, body
    asked = Keystone(double.url, ROLES)
    with pytest.raises(IdentityUnavailable) as caught:
        asked.ask(TOKEN)
    assert PASSWORD not in caught.value.message
    assert asked.remembered(TOKEN) is None


@pytest.mark.parametrize("token", ["", "short", "x" * 5000, "a\r\nX-Evil: 1" + "x" * 20, "ä" * 30])
def test_what_cannot_be_a_token_is_not_sent_on(double: Double, token: str) -> None:
    assert Keystone(double.url, ROLES).ask(token) is None
    assert double.asked == []


def test_without_a_credential_no_caller_is_admitted(
    double: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in [name for name in os.environ if name.startswith("OS_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(IdentityUnavailable, match="name a credential"):
        Keystone(double.url, ROLES).ask(TOKEN)


@pytest.mark.parametrize(
    ("url", "roles", "field"),
    [
        ("keystone:5000", ROLES, "keystone_url"),
        ("http://user:secret@keystone/v3", ROLES, "keystone_url"),
        ("http://keystone/v3", "admin", "keystone_roles"),
        ("http://keystone/v3", "admin=root", "keystone_roles"),
    ],
)
def test_settings_that_make_no_sense_are_refused(url: str, roles: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Keystone(url, roles)
    assert caught.value.field == field
    assert "secret" not in caught.value.message or field == "keystone_roles"


def test_the_service_takes_tokens_of_keystone_beside_its_own(double: Double, settings: Settings) -> None:
    with Advisor(settings.model_copy(update={"keystone_url": double.url, "keystone_roles": ROLES})) as advisor:
        client = Client(create_app(advisor, settings))
        assert client.get("/v1/hosts").status_code == 401, "no token of ours is needed for it to be closed"
        headers = {"X-Auth-Token": TOKEN}
        assert [client.get("/v1/hosts", headers=headers).status_code for _ in range(3)] == [200] * 3
        assert double.asked == [TOKEN], "asked once, remembered then"
        put = client.ask("PUT", "/v1/hosts/h9", headers=headers, json={"kind": "kvm", "pcpus": 4, "memory_mb": 1024})
        assert put.status_code == 201
        assert advisor.access.audit().items[0].actor == "keystone:9bd9384a61b24ccc8fb4951242b785c4"
        assert client.ask("POST", "/v1/models/analytic/activate", headers=headers).status_code == 403
        double.status, double.body = 500, ""
        down = client.get("/v1/hosts", headers={"X-Auth-Token": TOKEN[:-1] + "y"})
        assert (down.status_code, down.json()["code"]) == (503, "auth.unavailable")
        assert "retry-after" in down.headers
        _, ours = advisor.access.tokens.create("ours", "read", lasts=None)
        assert client.get("/v1/hosts", headers={"Authorization": f"Bearer {ours}"}).status_code == 200


class Hanging:
    """A Keystone that knows one token at once and answers about others when it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.asked: list[str] = []

    def remembered(self, token: str) -> None:
        return None

    def was_valid(self, token: str) -> bool:
        return token == "known"

    def ask(self, token: str) -> Caller | None:
        self.asked.append(token)
        if token == "known":
            return Caller("keystone:u1", "read")
        assert self.let.wait(60)
        return None


@pytest.mark.anyio
async def test_forged_tokens_hold_up_neither_valid_ones_of_keystone_nor_ours(
    advisor: Advisor, settings: Settings
) -> None:
    access: Any = advisor.access
    access.keystone = keystone = Hanging()
    _, ours = advisor.access.tokens.create("ours", "read", lasts=None)
    async with session(create_app(advisor, settings)) as client:
        forged = [
            asyncio.create_task(client.get("/v1/hosts", headers={"X-Auth-Token": f"forged-{number}"}))
            for number in range(60)
        ]
        while sum(one.done() for one in forged) < 60 - sum(STRANGERS):
            await asyncio.sleep(0.01)
        assert {one.result().status_code for one in forged if one.done()} == {503}
        assert (await client.get("/v1/hosts", headers={"X-Auth-Token": "known"})).status_code == 200
        assert (await client.get("/v1/hosts", headers={"Authorization": f"Bearer {ours}"})).status_code == 200
        assert not all(one.done() for one in forged), "the flood still waits"
        keystone.let.set()
        answers = [await one for one in forged]
    busy = [answer for answer in answers if answer.status_code == 503]
    assert {answer.json()["code"] for answer in busy} == {"service.busy"}
    assert all("retry-after" in answer.headers for answer in busy)
    assert sum(answer.status_code == 401 for answer in answers) == sum(STRANGERS)


def test_a_flood_of_refused_tokens_does_not_make_a_valid_one_forgotten(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.access.keystone.MOST_REMEMBERED", 3)
    asked = Keystone(double.url, ROLES)
    assert asked.ask(TOKEN)
    double.status = 404
    forged = [f"{TOKEN[:-1]}{letter}" for letter in "abcdef"]
    assert not any(map(asked.ask, forged))
    answer = asked.remembered(TOKEN)
    assert answer is not None and answer.caller is not None
    assert asked.was_valid(TOKEN) and not asked.was_valid(forged[-1])
    assert sum(asked.remembered(one) is not None for one in forged) == 3
    assert asked.ask(TOKEN) is None
    assert not asked.was_valid(TOKEN), "a refusal ends what was known"


@pytest.mark.skipif(
    os.environ.get("COTENANT_TEST_OPENSTACK") != "1", reason="COTENANT_TEST_OPENSTACK=1 starts a Keystone"
)
def test_a_real_keystone_is_asked_and_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with keystone() as server:
            _credential(monkeypatch)
            service, tenant = server.add_project("service"), server.add_project("tenant")
            server.add_user("cotenant", service, "admin")
            writer = server.add_user("writer", service, "member")
            server.add_user("reader", service, "reader")
            server.add_user("tenant", tenant, "member")
            asked = Keystone(server.url, ROLES)
            found = {name: asked.ask(server.token(name, "service")) for name in ("cotenant", "writer", "reader")}
            assert {name: one and one.scope for name, one in found.items()} == {
                "cotenant": "admin",
                "writer": "write",
                "reader": "read",
            }
            assert found["writer"] is not None
            assert found["writer"].actor == f"keystone:{writer}"
            assert asked.ask(server.token("tenant", "tenant")) is None, "a member of a project of their own"
            assert asked.ask(TOKEN) is None
            revoked = server.token("writer", "service")
            server.revoke(revoked)
            assert asked.ask(revoked) is None
            server.server.stop()
            with pytest.raises(IdentityUnavailable, match="cannot be asked"):
                asked.ask(TOKEN[:-1] + "y")
    except NotInstalled as error:
        pytest.skip(str(error))
