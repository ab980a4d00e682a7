"""What handlers share: the advisor and settings of the application, path ids, paging, limits on batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Annotated, get_origin

from fastapi import Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import Caller
from advisor.errors import InvalidInput
from advisor.service import (
    AccessService,
    CellService,
    ChangeService,
    CloudService,
    InventoryService,
    MaintenanceService,
    ModelRegistry,
    OrderService,
    OutcomeService,
    PlacementService,
    PlanService,
    TelemetryService,
)
from advisor.settings import Settings
from api.http.lanes import Given
from api.schemas.base import ID_PATTERN, TEXT_PATTERN
from api.telemetry import Telemetry


def _service(name: str) -> Given:
    return Given(lambda request: getattr(request.app.state.advisor, name))


# What is checked before a byte of the body is read.

Check = Callable[[Request], None]


class Checked:
    """A route that is checked before FastAPI takes it up, which takes longer over each of its dependencies."""

    def __init__(self, app: ASGIApp, *checks: Check) -> None:
        self.app = app
        self.checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        request = Request(scope)
        for check in self.checks:
            check(request)
        await self.app(scope, receive, send)


def require_json(request: Request) -> None:
    """HTTPException 415 for a body that is not JSON; a browser sends JSON to another site only after asking it."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HTTPException(415, f"the body is {kind[:100]}, application/json is needed")
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if not kind and has_body:
        raise HTTPException(415, "the body has no content type, application/json is needed")


def only_known_parameters(read: Collection[str]) -> Check:
    """InvalidInput for a query parameter that is neither in the handler's signature nor among `read`.

    A filter with a mistyped name would let everything through. A parameter that is given twice is refused, too, unless
    it is a list.
    """

    def check(request: Request) -> None:
        if not request.scope["query_string"]:
            return
        declared = request.scope["route"].dependant.query_params
        lists = {parameter.alias for parameter in declared if get_origin(parameter.field_info.annotation) is list}
        known = [*(parameter.alias for parameter in declared), *read]
        for name, times in Counter(name for name, _ in request.query_params.multi_items()).items():
            if name not in known:
                choices = f"there are {', '.join(known)}" if known else "it takes none"
                raise InvalidInput(f"there is no query parameter {name[:60]!a}; {choices}", field=name[:60])
            if times > 1 and name not in lists:
                raise InvalidInput(f"{name} is given {times} times, once is taken", field=name)

    return check


AccessDep = Annotated[AccessService, _service("access")]
CellDep = Annotated[CellService, _service("cells")]
ChangeDep = Annotated[ChangeService, _service("changes")]
CloudDep = Annotated[CloudService, _service("cloud")]
InventoryDep = Annotated[InventoryService, _service("inventory")]
MaintenanceDep = Annotated[MaintenanceService, _service("maintenance")]
ModelDep = Annotated[ModelRegistry, _service("models")]
OrderDep = Annotated[OrderService, _service("orders")]
OutcomeDep = Annotated[OutcomeService, _service("outcomes")]
PlacementDep = Annotated[PlacementService, _service("placements")]
PlanDep = Annotated[PlanService, _service("plans")]
TelemetryDep = Annotated[TelemetryService, _service("telemetry")]
CallerDep = Annotated[Caller, Given(lambda request: request.state.caller)]  # the one that the gate let in
SettingsDep = Annotated[Settings, Given(lambda request: request.app.state.settings)]
CountersDep = Annotated[Telemetry, Given(lambda request: request.app.state.telemetry)]
PathId = Annotated[str, Path(pattern=ID_PATTERN, min_length=1, max_length=255, description="its id")]
PathName = Annotated[str, Path(pattern=TEXT_PATTERN, min_length=1, max_length=255, description="its name")]
_ONLY = "only those that name this one"
QueryId = Annotated[str | None, Query(pattern=ID_PATTERN, min_length=1, max_length=255, description=_ONLY)]
QueryName = Annotated[str | None, Query(pattern=TEXT_PATTERN, min_length=1, max_length=255, description=_ONLY)]
QueryPlatform = Annotated[
    str | None, Query(pattern=TEXT_PATTERN, max_length=255, description="empty = what holds on every platform")
]
_CURSOR = r"^[A-Za-z0-9._:-]+$"
Cursor = Annotated[
    str | None, Query(min_length=1, max_length=1000, pattern=_CURSOR, description="`next_cursor` of the page before")
]
Limit = Annotated[int, Query(ge=1, le=1000, description="most items on a page")]


def check_batch(items: Sequence[object], settings: Settings, field: str) -> None:
    """Refuse more items in one call than the settings allow."""
    if len(items) > settings.max_batch:
        raise InvalidInput(f"{len(items)} {field} in one call, at most {settings.max_batch} are taken", field=field)
