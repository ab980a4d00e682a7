"""What is around every request: ids, headers, limits on bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.api.api_client import Client

PATHS = ("/", "/docs", "/v1/hosts", "/v1/nope", "/healthz", "/metrics", "/static/cotenant.css", "/openapi.json")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_an_id_and_safe_headers(client: Client, path: str) -> None:
    answer = client.get(path)
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "same-origin"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    page = answer.headers["content-type"].startswith("text/html")
    assert ("script-src 'self'" in policy) == page


def test_answers_are_not_cached_but_styles_are_revalidated(client: Client) -> None:
    assert client.get("/v1/hosts").headers["cache-control"] == "no-store"
    style = client.get("/static/cotenant.css")
    assert style.headers["cache-control"] == "no-cache"
    again = client.get("/static/cotenant.css", headers={"If-None-Match": style.headers["etag"]})
    assert again.status_code == 304


def test_a_body_that_grows_over_the_limit_is_cut_off_while_it_comes(client: Client) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 2**14
            yield b" " * 2**14

    answer = client.ask("POST", "/v1/samples", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.json()["code"] == "input.too_large"
    assert sent <= 0.25 * 2**20 + 2**15


def test_an_announced_length_over_the_limit_is_refused_before_a_byte_is_read(client: Client) -> None:
    answer, received = _raw(client, [(b"content-length", b"999999999999999999999999")])
    assert answer["status"] == 413
    assert received == 0


@pytest.mark.parametrize("length", [b"-1", b"abc", "²".encode(), b"1" * 5000])
def test_a_length_that_is_none_breaks_nothing(client: Client, length: bytes) -> None:
    answer, _ = _raw(client, [(b"content-length", length)])
    assert answer["status"] in {400, 413, 422}


def test_a_websocket_is_not_accepted(client: Client) -> None:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/hosts", "raw_path": b"/v1/hosts", "query_string": b"", "headers": []}
    asyncio.run(client.app(scope, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]


def _raw(client: Client, headers: list[tuple[bytes, bytes]]) -> tuple[dict[str, Any], int]:
    """Ask past httpx, which would mend the headers; returns the start of the answer and how often was read."""
    received = 0
    started: dict[str, Any] = {}

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/samples",
        "raw_path": b"/v1/samples",
        "query_string": b"",
        "scheme": "http",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json"), *headers],
    }
    asyncio.run(client.app(scope, receive, send))
    return started, received
