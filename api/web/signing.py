"""Forms that pages send, taken only from our own pages in the session they were made for; signing in and out."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response
from starlette.exceptions import HTTPException

from api.auth import gate
from api.auth.gate import came_by_tls, require_own_page
from api.html.render import SIGN_IN, page, see_other
from api.problems import CrossSite
from api.routes.common import AccessDep

# Forms that pages send: read only where one of our own pages sent them, in the session that they were made for.

KEY = "form_key"  # the hidden field of every form that changes something
_MOST_FIELDS = 1000
_MOST_BYTES = 256 * 1024


async def posted(request: Request) -> Mapping[str, str]:
    """The fields of a form, the last of those with one name; CrossSite where another site could have sent it.

    Every handler of a POST on a page takes it: `form: Posted`.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, f"the body is {kind[:100] or 'without a type'}, a form is needed")
    require_own_page(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, f"the form is larger than {_MOST_BYTES // 1024} KiB")
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise HTTPException(400, "the body is no form in UTF-8, or has too many fields") from error
    form = dict(fields)
    if not hmac.compare_digest(form.pop(KEY, "").encode(), request.state.form_key.encode()):
        raise CrossSite("the form belongs to another session than the one that is signed in now")
    return form


Posted = Annotated[Mapping[str, str], Depends(posted)]


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
        token, former=gate.read_cookie(request), request_id=request.state.request_id, client=client
    )
    if session is None:
        return _form(request, after, refused=True)
    answer = see_other(_checked(after))
    gate.give_cookie(answer, session.secret, session.lasts_s, secure=came_by_tls(request))
    return answer


def sign_out(request: Request, access: AccessDep, form: Posted) -> Response:  # noqa: ARG001 - the form is checked
    """End the session."""
    secret = gate.read_cookie(request)
    if secret is not None:
        access.sessions.end(secret)
    answer = see_other(SIGN_IN if access.guarded else "/")
    gate.take_cookie_back(answer)
    return answer


def _form(request: Request, after: str, *, refused: bool = False) -> Response:
    headers = {"WWW-Authenticate": 'Bearer realm="cotenant"'} if refused else None
    return page(
        request, "signin.html", status=401 if refused else 200, headers=headers, after=_checked(after), refused=refused
    )


def _checked(path: str) -> str:
    """The path to go on to, if it is one of this service; else the first page."""
    return path if _ON_THIS_SITE.match(path) and not path.startswith(SIGN_IN) else "/"
