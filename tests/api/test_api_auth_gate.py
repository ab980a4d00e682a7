"""Who asks is settled first: a caller without a valid token learns nothing, one with a small scope changes nothing."""

from __future__ import annotations

import base64
import logging
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from advisor.access.tokens import CACHE_S
from advisor.domain import Instance
from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import ROUTES, create_app
from api.http.envelope import MOST_CALLERS, RateLimit
from tests.api import cli_runs
from tests.api.api_client import Client

ORDER = ("open", "read", "write", "admin")
# What changes nothing although it is not a GET: the questions whose answer holds no host, and schedulers' own.
ASKING = {
    "/v1/predictions",
    "/v1/placements",  # an answer that holds its host needs write: its body says which it is
    "/v1/placements:batch",
    "/v1/cells/placements",
    "/v1/plans",
    "/kubernetes/filter",
    "/kubernetes/preempt",
    "/signout",
    "/plans",  # the page's
}
PATTERNS = {route.path for route in ROUTES if "{" in route.path}
PATHS = [re.sub(r"\{\w+\}", "nope", route.path) for route in ROUTES]


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture
def texts(advisor: Advisor) -> dict[str, str]:
    """A token of each scope."""
    return {scope: advisor.access.tokens.create(scope, scope, lasts=None)[1] for scope in ("read", "write", "admin")}


def test_every_route_needs_the_scope_of_what_it_does() -> None:
    needs = {(route.method, route.path): route.needs for route in ROUTES if route.is_own}
    assert {path for (_, path), scope in needs.items() if scope == "open"} == {"/healthz", "/readyz", "/signin"}
    changes = {path for (method, path), scope in needs.items() if method != "GET" and scope != "read"}
    assert {path for (method, path) in needs if method != "GET"} - changes <= ASKING
    of_models = {path for path in changes if path.removeprefix("/v1").startswith("/models")}
    assert len(of_models) >= 4
    admins = {path for (_, path), scope in needs.items() if scope == "admin"}
    of_changes = {f"{root}/changes/{{rollout}}/approve" for root in ("", "/v1")} | {"/changes/thaw", "/v1/freeze"}
    assert admins == of_models | of_changes | {"/v1/audit", "/audit"}


def test_no_value_of_a_parameter_is_the_path_of_another_route(client: Client) -> None:
    literal = {route.path for route in ROUTES if "{" not in route.path}
    patterns = {path for path in PATTERNS if any(_could_be(path, name) for name in literal)}
    assert patterns, "there is a path with a parameter beside one without"
    for path in sorted({name for name in literal for pattern in patterns if _could_be(pattern, name)}):
        methods = {route.method for route in ROUTES if route.path == path}
        for method in {"GET", "PUT", "POST", "DELETE"} - methods:
            answer = client.ask(method, path)
            assert (answer.status_code, answer.headers["allow"].split(", ")) == (405, sorted(methods)), (method, path)


def _could_be(pattern: str, path: str) -> bool:
    return bool(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", pattern), path))


def test_without_a_valid_token_every_path_gives_the_same_answer(advisor: Advisor, client: Client) -> None:
    token, revoked = advisor.access.tokens.create("gone", "admin", lasts=None)
    advisor.access.tokens.revoke(token.id)
    answers = set()
    for route, path in [*zip(ROUTES, PATHS, strict=True), (ROUTES[0], "/nothing"), (ROUTES[0], "/v1/hosts/%00")]:
        if route.needs == "open":
            continue
        for headers in ({}, bearer("x"), bearer(revoked), bearer(f"cot_{'0' * 16}_{'A' * 43}")):
            answer = client.ask(route.method, path, headers=headers, content=b'{"broken"')
            shown = {name: value for name, value in answer.json().items() if name != "request_id"}
            named = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
            answers.add((answer.status_code, str(shown), str(named)))
    assert len(answers) == 1
    assert next(iter(answers))[0] == 401


def test_a_scope_below_is_refused_before_anything_is_looked_up_and_the_scope_itself_is_not(
    client: Client, texts: dict[str, str]
) -> None:
    wrong = []
    for route, path in zip(ROUTES, PATHS, strict=True):
        for scope, text in texts.items() if route.needs != "open" else ():
            briefly = {"X-Request-Timeout": "1"} if path == "/v1/events" else {}  # else it goes on for good
            answer = client.ask(route.method, path, headers=bearer(text) | briefly, content=b"{")
            needed = "write" if route.needs == "agent" else route.needs
            may = needed != "act" and ORDER.index(scope) >= ORDER.index(needed)
            if (answer.status_code != 403) != may:
                wrong.append((route.method, path, scope, answer.text))
    assert wrong == []


def test_the_token_of_a_hosts_agent_opens_three_routes_and_no_page(advisor: Advisor, client: Client) -> None:
    token = advisor.access.tokens.create("h1", "write", lasts=None, host="h1")[1]
    opened = set()
    for route, path in zip(ROUTES, PATHS, strict=True):
        answer = client.ask(route.method, path, headers=bearer(token), content=b"{")
        if route.needs != "open" and answer.status_code != 403:
            opened.add((route.method, path))
    assert opened == {("POST", "/v1/samples"), ("POST", "/v1/announcements"), ("POST", "/v1/probes")}


def test_it_moves_nothing_that_was_written_down_on_another_host(advisor: Advisor, client: Client) -> None:
    mine, other = advisor.inventory.hosts().items[:2]
    advisor.inventory.put_instance(Instance("ledger", host=other.id))
    token = advisor.access.tokens.create("agent", "write", lasts=None, host=mine.id)[1]
    guest = {"id": "ledger", "vcpus": 1, "labels": {"source": "agent"}}
    now = datetime.now(UTC).isoformat()
    body = {"host": {"id": mine.id}, "instances": [guest], "time": now}
    reported = client.ask("POST", "/v1/announcements", headers=bearer(token), json=body)
    sample = {"host": mine.id, "instance": "ledger", "scope": "instance", "metric": "cpu", "value": 9, "time": now}
    counted = client.ask("POST", "/v1/samples", headers=bearer(token), json={"samples": [sample]})
    assert (reported.status_code, reported.json()["moved"], counted.json()["accepted"]) == (200, [], 0)
    kept = advisor.inventory.instance("ledger")
    assert (kept.host, dict(kept.labels)) == (other.id, {})


def _announce(advisor: Advisor, client: Client, host: str, *guests: dict[str, Any], **labels: str) -> None:
    token = advisor.access.tokens.create(host, "write", lasts=None, host=host)[1]
    body = {
        "host": {"id": host, "kind": "kvm", "pcpus": 4, "memory_mb": 4096, "labels": labels},
        "instances": list(guests),
        "machine": f"m-{host}",
        "time": datetime.now(UTC).isoformat(),
    }
    assert client.ask("POST", "/v1/announcements", headers=bearer(token), json=body).status_code == 200


def test_what_agents_report_is_escaped_on_every_page(advisor: Advisor, client: Client, texts: dict[str, str]) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    _announce(advisor, client, "evil", {"id": "guest", "vcpus": 1, "labels": {"name": hostile}}, kernel=hostile)
    for path in ("/", "/cloud", "/hosts/evil", "/instances/guest", "/?ask=1+vCPU,+512+MB"):
        page = client.get(path, headers={**bearer(texts["read"]), "Accept": "text/html"})
        assert page.status_code == 200, path
        assert hostile not in page.text, path
    assert "&lt;img src=x" in client.get("/hosts/evil", headers={**bearer(texts["read"]), "Accept": "text/html"}).text


def test_what_two_hosts_claim_is_on_the_page_in_the_metrics_and_said_by_doctor(
    advisor: Advisor, client: Client, texts: dict[str, str], settings: Settings
) -> None:
    guest = {"id": "ledger", "vcpus": 1, "labels": {"uuid": "u-1"}}
    _announce(advisor, client, "honest", guest)
    _announce(advisor, client, "claims", guest)
    page = client.get("/hosts/claims", headers={**bearer(texts["read"]), "Accept": "text/html"}).text
    metrics = client.get("/metrics", headers=bearer(texts["read"])).text
    doctor = cli_runs.run("doctor", "--database", settings.database)
    assert "ledger is also reported by honest" in page
    assert "cotenant_hosts_disagreeing 1.0" in metrics
    assert (doctor.exit_code, "Sources disagree on claims: ledger is also reported by honest" in doctor.stdout) == (
        1,
        True,
    )


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Basic {basic}", 200),
        ("basic {basic}", 200),
        ("Bearer  {text} ", 200),
        ("{text}", 401),
        ("Token {text}", 401),
        ("Basic {text}", 401),
        ("Basic ====", 401),
        ("Basic", 401),
        ("Bearer", 401),
        ("", 401),
    ],
)
def test_a_token_comes_as_bearer_or_as_the_password_of_any_user(
    client: Client, texts: dict[str, str], authorization: str, status: int
) -> None:
    basic = base64.b64encode(f"any:{texts['read']}".encode()).decode()
    headers = {"Authorization": authorization.format(text=texts["read"], basic=basic)}
    assert client.get("/v1/hosts", headers=headers).status_code == status


def test_two_authorizations_are_none(client: Client, texts: dict[str, str]) -> None:
    twice = [("Authorization", f"Bearer {texts['read']}")] * 2
    assert client.get("/v1/hosts", headers=twice).status_code == 401


def test_without_a_token_no_remote_caller_is_answered_whatever_it_sends(advisor: Advisor, settings: Settings) -> None:
    def asked(address: str, host: str) -> int:
        return Client(app, address=address).get("/v1/hosts", headers={"Host": host}).status_code

    app = create_app(advisor, settings)
    assert asked("127.0.0.1", "localhost:8080") == 200
    assert asked("::1", "localhost:8080") == 200
    assert asked("10.0.0.9", "localhost:8080") == 421
    assert asked("127.0.0.1", "evil.example") == 421


def test_a_token_revoked_by_one_server_ends_on_another(settings: Settings, advisor: Advisor) -> None:
    with Advisor(settings) as other:
        here, there = Client(create_app(advisor, settings)), Client(create_app(other, settings))
        token, text = advisor.access.tokens.create("agents", "read", lasts=None)
        assert [client.get("/v1/hosts", headers=bearer(text)).status_code for client in (here, there)] == [200, 200]
        advisor.access.tokens.revoke(token.id)
        assert here.get("/v1/hosts", headers=bearer(text)).status_code == 401
        time.sleep(CACHE_S)
        assert there.get("/v1/hosts", headers=bearer(text)).status_code == 401


def test_without_the_database_no_caller_is_admitted_and_nothing_is_disclosed(
    advisor: Advisor, client: Client, texts: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> Any:
        raise StorageUnavailable("database at db.internal does not answer")

    assert client.get("/metrics", headers=bearer(texts["read"])).status_code == 200
    advisor.access.tokens._read = gone
    time.sleep(CACHE_S)
    assert client.get("/metrics", headers=bearer(texts["read"])).status_code == 200, "who watches must hear of it"
    assert client.get("/metrics").status_code == 401
    with caplog.at_level(logging.WARNING, "cotenant.auth"):
        answer = client.get("/v1/hosts", headers=bearer(texts["admin"]))
    assert answer.status_code == 503
    assert answer.json()["code"] == "storage.unavailable"
    assert "retry-after" in answer.headers
    assert "db.internal" not in answer.text
    assert "db.internal" in caplog.text
    assert client.get("/healthz").status_code == 200
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert "db.internal" not in ready.text


def test_a_caller_that_asks_too_often_waits_and_no_other_does(advisor: Advisor, settings: Settings) -> None:
    _, eager = advisor.access.tokens.create("eager", "read", lasts=None)
    _, calm = advisor.access.tokens.create("calm", "read", lasts=None)
    client = Client(create_app(advisor, settings.model_copy(update={"rate_limit": 0.1, "rate_burst": 3})))
    answers = [client.get("/v1/hosts", headers=bearer(eager)) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["code"] == "limit.rate"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 10
    assert client.get("/v1/hosts", headers=bearer(calm)).status_code == 200
    assert client.get("/healthz", headers=bearer(eager)).status_code == 200


def test_a_bucket_fills_again_and_never_beyond_its_size() -> None:
    clock = [0.0]
    limit = RateLimit(2.0, 3, monotonic=lambda: clock[0])
    assert [limit.wait_s("a") for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    clock[0] += 0.25
    assert limit.wait_s("a") == 0.25
    clock[0] += 0.25
    assert [limit.wait_s("a"), limit.wait_s("a")] == [0, 0.5]
    clock[0] += 1000
    assert [limit.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]


def test_many_callers_cost_little_memory() -> None:
    limit = RateLimit(1.0, 1, monotonic=lambda: 0.0)
    for number in range(MOST_CALLERS + 10):
        assert limit.wait_s(str(number)) == 0
    assert len(limit._full_at) == MOST_CALLERS


def test_no_limit_is_no_limit() -> None:
    limit = RateLimit(0.0, 1)
    assert [limit.wait_s("a") for _ in range(1000)] == [0.0] * 1000
