"""Every call, described once; `Client` and `AsyncClient` have each of them as a method of their own kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import update_wrapper, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload
from urllib.parse import quote

from cotenant_client.retries import Call
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

P = ParamSpec("P")
T = TypeVar("T")
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
