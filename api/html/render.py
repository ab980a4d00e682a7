"""Templates → pages; everything that comes from outside is escaped, and nothing is loaded from another host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from advisor.domain import duration_in_words, settings_named, time_part
from api.html import REFRESH_S, picture
from api.schemas.base import Problem
from profiler.names import visible

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
SIGN_IN = "/signin"
_FOR_PROGRAMS = ("/v1", "/healthz", "/readyz", "/metrics", "/openapi.json", "/static")

_templates = Environment(
    finalize=visible,
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

_templates.globals["picture"] = picture
_templates.filters["duration"] = duration_in_words
_templates.filters["time_part"] = time_part
_templates.filters["settings_named"] = settings_named
_templates.filters["shell"] = shlex.join  # for reading and copying; nothing here is ever run


def page(
    request: Request, template: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any
) -> HTMLResponse:
    """Render a template as an answer.

    Every template has `demonstration` and `predicting` (words, empty as a rule) with `refresh_s`, `caller` (a Caller,
    None = no user is signed in), `signed_in` (there is a session to end) and `form_key`, which each form that changes
    something carries: `{{ parts.form_key(form_key) }}`.
    """
    state = request.state
    common = {
        "demonstration": getattr(request.app.state, "demonstration", ""),
        "refresh_s": REFRESH_S,
        "predicting": "",
        "caller": getattr(state, "caller", None),
        "signed_in": bool(getattr(state, "form_key", "")),
        "form_key": getattr(state, "form_key", ""),
    }
    return HTMLResponse(_templates.get_template(template).render(common | values), status, headers)


def to_page_of(request: Request, what: str, name: str) -> RedirectResponse:
    """To the page of a host or an instance by its id, with the query of this address."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(f"/{what}/{quote(name, safe='')}{query}", 303)


def to_sign_in(request: Request) -> RedirectResponse:
    """Where who is not signed in goes first, and comes back from."""
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return see_other(SIGN_IN if path == "/" else f"{SIGN_IN}?{urlencode({'next': path})}")


def see_other(path: str) -> RedirectResponse:
    """Go on there with a GET: what a form that changed something is answered with."""
    return RedirectResponse(path, 303)


def wants_page(request: Request) -> bool:
    """Whether a person asked with a browser, outside the paths that are for programs."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(_FOR_PROGRAMS)


def error_page(request: Request, problem: Problem, help_text: str, headers: Mapping[str, str]) -> HTMLResponse:
    """A problem as a page that says what to do next."""
    return page(request, "error.html", status=problem.status, headers=headers, problem=problem, help=help_text)
