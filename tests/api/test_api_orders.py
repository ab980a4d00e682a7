"""Orders by REST: for the agent of one host alone, which opens nothing else; no other token gets or answers them."""

from __future__ import annotations

import pytest

from advisor.errors import InvalidInput
from advisor.service import Advisor, SignedText
from advisor.settings import Settings
from advisor.store import rollouts
from api.app import ROUTES, create_app
from tests.api.api_client import Client

ID = "0" * 32
REPORT = {"order": ID, "text": "{}", "signature": "0" * 64}


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    with advisor._transactions.write() as connection:
        now = advisor.orders.now()
        rollouts.add_order(connection, SignedText(ID, "text of the order", "1" * 64), "h1", now, now + 30)
    return Client(create_app(advisor, settings))


def bearer(advisor: Advisor, scope: str, host: str = "") -> dict[str, str]:
    text = advisor.access.tokens.create("t", scope, lasts=None, host=host)[1]  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {text}"}


def test_the_agent_of_a_host_gets_its_orders_until_it_reports(advisor: Advisor, client: Client) -> None:
    mine, other = bearer(advisor, "act", "h1"), bearer(advisor, "act", "h2")
    first = client.ask("POST", "/v1/orders", headers=mine, json={"host": "h1"})
    assert first.json() == {"orders": [{"text": "text of the order", "signature": "1" * 64}]}
    assert client.ask("POST", "/v1/orders", headers=other, json={"host": "h2"}).json() == {"orders": []}
    stolen = client.ask("POST", "/v1/orders", headers=other, json={"host": "h2", "reports": [REPORT]})
    assert stolen.status_code == 200
    with advisor._transactions.read() as connection:
        assert rollouts.reported(connection, ID) is None, "another host answers no order"
    done = client.ask("POST", "/v1/orders", headers=mine, json={"host": "h1", "reports": [REPORT]})
    assert done.json() == {"orders": []}
    with advisor._transactions.read() as connection:
        assert rollouts.reported(connection, ID) == SignedText(ID, "{}", "0" * 64)


def test_no_other_token_gets_an_order(advisor: Advisor, client: Client) -> None:
    tokens = [bearer(advisor, scope) for scope in ("read", "write", "admin")]
    tokens += [bearer(advisor, "write", "h1"), bearer(advisor, "act", "h2")]
    for token in tokens:
        assert client.ask("POST", "/v1/orders", headers=token, json={"host": "h1"}).status_code == 403
    assert client.ask("POST", "/v1/orders", json={"host": "h1"}).status_code == 401


def test_without_any_token_there_are_no_orders(client: Client) -> None:
    assert client.ask("POST", "/v1/orders", json={"host": "h1"}).status_code == 403


def test_its_token_opens_nothing_else(advisor: Advisor, client: Client) -> None:
    token, opened = bearer(advisor, "act", "h1"), set()
    for route in ROUTES:
        if route.needs != "open":
            path = route.path.replace("{", "").replace("}", "")
            if client.ask(route.method, path, headers=token, content=b"{").status_code != 403:
                opened.add((route.method, route.path))
    assert opened == {("POST", "/v1/orders")}


def test_a_token_for_changes_is_for_one_host(advisor: Advisor) -> None:
    with pytest.raises(InvalidInput, match="--host"):
        advisor.access.tokens.create("t", "act", lasts=None)


@pytest.mark.parametrize(
    "wrong",
    [{"order": "x"}, {"text": "a" * 16_385}, {"text": "\0"}, {"signature": "0" * 63}, {"more": 1}],
    ids=repr,
)
def test_reports_are_bounded(advisor: Advisor, client: Client, wrong: dict[str, object]) -> None:
    body = {"host": "h1", "reports": [REPORT | wrong]}
    assert client.ask("POST", "/v1/orders", headers=bearer(advisor, "act", "h1"), json=body).status_code == 422
