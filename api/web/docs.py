"""The page that describes the API, on `/docs`."""

from __future__ import annotations

from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from api.html.render import page
from api.problems import KINDS
from api.web.describe import describe, shapes


def docs(request: Request) -> HTMLResponse:
    """Every operation, its fields and its problems, from the OpenAPI document."""
    document: dict[str, Any] = request.app.openapi()
    groups = describe(document)
    return page(request, "docs.html", document=document, groups=groups, shapes=shapes(document), kinds=KINDS)
