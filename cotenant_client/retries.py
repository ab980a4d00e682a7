"""One call from its first try to its answer, without any input or output: clients carry out the steps it names."""

from __future__ import annotations

import email.utils
import json
import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Generic, TypeVar

import httpx

from cotenant_client.errors import BadAnswer, CotenantError, InvalidInput, Unavailable, of_answer

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 8.0
_LARGEST_ANSWER = 2**26  # ten thousand instances are under 8 MB
_PASSING = frozenset({429, 502, 503, 504})
_PASSING_KINDS = frozenset({"connection", "name", "protocol", "refused", "timeout"})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What is asked, of which the answer is a T.

    `repeatable`: asked twice it does no harm. `patience_s` is how much longer than others its answer may take.
    """

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    repeatable: bool = False
    patience_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long a call is tried: `timeout_s` without a byte, `deadline_s` for all tries together."""

    tries: int
    timeout_s: float
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A step: let so many seconds pass."""

    seconds: float


@dataclass(slots=True)
class Try:
    """A step: send it once. `left_s` is what is left for the whole answer; chunks of its body go to `take`."""

    call: Call[Any]
    content: bytes | None
    timeout_s: float
    left_s: float
    response: httpx.Response | None = None
    body: bytearray = field(default_factory=bytearray)
    _began_s: float = field(default_factory=time.monotonic)

    def options(self) -> dict[str, Any]:
        """How httpx is asked."""
        return {
            "method": self.call.method,
            "url": self.call.path,
            "params": {name: value for name, value in self.call.params.items() if value is not None} or None,
            "content": self.content,
            "headers": {} if self.content is None else {"Content-Type": "application/json"},
            "timeout": self.timeout_s,
        }

    def take(self, chunk: bytes) -> None:
        """Keep a part of the body; BadAnswer where it is too much, httpx.ReadTimeout where it comes too slowly."""
        self.body += chunk
        if len(self.body) > _LARGEST_ANSWER:
            raise BadAnswer(f"an answer of more than {_LARGEST_ANSWER >> 20} MiB is not read")
        if time.monotonic() - self._began_s > self.left_s:
            raise httpx.ReadTimeout("its end did not come")


def conversation(url: str, call: Call[T], patience: Patience) -> Generator[Try | Wait, CotenantError | None, T]:
    """The steps of a call, and at their end its answer.

    A Try wants the error, None where its `response` and `body` are whole; raises the error of the last one. Only calls
    that are repeatable are tried again, and those that have certainly not been carried out.
    """
    if not call.path.startswith("/") or call.path.startswith("//"):
        raise InvalidInput(f"{call.path[:100]!r} is no path of a service, such as /v1/hosts")
    ends = time.monotonic() + patience.deadline_s + call.patience_s
    try:
        content = None if call.body is None else json.dumps(call.body, allow_nan=False).encode()
    except (TypeError, ValueError) as wrong:
        raise InvalidInput(f"the body is no JSON: {wrong}") from wrong
    for number in count(1):
        left_s = max(ends - time.monotonic(), 0.001)
        timeout_s = min(patience.timeout_s + call.patience_s, left_s)
        attempt = Try(call, content, timeout_s, left_s)
        error = yield attempt
        after_s = 0.0
        if error is None:
            assert attempt.response is not None  # noqa: S101 - so says the contract of Try
            status = attempt.response.status_code
            document = _document(bytes(attempt.body))
            if 200 <= status < 300 and (document is not None or status == 204):
                return document  # type: ignore[no-any-return]
            error = of_answer(url, status, document)
            after_s = _seconds(attempt.response.headers.get("Retry-After", ""))
            if isinstance(error, Unavailable):
                error.retry_after_s = after_s
        # Half of the wait is chance, so that those who were turned away together do not come back together.
        backoff_s = min(_FIRST_WAIT_S * 2 ** (number - 1), _LONGEST_WAIT_S)
        wait_s = after_s + backoff_s * random.uniform(0.5, 1)  # noqa: S311 - no secret
        if number >= patience.tries or not _may_repeat(call, error) or time.monotonic() + wait_s > ends:
            raise error
        yield Wait(wait_s)
    raise AssertionError  # count does not end


def _may_repeat(call: Call[Any], error: CotenantError) -> bool:
    if not isinstance(error, Unavailable) or (error.sent and not call.repeatable):
        return False
    return error.status in _PASSING if error.status is not None else error.kind in _PASSING_KINDS


def _document(body: bytes) -> Any:
    """The JSON of a body, None where there is none."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _seconds(retry_after: str) -> float:
    """What the header says, in seconds or as a date; 0 where it says nothing."""
    if retry_after.isdecimal():
        return float(retry_after[:9])
    try:
        then = email.utils.parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    return max((then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)


def following(url: str, call: Call[T], page: Any) -> tuple[list[Any], Call[T] | None]:
    """The items of a page, and what asks for the next one; None after the last. BadAnswer where it is no page."""
    what = call.path.rpartition("/")[2]
    try:
        items, after = page["items"], page["next_cursor"]
    except (KeyError, TypeError):
        raise BadAnswer(f"{url} answers with something that is no page of {what}", status=200) from None
    if after and after == call.params.get("cursor"):
        raise BadAnswer(f"{url} gives the same page of {what} again and again", status=200)
    if not after:
        return items, None
    return items, Call(call.method, call.path, {**call.params, "cursor": after}, repeatable=True)
