"""Templates → pages; everything that comes from outside is escaped, and nothing is loaded from another host."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.schemas.pages import Problem

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
_FOR_PROGRAMS = ("/v1", "/healthz", "/readyz", "/metrics", "/openapi.json", "/static")

_templates = Environment(
    loader=FileSystemLoader(_HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

_templates.filters["shell"] = shlex.join  # for reading and copying; nothing here is ever run


def page(template: str, status: int = 200, headers: Mapping[str, str] | None = None, **values: Any) -> HTMLResponse:
    """Render a template as an answer."""
    return HTMLResponse(_templates.get_template(template).render(values), status, headers)


def wants_page(request: Request) -> bool:
    """Whether a person asked with a browser, outside the paths that are for programs."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(_FOR_PROGRAMS)


def error_page(problem: Problem, help_text: str, headers: Mapping[str, str]) -> HTMLResponse:
    """A problem as a page that says what to do next."""
    return page("error.html", problem.status, headers, problem=problem, help=help_text)
