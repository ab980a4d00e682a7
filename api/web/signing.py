"""Signing in and out of the pages, with the tokens of the API."""

from __future__ import annotations

import re

from fastapi import Request, Response

from api.auth import cookies
from api.auth.origin import came_by_tls
from api.html.render import SIGN_IN, page, see_other
from api.routes.common import AccessDep
from api.web.forms import Posted

_LONGEST = 5000  # characters; Keystone's tokens have 255 to some thousands
_ON_THIS_SITE = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}\Z")  # a path that no browser takes for the name of a host


def form(request: Request, access: AccessDep) -> Response:
    """The form that asks for a token."""
    access.tokens.refresh()
    if not access.guarded:
        return see_other("/")
    return _form(request, request.query_params.get("next", "/"))


def sign_in(request: Request, access: AccessDep, form: Posted) -> Response:
    """Begin a session; the one that the browser had before ends."""
    after = form.get("next", "/")
    token = form.get("token", "").strip()[:_LONGEST]
    client = request.client.host if request.client else ""
    session = access.sessions.begin(
        token, former=cookies.read(request), request_id=request.state.request_id, client=client
    )
    if session is None:
        return _form(request, after, refused=True)
    answer = see_other(_checked(after))
    cookies.give(answer, session.secret, session.lasts_s, secure=came_by_tls(request))
    return answer


def sign_out(request: Request, access: AccessDep, form: Posted) -> Response:  # noqa: ARG001 - the form is checked
    """End the session."""
    secret = cookies.read(request)
    if secret is not None:
        access.sessions.end(secret)
    answer = see_other(SIGN_IN if access.guarded else "/")
    cookies.take_back(answer)
    return answer


def _form(request: Request, after: str, *, refused: bool = False) -> Response:
    headers = {"WWW-Authenticate": 'Bearer realm="cotenant"'} if refused else None
    return page(
        request, "signin.html", status=401 if refused else 200, headers=headers, after=_checked(after), refused=refused
    )


def _checked(path: str) -> str:
    """The path to go on to, if it is one of this service; else the first page."""
    return path if _ON_THIS_SITE.match(path) and not path.startswith(SIGN_IN) else "/"
