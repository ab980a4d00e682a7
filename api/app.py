"""The application: the list of routes, and what is put around them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, cast

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles

from advisor.domain import BatchAnswer, BatchSummary, CellsAnswer, Recommendation, RecommendationSummary, SceneEffects
from advisor.service import Advisor
from advisor.settings import Settings
from api import openapi, problems
from api.auth import AuthMiddleware, Guarded, first_step
from api.html.render import SIGN_IN, STATIC
from api.http import conditional
from api.http.bodies import BodyLimit, JsonRoute
from api.http.envelope import Deadlines, Envelope, RateLimit
from api.http.lanes import EventStream, InLanes, Lanes, Listeners, given, in_lane
from api.opinion import Patience, WithPatience, patient
from api.routes import changes, events, inventory, observations, questions, registry, state
from api.routes.common import Checked, only_known_parameters, require_json
from api.routing import Route, protocols
from api.schemas.placements import PlanAnswer
from api.telemetry import Telemetry
from api.telemetry.logs import traces
from api.web import cloud, describe, host, instance, models, placements, signing, where
from api.web import instances as all_instances
from api.web import plans as plan_pages
from api.web import records as alarm_page
from api.web import records as audit_page
from api.web import records as change_pages
from api.web import worth as worth_page
from api.web.form import DEFAULTS
from api.web.plan_form import FIELDS

ROUTES: tuple[Route, ...] = (
    Route("PUT", "/v1/hosts/{host}", inventory.put_host, "inventory.hosts.put", created=True, fails=(409, 412)),
    Route("GET", "/v1/hosts/{host}", inventory.get_host, "inventory.hosts.get", fails=(404,)),
    Route(
        "DELETE", "/v1/hosts/{host}", inventory.delete_host, "inventory.hosts.delete", status=204, fails=(404, 409, 412)
    ),
    Route(
        "GET", "/v1/hosts/{host}/slowing", inventory.slowing, "observations.hosts.slowing", fails=(404,), lane="long"
    ),
    Route(
        "GET", "/v1/hosts/{host}/scores", state.host_scores, "observations.scores.host", fails=(404,), lane="question"
    ),
    Route("GET", "/v1/hosts", inventory.list_hosts, "inventory.hosts.listing"),
    Route(
        "PUT",
        "/v1/instances/{instance}",
        inventory.put_instance,
        "inventory.instances.put",
        created=True,
        fails=(409, 412),
    ),
    Route("GET", "/v1/instances/{instance}", inventory.get_instance, "inventory.instances.get", fails=(404,)),
    Route(
        "DELETE",
        "/v1/instances/{instance}",
        inventory.delete_instance,
        "inventory.instances.delete",
        status=204,
        fails=(404, 412),
    ),
    Route(
        "GET",
        "/v1/instances/{instance}/profile",
        inventory.profile,
        "observations.instances.profile",
        fails=(404,),
        lane="long",
    ),
    Route(
        "GET",
        "/v1/instances/{instance}/scores",
        state.instance_scores,
        "observations.scores.instance",
        fails=(404,),
        lane="question",
    ),
    Route(
        "GET",
        "/v1/instances/{instance}/obtained",
        inventory.obtained,
        "observations.instances.obtained",
        fails=(404,),
        lane="long",
    ),
    Route("GET", "/v1/instances", inventory.list_instances, "inventory.instances.listing"),
    Route(
        "PUT",
        "/v1/workloads/{workload}",
        inventory.put_workload,
        "inventory.workloads.put",
        created=True,
        fails=(409, 412),
    ),
    Route("GET", "/v1/workloads/{workload}", inventory.get_workload, "inventory.workloads.get", fails=(404,)),
    Route(
        "DELETE",
        "/v1/workloads/{workload}",
        inventory.delete_workload,
        "inventory.workloads.delete",
        status=204,
        fails=(404, 412),
    ),
    Route("GET", "/v1/workloads", inventory.list_workloads, "inventory.workloads.listing"),
    Route("PUT", "/v1/inventory", inventory.put_all, "inventory.inventory.put", fails=(409,)),
    Route("GET", "/v1/inventory", inventory.get_all, "inventory.inventory.get"),
    Route("POST", "/v1/samples", observations.samples, "observations", scope="agent"),
    Route("POST", "/v1/announcements", observations.announcements, "observations", fails=(409,), scope="agent"),
    Route("POST", "/v1/orders", changes.orders, "changes", scope="act"),
    Route("POST", "/v1/probes", observations.take_probes, "observations.probes.take", scope="agent"),
    Route("GET", "/v1/probes", observations.list_probes, "observations.probes.listing"),
    Route("POST", "/v1/colocations", observations.colocations, "observations", created=True, fails=(409,)),
    Route(
        "POST",
        "/v1/predictions",
        questions.predict,
        "questions",
        model=SceneEffects,
        lane="question",
        scope="read",
    ),
    Route(
        "POST",
        "/v1/placements",
        questions.place,
        "questions",
        fails=(409,),
        model=Recommendation | RecommendationSummary,
        lane="hold",
        scope="read",
    ),
    Route(
        "POST",
        "/v1/placements:batch",
        questions.place_batch,
        "questions",
        fails=(409,),
        model=BatchAnswer | BatchSummary,
        lane="question",
        scope="read",
    ),
    Route(
        "POST",
        "/v1/cells/placements",
        questions.place_in_cells,
        "questions",
        fails=(404, 409),
        model=CellsAnswer,
        scope="read",
    ),
    Route(
        "GET",
        "/v1/placements/{placement}",
        questions.placement,
        "questions",
        fails=(404,),
        model=Recommendation | RecommendationSummary,
    ),
    Route("POST", "/v1/placements/{placement}/outcome", questions.outcome, "questions", status=204, fails=(404, 409)),
    Route(
        "POST",
        "/v1/plans",
        questions.make_plan,
        "questions.plans.make",
        fails=(404, 409),
        model=PlanAnswer,
        lane="long",
        scope="read",
    ),
    Route(
        "GET",
        "/v1/plans/{plan}",
        questions.get_plan,
        "questions.plans.get",
        fails=(404,),
        model=PlanAnswer,
        scope="read",
    ),
    Route("GET", "/v1/plans", questions.list_plans, "questions.plans.listing", scope="read"),
    Route("GET", "/v1/scores", state.cloud_scores, "observations.scores.cloud", lane="question"),
    Route("POST", "/v1/changes", changes.make, "changes", status=201, fails=(404, 409)),
    Route("GET", "/v1/changes/{rollout}", changes.get, "changes", fails=(404,)),
    Route("GET", "/v1/changes", changes.listing, "changes"),
    Route("POST", "/v1/changes/{rollout}/approve", changes.approve, "changes", fails=(404, 409), scope="admin"),
    Route("GET", "/v1/maintenance", changes.in_maintenance, "changes"),
    Route("GET", "/v1/hosts/{host}/maintenance", changes.maintenance_of, "changes", fails=(404,)),
    Route("POST", "/v1/hosts/{host}/maintenance", changes.start_maintenance, "changes", status=201, fails=(404, 409)),
    Route("DELETE", "/v1/hosts/{host}/maintenance", changes.end_maintenance, "changes", fails=(404, 409)),
    Route("GET", "/v1/freeze", changes.frozen, "changes"),
    Route("PUT", "/v1/freeze", changes.freeze, "changes"),
    Route("DELETE", "/v1/freeze", changes.thaw, "changes", status=204, scope="admin"),
    Route("GET", "/v1/alarms", state.list_alarms, "operations.alarms.listing"),
    Route("GET", "/v1/checkup", state.checkup, "operations.alarms.checkup", lane="long"),
    Route("GET", "/v1/events", events.stream, "operations", answers=EventStream, described=events.EVENT, lane="none"),
    Route("GET", "/v1/worth", questions.advice_effect, "questions.worth.get", lane="long"),
    Route("GET", "/v1/models", registry.listing, "models"),
    Route("POST", "/v1/models", registry.register, "models", status=201, fails=(404, 409), lane="admin", scope="admin"),
    Route("GET", "/v1/activations", registry.activations, "models"),
    Route("GET", "/v1/models/{version}", registry.get, "models", fails=(404,)),
    Route("GET", "/v1/models/{version}/quality", registry.quality, "models.quality.get", fails=(404,), lane="long"),
    Route("POST", "/v1/models/{version}/gate", registry.judge, "models", fails=(404, 409), lane="admin", scope="admin"),
    Route("POST", "/v1/models/rollback", registry.roll_back, "models", fails=(409,), lane="admin", scope="admin"),
    Route(
        "POST",
        "/v1/models/{version}/activate",
        registry.activate,
        "models",
        fails=(404, 409),
        lane="admin",
        scope="admin",
    ),
    Route(
        "POST", "/v1/models/{version}/shadow", registry.shadow, "models", fails=(404, 409), lane="admin", scope="admin"
    ),
    *protocols(),
    Route("GET", "/v1/audit", state.list_audit, "operations.audit.listing", lane="admin", scope="admin"),
    Route("GET", "/healthz", state.healthz, "operations.operations.healthz", lane="none", scope="open"),
    Route("GET", "/readyz", state.readyz, "operations.operations.readyz", lane="none", scope="open"),
    Route("GET", "/metrics", state.metrics, "operations.operations.metrics", answers=PlainTextResponse, lane="none"),
    Route("GET", SIGN_IN, signing.form, "pages", answers=HTMLResponse, scope="open", reads=("next",)),
    Route("POST", SIGN_IN, signing.sign_in, "pages", answers=HTMLResponse, lane="sign_in", scope="open"),
    Route("POST", "/signout", signing.sign_out, "pages", answers=HTMLResponse, scope="read"),
    Route("GET", "/", where.where, "pages", answers=HTMLResponse, lane="question", reads=DEFAULTS),
    Route("GET", "/suggestions", where.suggest, "pages", answers=JSONResponse),
    Route("GET", "/cloud", cloud.cloud, "pages", answers=HTMLResponse, lane="question", reads=cloud.READS),
    Route(
        "GET",
        "/instances",
        all_instances.listing,
        "pages",
        answers=HTMLResponse,
        lane="question",
        reads=all_instances.READS,
    ),
    Route("GET", "/alarms", alarm_page.alarms, "pages", answers=HTMLResponse, reads=alarm_page.READS),
    Route("GET", "/audit", audit_page.audit, "pages", answers=HTMLResponse, lane="admin", scope="admin"),
    Route("GET", "/hosts/{host}", host.host, "pages", fails=(404,), answers=HTMLResponse, lane="question"),
    # Not in the lane of questions: it may wait for another store of samples.
    Route("GET", "/instances/{instance}", instance.instance, "pages", fails=(404,), answers=HTMLResponse),
    Route("GET", "/docs", describe.docs, "pages", answers=HTMLResponse, lane="none"),
    Route("GET", "/placements", placements.listing, "pages", answers=HTMLResponse),
    Route("GET", "/placements/{placement}", placements.show, "pages", fails=(404,), answers=HTMLResponse),
    Route("GET", "/worth", worth_page.worth, "pages", answers=HTMLResponse, lane="long"),
    Route("GET", "/plans", plan_pages.listing, "pages", answers=HTMLResponse),
    Route("POST", "/plans", plan_pages.make, "pages", answers=HTMLResponse, lane="long", scope="read"),
    Route("GET", "/plans/new", plan_pages.asking, "pages", answers=HTMLResponse, reads=("kind", *FIELDS)),
    Route("GET", "/plans/compare", plan_pages.compare, "pages", fails=(404,), answers=HTMLResponse),
    Route("GET", "/plans/{plan}", plan_pages.show, "pages", fails=(404,), answers=HTMLResponse),
    Route(
        "GET", "/plans/{plan}/report.html", plan_pages.report, "pages", fails=(404,), answers=HTMLResponse, lane="long"
    ),
    Route("GET", "/plans/{plan}/data.json", plan_pages.data, "pages", fails=(404,), answers=JSONResponse),
    Route("GET", "/changes", change_pages.changes, "pages", answers=HTMLResponse),
    Route("GET", "/changes/{rollout}", change_pages.show_change, "pages", fails=(404,), answers=HTMLResponse),
    Route(
        "POST", "/changes/{rollout}/approve", change_pages.approve_change, "pages", answers=HTMLResponse, scope="admin"
    ),
    Route("POST", "/hosts/{host}/maintenance", change_pages.maintain, "pages", fails=(404,), answers=HTMLResponse),
    Route("POST", "/changes/freeze", change_pages.freeze, "pages", answers=HTMLResponse),
    Route("POST", "/changes/thaw", change_pages.thaw, "pages", answers=HTMLResponse, scope="admin"),
    Route("GET", "/models", models.listing, "pages", answers=HTMLResponse, lane="long"),
    Route("GET", "/models/{version}", models.show, "pages", fails=(404,), answers=HTMLResponse, lane="long"),
    Route("GET", "/models/{version}/confirm", models.confirm, "pages", fails=(404,), answers=HTMLResponse),
    Route(
        "POST",
        "/models/{version}/activate",
        models.activate,
        "pages",
        answers=HTMLResponse,
        lane="admin",
        scope="admin",
    ),
    Route(
        "POST", "/models/{version}/shadow", models.shadow, "pages", answers=HTMLResponse, lane="admin", scope="admin"
    ),
    Route(
        "POST",
        "/models/{version}/rollback",
        models.roll_back,
        "pages",
        answers=HTMLResponse,
        lane="admin",
        scope="admin",
    ),
)

ABOUT: Mapping[str, Any] = {
    "title": "Cotenant",
    "version": version("cotenant"),
    "summary": "Where should this VM go, so that no VM on that host suffers?",
    "license_info": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
}


def create_app(advisor: Advisor, settings: Settings, demonstration: str = "") -> FastAPI:
    """The ASGI application over an Advisor that the caller opened and will close.

    With the words of a `demonstration` every page shows them and refreshes itself.
    """
    telemetry = Telemetry(advisor.cloud, advisor.outcomes, advisor.changes)
    lanes = Lanes(settings.max_wait_s)
    telemetry.watch(lanes.by_name.values())
    app = FastAPI(
        routes=[*_routes()],
        **ABOUT,
        telemetry=traces(),
        docs_url=None,  # FastAPI's page loads its script from another host
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(Envelope, telemetry=telemetry),
            Middleware(
                AuthMiddleware,
                access=advisor.access,
                limit=RateLimit(settings.rate_limit, settings.rate_burst),
                open_paths=frozenset(route.path for route in ROUTES if route.needs == "open"),
                programs=frozenset(first_step(route.path) for route in ROUTES if route.tag != "pages"),
            ),
            Middleware(BodyLimit, most_bytes=int(settings.max_body_mb * 2**20)),
            Middleware(Deadlines, most_s=settings.max_request_s),
            Middleware(InLanes, lanes=lanes),
            Middleware(WithPatience, patience=Patience(settings.extender_s)),
        ],
    )
    app.state.advisor, app.state.settings, app.state.telemetry = advisor, settings, telemetry
    app.state.demonstration = demonstration
    app.state.lanes = lanes
    app.state.listeners = Listeners(advisor.access, lanes.by_name["storage"])
    problems.install(app)
    conditional.install(app)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.openapi = _description  # type: ignore[method-assign] # FastAPI's documented way to extend the document
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """The list as FastAPI's routes, shared by all applications: it holds nothing of one, and takes 0.13 s to make."""
    return _made(ROUTES, described=False)


def _made(listed: Sequence[Route], *, described: bool) -> tuple[BaseRoute, ...]:
    """Routes to answer, or `described` ones for the document: a model that only describes takes time at each start."""
    router = APIRouter(route_class=JsonRoute)
    for route in listed:
        _add(router, route, described=described)
    literal = frozenset(route.path for route in listed if "{" not in route.path)
    for added in router.routes:
        if isinstance(added, JsonRoute) and "{" in added.path:
            added.literal = literal
    return tuple(router.routes)


@cache
def _description() -> dict[str, Any]:
    return openapi.complete(_made(ROUTES, described=True), **ABOUT)


def description_with(packages: Collection[str] = ()) -> dict[str, Any]:
    """The OpenAPI document of a service beside which only these packages are installed, by names of their modules."""
    routes = [route for route in ROUTES if route.is_own or route.endpoint.__module__.partition(".")[0] in packages]
    return openapi.complete(_made(routes, described=True), **ABOUT)


def _add(router: APIRouter, route: Route, *, described: bool) -> None:
    title, _, text = (route.endpoint.__doc__ or "").partition("\n")
    takes_json = route.method in {"PUT", "POST"} and "body" in route.endpoint.__annotations__
    options: dict[str, Any] = {"response_class": route.answers, "response_model": None} if route.answers else {}
    if route.status == 204:
        options["response_model"] = None
    if route.model is not None:
        options["response_model"] = route.model if described else None
    is_ours = route.tag == "pages" or route.path.startswith("/v1/")  # other schedulers may add parameters of their own
    endpoint = given(route.endpoint)
    endpoint = endpoint if route.lane == "none" else in_lane(endpoint, route.lane)
    checks = {require_json: takes_json, only_known_parameters(route.reads): is_ours}
    documented = openapi.responses(
        route.endpoint,
        route.fails,
        success=route.status,
        takes_body=takes_json or route.body is not None,
        created=route.created,
    )
    if route.answers and route.described:
        content = {str(route.answers.media_type): {"schema": route.described}}
        documented.setdefault(route.status, {})["content"] = content
    router.add_api_route(
        route.path,
        patient(endpoint) if route.hurried else endpoint,
        methods=[route.method],
        status_code=route.status,
        tags=[route.tag],
        summary=title.rstrip("."),
        description=text.strip(),
        operation_id=route.operation_id,
        response_model_exclude_unset=True,  # what was not asked for is absent, not empty
        include_in_schema=route.tag != "pages",
        openapi_extra=openapi.security(route.needs) | ({"requestBody": route.body} if route.body else {}),
        responses=documented if described else None,
        **options,
    )
    added = cast(APIRoute, router.routes[-1])
    added.app = Checked(added.app, *(check for check, is_needed in checks.items() if is_needed))
    if route.needs != "open":
        added.app = Guarded(added.app, route.needs)
