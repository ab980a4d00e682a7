"""Lanes and deadlines: few threads, a short queue, and an answer as soon as the time is up."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Annotated

import pytest
from fastapi import FastAPI, Header, Request
from fastapi.routing import APIRoute

from advisor import deadline
from advisor.domain import Histories, Instance, PlanRequest
from advisor.errors import DeadlinePassed
from advisor.planning import planner
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import _routes, create_app
from api.http import lanes
from api.http.lanes import CPUS, Given, Lane, given
from api.problems import Busy
from tests.api.api_client import Client, bent_client, session

pytestmark = pytest.mark.anyio

QUESTION = {"instance": {"id": "n", "vcpus": 1}, "dry_run": True}


def blocked() -> tuple[threading.Event, Callable[[], str]]:
    """Work that ends when the test says so."""
    end = threading.Event()

    def work() -> str:
        assert end.wait(120)
        return "done"

    return end, work


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def test_who_finds_the_queue_full_is_refused_and_the_others_are_answered() -> None:
    lane = Lane("few", 1, 2)
    end, work = blocked()
    asked = [asyncio.create_task(lane.run(work)) for _ in range(5)]
    await until(lambda: (lane.running, lane.waiting) == (1, 2) and asked[3].done() and asked[4].done())
    end.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    await until(lambda: (lane.running, lane.waiting) == (0, 0))
    lane.close()
    assert found[:3] == ["done", "done", "done"]
    assert [type(one) for one in found[3:]] == [Busy, Busy]


async def test_a_question_whose_time_is_up_in_the_queue_is_never_begun() -> None:
    begun: list[int] = []
    lane = Lane("few", 1, 2)
    end, work = blocked()
    first = asyncio.create_task(lane.run(work))
    await until(lambda: lane.running == 1)
    with deadline.within(0.1), pytest.raises(DeadlinePassed):
        await lane.run(lambda: begun.append(1))
    end.set()
    assert await first == "done"
    assert await lane.run(lambda: "free again") == "free again"
    lane.close()
    assert begun == []


@pytest.mark.measured  # its thread is to begin within the second
async def test_a_question_ends_when_its_time_is_up_although_its_thread_works_on() -> None:
    lane = Lane("few", 1, 0)
    end, work = blocked()
    with deadline.within(1), pytest.raises(DeadlinePassed):
        await lane.run(work)
    with pytest.raises(Busy):  # the thread is not free
        await lane.run(work)
    end.set()
    await until(lambda: lane.running == 0)
    lane.close()


async def test_the_thread_knows_the_deadline_of_its_question() -> None:
    lane = Lane("few", 1, 0)
    with deadline.within(100):
        inside = await lane.run(deadline.left_s)
    outside = await lane.run(deadline.left_s)
    lane.close()
    assert 0 < inside <= 100
    assert outside == float("inf")


def test_work_stops_before_the_next_prediction(advisor: Advisor) -> None:
    view, chosen = advisor._cache.at(datetime.now(UTC))
    with deadline.within(-1), pytest.raises(DeadlinePassed):
        asked = PlanRequest(instances=(Instance("late"),))
        planner.plan(view.snapshot, chosen, asked, now=datetime.now(UTC), fresh_s=60.0, models=lambda _: chosen)


def test_nothing_is_written_once_the_time_is_up(advisor: Advisor) -> None:
    with deadline.within(-1), pytest.raises(DeadlinePassed):
        advisor.inventory.delete_instance("shop-3")
    assert advisor.inventory.instance("shop-3").host == "h1"


def test_a_request_may_have_less_time_than_the_service_allows_and_never_more(client: Client) -> None:
    late = client.ask("POST", "/v1/placements", json=QUESTION, headers={"X-Request-Timeout": "0.000001"})
    assert (late.status_code, late.json()["code"]) == (504, "deadline.passed")
    enough = client.ask("POST", "/v1/placements", json=QUESTION, headers={"X-Request-Timeout": "999999"})
    assert enough.status_code == 200


async def test_operations_are_answered_while_every_lane_is_full(client: Client) -> None:
    all_lanes = client.app.state.lanes.by_name.values()
    for lane in all_lanes:
        lane.most_wait_s = math.inf  # or a slow machine fills none
    end, work = blocked()
    crowd = [asyncio.create_task(lane.run(work)) for lane in all_lanes for _ in range(lane.threads + lane.places)]
    await until(lambda: all((lane.running, lane.waiting) == (lane.threads, lane.places) for lane in all_lanes))
    try:
        async with session(client.app) as asking:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await asking.get(path)).status_code == 200
            busy = await asking.get("/v1/hosts")
    finally:
        end.set()
        await asyncio.gather(*crowd)
    assert (busy.status_code, busy.json()["code"], busy.headers["retry-after"]) == (503, "service.busy", "1")


async def test_pages_that_wait_for_another_store_of_samples_hold_up_no_question(
    advisor: Advisor, settings: Settings
) -> None:
    end, begun = threading.Event(), threading.Semaphore(0)

    def histories(**_: str) -> Histories:
        begun.release()
        end.wait(120)
        return Histories(0.0, 1.0, 1.0, (), elsewhere=True)

    app = bent_client(advisor, settings, telemetry={"histories": histories}).app
    async with session(app) as asking:
        pages = [asyncio.create_task(asking.get("/instances/shop-3")) for _ in range(CPUS)]
        try:
            for _ in pages:
                assert await asyncio.to_thread(begun.acquire, timeout=30)
            answer = await asking.post("/v1/placements", json=QUESTION, headers={"X-Request-Timeout": "30"})
        finally:
            end.set()
            shown = await asyncio.gather(*pages)
    assert (answer.status_code, {page.status_code for page in shown}) == (200, {200})


async def test_a_request_that_would_wait_too_long_is_refused_at_once_with_a_time_to_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    lane = Lane("few", 1, 100, most_wait_s=2.0)
    for _ in range(10):  # of which it learns that one takes half a second
        await lane.run(lambda: now_s.__setitem__(0, now_s[0] + 0.5))
    end, work = blocked()
    running = asyncio.create_task(lane.run(work))
    await until(lambda: lane.running == 1 and not lane._queues)
    waiting = [asyncio.create_task(lane.run(lambda: "done")) for _ in range(4)]
    await until(lambda: lane.waiting == 4)
    waiting.append(asyncio.create_task(lane.run(lambda: "done")))
    await until(lambda: lane.waiting == 5)  # the fifth is expected after two seconds, and waits
    with pytest.raises(Busy) as refused:
        await lane.run(lambda: "done")
    assert refused.value.retry_after_s == 3
    other = asyncio.create_task(lane.run(lambda: "other's", "other"))  # whose turn is next
    with deadline.within(0.4), pytest.raises(Busy):
        await lane.run(lambda: "done")
    end.set()
    assert [await running, await other, *await asyncio.gather(*waiting)] == ["done", "other's", *["done"] * 5]
    lane.close()


async def test_who_waited_much_longer_than_expected_is_refused_when_the_turn_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    lane = Lane("few", 1, 100, most_wait_s=2.0)
    end, work = blocked()
    running = asyncio.create_task(lane.run(work))
    await until(lambda: lane.running == 1 and not lane._queues)
    late = asyncio.create_task(lane.run(lambda: "late"))
    await until(lambda: lane.waiting == 1)
    now_s[0] += 2.5
    with pytest.raises(Busy):  # the first one has waited for longer than this one may
        await lane.run(lambda: "behind it")
    now_s[0] += 1.0
    end.set()
    assert await running == "done"
    with pytest.raises(Busy):
        await late
    assert await lane.run(lambda: "free again") == "free again"
    lane.close()


async def test_answers_that_hold_wait_for_each_other_and_hold_up_no_page_and_no_dry_run(
    advisor: Advisor, settings: Settings
) -> None:
    with advisor.placements._one_at_a_time:
        app = create_app(advisor, settings)
        async with session(app) as asking:
            held = [
                asyncio.create_task(asking.post("/v1/placements", json={"instance": {"id": f"n{at}", "vcpus": 1}}))
                for at in (1, 2, 3)
            ]
            await until(lambda: app.state.lanes.by_name["hold"].waiting == 2)
            answers = [await asking.post("/v1/placements", json=QUESTION), await asking.get("/cloud")]
            for task in held:
                task.cancel()
            await asyncio.gather(*held, return_exceptions=True)
    assert [answer.status_code for answer in answers] == [200, 200]


async def test_callers_take_turns() -> None:
    done: list[str] = []

    lane = Lane("few", 1, 20)
    end, work = blocked()
    first = asyncio.create_task(lane.run(work, "crowd"))
    await asyncio.sleep(0)
    asked = [asyncio.create_task(lane.run(partial(done.append, "crowd"), "crowd")) for _ in range(5)]
    await asyncio.sleep(0)
    asked.append(asyncio.create_task(lane.run(partial(done.append, "other"), "other")))
    await asyncio.sleep(0)
    end.set()
    await asyncio.gather(first, *asked)
    lane.close()
    assert done.index("other") <= 1, done


async def test_no_caller_takes_a_whole_lane() -> None:
    lane = Lane("few", 1, 7)
    end, work = blocked()
    crowd = [asyncio.create_task(lane.run(work, "crowd")) for _ in range(8)]
    await asyncio.sleep(0)
    other = asyncio.create_task(lane.run(work, "other"))
    await asyncio.sleep(0)
    end.set()
    found = await asyncio.gather(*crowd, other, return_exceptions=True)
    lane.close()
    assert [type(one) for one in found] == [str] * 6 + [Busy] * 2 + [str]


async def test_plans_of_others_do_not_keep_an_administrator_from_a_rollback(client: Client) -> None:
    lane = client.app.state.lanes.by_name["long"]
    end, work = blocked()
    crowd = [asyncio.create_task(lane.run(work)) for _ in range(lane.threads + lane.places)]
    await asyncio.sleep(0)
    try:
        async with session(client.app) as asking:
            answer = await asking.post("/v1/models/analytic/activate")
    finally:
        end.set()
        await asyncio.gather(*crowd)
    assert answer.status_code == 200


async def test_who_waits_when_the_service_ends_is_let_go() -> None:
    lane = Lane("few", 1, 2)
    end, work = blocked()
    running = asyncio.create_task(lane.run(work))
    waiting = asyncio.create_task(lane.run(work))
    await asyncio.sleep(0)
    lane.close()
    end.set()
    assert await running == "done"
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_requests_whose_time_is_up_leave_nothing_in_the_queue() -> None:
    lane = Lane("few", 1, 1000)
    end, work = blocked()
    running = asyncio.create_task(lane.run(work))
    await asyncio.sleep(0)
    for _ in range(50):
        with deadline.within(0.001), pytest.raises(DeadlinePassed):
            await lane.run(work, "hasty")
    assert not lane._queues
    assert lane.waiting == 0
    end.set()
    assert await running == "done"
    assert await lane.run(lambda: "next", "hasty") == "next"
    lane.close()


def _keyed(request: Request, x_key: Annotated[str, Header()] = "none") -> str:
    return f"{request.method} {x_key}"


def test_what_is_given_to_an_endpoint_is_made_of_the_request_and_no_parameter_of_the_description() -> None:
    def of_app(number: int, title: Annotated[str, Given(lambda request: request.app.title)], size: int = 2) -> str:
        return f"{number} {title} {size}"

    def with_request(
        asked: Request, word: Annotated[str, Given(_keyed)], title: Annotated[str, Given(lambda one: one.app.title)]
    ) -> str:
        return f"{asked.url.path} {word} {title}"

    async def later(word: Annotated[str, Given(_keyed)]) -> str:
        return word

    app = FastAPI(title="ours")
    app.add_api_route("/of-app/{number}", given(of_app))
    app.add_api_route("/with-request", given(with_request))
    app.add_api_route("/later", given(later))
    paths = app.openapi()["paths"]
    named = {path: [one["name"] for one in paths[path]["get"].get("parameters", [])] for path in paths}
    assert named == {"/of-app/{number}": ["number", "size"], "/with-request": ["x-key"], "/later": ["x-key"]}
    client = Client(app)
    assert client.get("/of-app/1?size=3").json() == "1 ours 3"
    assert client.get("/of-app/1").json() == "1 ours 2"
    assert client.get("/with-request", headers={"X-Key": "k"}).json() == "/with-request GET k ours"
    assert client.get("/later").json() == "GET none"
    assert client.get("/of-app/one").status_code == 422
    assert given(_keyed) is _keyed


def test_fastapi_resolves_nothing_for_a_question_but_its_parameters() -> None:
    routes = {route.operation_id: route.dependant for route in _routes() if isinstance(route, APIRoute)}
    assert routes["questions.questions.place"].dependencies == []
    assert [one.alias for one in routes["questions.questions.place"].header_params] == ["idempotency-key"]
