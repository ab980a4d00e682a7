"""Large bodies of many requests at once: together they take no more memory than one of the largest."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from api.http.bodies import SMALL, BodyLimit
from api.problems import OF_ERROR, Busy, respond
from tests.api.api_client import Client, session

pytestmark = pytest.mark.anyio

LARGE = b"x" * (SMALL * 3)


class Held:
    """An application that reads the body and answers when it may; `BodyLimit` lets four of SMALL be there together."""

    def __init__(self) -> None:
        self.may_answer, self.reading = asyncio.Event(), 0
        self.limited = BodyLimit(self, most_bytes=4 * SMALL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            size = len(await request.body())
        except Busy as error:
            await respond(request, OF_ERROR[Busy], error.message)(scope, receive, send)
            return
        self.reading += 1
        await self.may_answer.wait()
        await PlainTextResponse(json.dumps(size))(scope, receive, send)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.limited), base_url="http://127.0.0.1")


def layers(app: Any) -> Iterator[Any]:
    """The middlewares of an application, outermost first."""
    app.middleware_stack = layer = app.build_middleware_stack()
    while layer is not None:
        yield layer
        layer = getattr(layer, "app", None)


async def pieces(body: bytes) -> AsyncIterator[bytes]:
    """Without a length that is announced."""
    for at in range(0, len(body), SMALL // 4):
        yield body[at : at + SMALL // 4]


@pytest.mark.parametrize("announced", [True, False])
async def test_a_second_large_body_is_refused_while_the_first_is_worked_on_and_small_ones_are_taken(
    announced: bool,
) -> None:
    app = Held()
    async with app.client() as client:
        first = asyncio.create_task(client.post("/", content=LARGE))
        while app.reading < 1:
            await asyncio.sleep(0)
        second = await client.post("/", content=LARGE if announced else pieces(LARGE))
        small = asyncio.create_task(client.post("/", content=LARGE[:SMALL]))
        while app.reading < 2:
            await asyncio.sleep(0)
        app.may_answer.set()
        answers = [await first, await small]
        again = await client.post("/", content=LARGE)
    assert (second.status_code, second.json()["code"], second.headers["retry-after"]) == (503, "service.busy", "1")
    assert [answer.text for answer in (*answers, again)] == [str(SMALL * 3), str(SMALL), str(SMALL * 3)]


async def test_the_largest_body_is_taken_where_no_other_is_there() -> None:
    app = Held()
    app.may_answer.set()
    async with app.client() as client:
        assert (await client.post("/", content=b"x" * 4 * SMALL)).text == str(4 * SMALL)


async def test_the_service_answers_so_while_it_reads_a_body(client: Client) -> None:
    (limit,) = (each for each in layers(client.app) if isinstance(each, BodyLimit))
    limit._present = limit.most_bytes
    body = json.dumps({"samples": [], "padding": "x" * 2 * SMALL}).encode()
    async with session(client.app) as asking:
        json_type = {"content-type": "application/json"}
        answers = [await asking.post("/v1/samples", content=sent, headers=json_type) for sent in (body, pieces(body))]
        small = await asking.get("/v1/hosts")
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(503, "service.busy")] * 2
    assert small.status_code == 200
