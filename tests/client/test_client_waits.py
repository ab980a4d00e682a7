"""How long a client waits between tries, without waiting: the steps of a call, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from cotenant_client.calls import Call, Patience, Try, Wait, conversation
from cotenant_client.errors import CotenantError, Unavailable

ASKED: Call[Any] = Call("GET", "/readyz", repeatable=True)


def waits(*retry_after: str, tries: int = 20, deadline_s: float = 1000.0) -> list[float]:
    """Seconds between tries when every one is answered 503, with these headers in turn."""
    steps = conversation("http://c", ASKED, Patience(tries, 10.0, deadline_s))
    found: list[float] = []
    step = next(steps)
    try:
        while True:
            if isinstance(step, Wait):
                found.append(step.seconds)
                step = steps.send(None)
            else:
                after = retry_after[len(found)] if len(found) < len(retry_after) else ""
                step.response = httpx.Response(503, headers={"Retry-After": after} if after else {})
                step = steps.send(None)
    except CotenantError:
        return found


def test_waits_double_up_to_a_bound_and_half_of_each_is_chance() -> None:
    found = waits(tries=8)
    bounds = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert [bound / 2 <= one <= bound for one, bound in zip(found, bounds, strict=True)] == [True] * 7
    assert found != waits(tries=8)


def test_the_service_says_how_long_to_wait_in_seconds_or_as_a_date() -> None:
    found = waits("5", "0", "7", tries=4)
    assert [5.1 <= found[0] <= 5.25, found[1] <= 0.5, 7.5 <= found[2] <= 8.0] == [True] * 3
    (until_then,) = waits(format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True), tries=2)
    assert 28 <= until_then <= 31
    assert max(waits(format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True), "soon", tries=3)) <= 0.5


def test_it_does_not_wait_beyond_the_deadline_and_says_how_long_it_was_asked_to() -> None:
    assert waits("5", "5", "60", deadline_s=30.0) == pytest.approx([5.2, 5.4], abs=0.2)
    assert waits("60", deadline_s=30.0) == []
    steps = conversation("http://c", ASKED, Patience(4, 10.0, 30.0))
    step = next(steps)
    assert isinstance(step, Try)
    step.response = httpx.Response(429, headers={"Retry-After": "100"})
    with pytest.raises(Unavailable) as failed:
        steps.send(None)
    assert failed.value.retry_after_s == 100


@pytest.mark.parametrize(
    ("call", "deadline_s", "times"),
    [(ASKED, 3.0, (3.0, 3.0)), (Call("POST", "/v1/plans", patience_s=30.0), 15.0, (40.0, 45.0))],
)
def test_a_try_has_what_time_is_left_and_a_call_that_takes_longer_more(
    call: Call[Any], deadline_s: float, times: tuple[float, float]
) -> None:
    step = next(conversation("http://c", call, Patience(4, 10.0, deadline_s)))
    assert isinstance(step, Try)
    assert (step.timeout_s, step.left_s) == pytest.approx(times, abs=0.1)
