"""One call from its first try to its answer, without any input or output: clients carry out the steps it names."""

from __future__ import annotations

import email.utils
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import update_wrapper, wraps
from itertools import count
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote

import httpx

from cotenant_client.errors import BadAnswer, CotenantError, InvalidInput, Unavailable, of_answer
from cotenant_client.schemas import (
    BatchAnswer,
    BatchBody,
    Generation,
    GenerationStored,
    HostItem,
    HostScoresOut,
    InstanceItem,
    InventoryBody,
    ModelOut,
    OutcomeBody,
    PlacementBody,
    PlanAnswer,
    PlanBody,
    PlanItem,
    Readiness,
    Recommendation,
    SceneBody,
    SceneEffects,
    ScoresOut,
    VmScoresOut,
    WorkloadItem,
)

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

    A Try needs the error, None where its `response` and `body` are whole; raises the error of the last one. Only calls
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
        # Half of the wait is chance, so that clients that were turned away together do not come back together.
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


# Every call, described once; `Client` and `AsyncClient` have each of them as a method of their own kind.

P = ParamSpec("P")
_PAGE = 1000
_PLAN_S = 30.0  # what the service takes for a plan unless the caller says otherwise


class Page(TypedDict, Generic[T]):
    """A slice of a listing."""

    items: list[T]
    next_cursor: str | None


class Answer(Generic[P, T]):
    """A method that asks once: it gives a T, or of AsyncCalls what is awaited for one."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self.describe = describe
        update_wrapper(self, describe)  # type: ignore[arg-type] # so that help() shows it

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncCalls, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncCalls, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _bound(self.describe, client, client._ask)


class Listing(Generic[P, T]):
    """A method that gives every T of a listing, page after page, as an iterator; of AsyncCalls for `async for`."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Call[Page[T]]]) -> None:
        self.describe = describe
        update_wrapper(self, describe)  # type: ignore[arg-type]

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: SyncCalls, owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncCalls, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        return self if client is None else _bound(self.describe, client, client._every)


def _bound(describe: Callable[..., Call[Any]], client: Any, do: Callable[[Call[Any]], Any]) -> Callable[..., Any]:
    @wraps(describe)
    def bound(*args: Any, **kwargs: Any) -> Any:
        return do(describe(client, *args, **kwargs))

    return bound


def path_of(*steps: str) -> str:
    """A path of these steps, each quoted; `.` and `..` too, which would else lead elsewhere."""
    return "".join("/" + (quote(step, safe="") if step.strip(".") else step.replace(".", "%2E")) for step in steps)


def _get(*steps: str) -> Call[Any]:
    return Call("GET", path_of(*steps), repeatable=True)


def _list(path: str, **params: Any) -> Call[Any]:
    return Call("GET", path, {"limit": _PAGE, **params}, repeatable=True)


class Calls:
    """What a service can be asked. Errors are those of `cotenant_client.errors`.

    Keywords are the fields of the body that docs/reference/rest.md lists.
    """

    @Answer
    def ready(self) -> Call[Readiness]:
        """Whether the service can answer questions, and by which model; Unavailable where it cannot."""
        return _get("readyz")

    @Answer
    def place(self, **body: Unpack[PlacementBody]) -> Call[Recommendation]:
        """Where should this `instance` go? With `dry_run` no host is held for it, and the call may be repeated."""
        return Call("POST", "/v1/placements", body=body, repeatable=body.get("dry_run", False))

    @Answer
    def place_batch(self, **body: Unpack[BatchBody]) -> Call[BatchAnswer]:
        """Where should each of these `instances` go, when those before it have gone where they should?

        With `order="joint"` they are answered together, never worse than in the order given.
        """
        return Call("POST", "/v1/placements:batch", body=body, repeatable=body.get("dry_run", False))

    @Answer
    def placement(self, placement: str) -> Call[Recommendation]:
        """The stored answer of that id."""
        return _get("v1", "placements", placement)

    @Answer
    def outcome(self, placement: str, **body: Unpack[OutcomeBody]) -> Call[None]:
        """Report what really happened after a placement."""
        return Call("POST", path_of("v1", "placements", placement, "outcome"), body=body)

    @Answer
    def predict(self, **body: Unpack[SceneBody]) -> Call[SceneEffects]:
        """What would these `instances` do to each other on this `host`?"""
        return Call("POST", "/v1/predictions", body=body, repeatable=True)

    @Listing
    def hosts(
        self, *, label: list[str] | None = None, kind: str | None = None, enabled: bool | None = None
    ) -> Call[Page[HostItem]]:
        """All hosts, or those that have every label (`name=value`), are of one kind, are enabled or not."""
        return _list("/v1/hosts", label=label, kind=kind, enabled=enabled)

    @Listing
    def instances(
        self, *, q: str | None = None, host: str | None = None, workload: str | None = None
    ) -> Call[Page[InstanceItem]]:
        """All instances, or those with `q` in their id or label `name`, on one host, of one workload."""
        return _list("/v1/instances", q=q, host=host, workload=workload)

    @Listing
    def workloads(self, *, platform: str | None = None) -> Call[Page[WorkloadItem]]:
        """All workloads, or those of one platform."""
        return _list("/v1/workloads", platform=platform)

    @Answer
    def scores(self, *, since: str = "24h") -> Call[ScoresOut]:
        """The scores of all VMs and hosts now, 0-100, and of the cloud over time."""
        return Call("GET", "/v1/scores", {"since": since}, repeatable=True)

    @Answer
    def host_scores(self, host: str, *, since: str = "24h") -> Call[HostScoresOut]:
        """The scores of the VMs of one host now, and of the host over time."""
        return Call("GET", path_of("v1", "hosts", host, "scores"), {"since": since}, repeatable=True)

    @Answer
    def instance_scores(self, instance: str, *, since: str = "24h") -> Call[VmScoresOut]:
        """The score of one VM now with its factors, and over time."""
        return Call("GET", path_of("v1", "instances", instance, "scores"), {"since": since}, repeatable=True)

    @Answer
    def generation(self) -> Call[Generation]:
        """The inventory's generation, to be named in the next change."""
        return _get("v1", "inventory")

    @Answer
    def put_inventory(self, **body: Unpack[InventoryBody]) -> Call[GenerationStored]:
        """Replace a whole cloud, or with `mode="merge"` add to it. Conflict where `generation` is no longer current.

        With a generation it is repeated where an answer is lost; a Conflict may then mean that the first try was
        carried out.
        """
        return Call("PUT", "/v1/inventory", body=body, repeatable=body.get("generation") is not None)

    @Answer
    def plan(self, **body: Unpack[PlanBody]) -> Call[PlanAnswer]:
        """What should become of the whole cloud? Takes up to `time_limit_s`, for which it waits longer than usual."""
        return Call("POST", "/v1/plans", body=body, patience_s=body.get("time_limit_s", _PLAN_S))

    @Listing
    def plans(self, *, kind: str | None = None) -> Call[Page[PlanItem]]:
        """Plans that were made, newest first; of one kind."""
        return _list("/v1/plans", kind=kind)

    @Answer
    def plan_by_id(self, plan: str) -> Call[PlanAnswer]:
        """The plan of that id."""
        return _get("v1", "plans", plan)

    @Listing
    def models(self) -> Call[Page[ModelOut]]:
        """All registered models, newest first, and last the analytic model."""
        return _list("/v1/models")

    @Answer
    def get(self, path: str, /, **params: Any) -> Call[Any]:
        """The JSON at any path, such as `/v1/worth`; `path_of` quotes names."""
        return Call("GET", path, params, repeatable=True)

    @Answer
    def post(self, path: str, body: Any, *, repeatable: bool = False) -> Call[Any]:
        """The JSON answer to a JSON body at any path; `repeatable` where asked twice it does no harm."""
        return Call("POST", path, body=body, repeatable=repeatable)

    @Answer
    def put(self, path: str, body: Any) -> Call[Any]:
        """The JSON answer to a JSON body that replaces what is at this path; it may be sent again."""
        return Call("PUT", path, body=body, repeatable=True)

    @Answer
    def delete(self, path: str) -> Call[None]:
        """Delete what is at this path; it may be sent again."""
        return Call("DELETE", path, repeatable=True)

    @Listing
    def every_item(self, path: str, /, **params: Any) -> Call[Page[Any]]:
        """Every item of any listing, such as `/v1/probes`."""
        return _list(path, **params)


class SyncCalls(Calls):
    """Each method gives its answer."""


class AsyncCalls(Calls):
    """Each method gives what is awaited for its answer."""
