"""The gate: who a request comes from is settled before a path, a method or a byte of the body is looked at."""

from __future__ import annotations

import base64
import binascii
import logging
import math
import re
from collections.abc import Mapping, Sequence

from anyio import CapacityLimiter, to_thread
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import Caller
from advisor.errors import AdvisorError, StorageUnavailable
from advisor.service import Advisor, acting
from api.auth.listening import is_loopback
from api.limits import RateLimit
from api.problems import OF_STATUS, Kind, kind_of, respond
from api.web.render import wants_page

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")
_STATIC = "/static/"  # what the page that asks for a token is drawn with
_NEEDED = "this service answers who has a valid token"  # the same for none, a wrong, an expired and a revoked one
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="cotenant"'}
# A browser shows its own form for these two, and sends them with every later request.
_FORM = {"WWW-Authenticate": 'Basic realm="Cotenant: any name, and a token as the password", charset="UTF-8"'}
_THREADS = 4  # that wait for the database or Keystone: a flood of forged tokens waits for these, and nobody else does
_LOCAL = Caller("local", "admin")
log = logging.getLogger("cotenant.auth")


class Gate:
    """Answers 401 to whoever has no valid token, on every path but the open ones, whether it is known or not.

    As long as there never was a token and no Keystone is named, everybody on this machine may do everything, and
    nobody else anything.
    """

    def __init__(self, app: ASGIApp, advisor: Advisor, limit: RateLimit, open_paths: frozenset[str]) -> None:
        self.app = app
        self.advisor = advisor
        self.limit = limit
        self.open_paths = open_paths
        self._threads = CapacityLimiter(_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        is_open = scope["path"] in self.open_paths or scope["path"].startswith(_STATIC)
        try:
            caller = await self._caller(request, is_open=is_open)
        except _Refused as refused:
            await respond(request, refused.kind, refused.detail, headers=refused.headers)(scope, receive, send)
            return
        request.state.caller, request.state.actor = caller, caller and caller.actor
        with acting(caller.actor if caller else "anybody", getattr(request.state, "request_id", "")):
            await self.app(scope, receive, send)

    async def _caller(self, request: Request, *, is_open: bool) -> Caller | None:
        """Who asks, None = anybody on an open path, which waits for nothing."""
        try:
            if not (is_open or self.advisor.tokens.fresh):
                await self._refresh(request.scope["path"])
            if not self.advisor.guarded:
                _check_from_here(request)
                caller: Caller | None = _LOCAL
            elif is_open:
                return None
            else:
                caller = await self._known(request.headers)
        except AdvisorError as error:
            # The details name hosts and users of the operator's, and who asks is not known yet.
            log.warning("cannot check who asks: %s", error.message)
            raise _Refused(kind_of(error), "whose token this is cannot be found out now") from error
        if caller is None:
            raise _Refused(OF_STATUS[401], _NEEDED, _FORM if wants_page(request) else _CHALLENGE)
        wait_s = 0.0 if is_open else self.limit.wait_s(caller.actor)
        if wait_s:
            seconds = str(math.ceil(wait_s))
            raise _Refused(OF_STATUS[429], f"too many requests: wait {seconds} s", {"Retry-After": seconds})
        return caller

    async def _refresh(self, path: str) -> None:
        try:
            await to_thread.run_sync(self.advisor.tokens.refresh, limiter=self._threads)
        except StorageUnavailable:
            # Who watches the service hears of it by the tokens of before; nothing else could be answered anyway.
            if path != "/metrics" or not self.advisor.tokens.read_once:
                raise

    async def _known(self, headers: Headers) -> Caller | None:
        given = headers.getlist("authorization")
        keystone, subject = self.advisor.keystone, headers.get("x-auth-token")
        if given or keystone is None or subject is None:
            return self.advisor.tokens.caller(_token_in(given))
        answer = keystone.remembered(subject)
        return answer.caller if answer else await to_thread.run_sync(keystone.ask, subject, limiter=self._threads)


class _Refused(Exception):  # noqa: N818
    """Why a request does not get through."""

    def __init__(self, kind: Kind, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers = kind, detail, headers


def _check_from_here(request: Request) -> None:
    """Without a token only this machine is answered, and only by a loopback name.

    A page in an administrator's browser can point a name of its own at 127.0.0.1 (DNS rebinding) and would then be
    allowed to read and write a service that asks for no token; it cannot forge the Host header.
    """
    match = _HOST.match(request.headers.get("host", ""))
    client = request.client.host if request.client else "localhost"  # a Unix socket has no peer address
    if not match or not is_loopback(match["name"]) or not is_loopback(client):
        detail = "no token is configured, so only requests to a loopback name or address are answered"
        raise _Refused(OF_STATUS[421], detail)


def _token_in(given: Sequence[str]) -> str:
    """The token of one `Authorization` header: Bearer, or the password of Basic, which some clients only can send."""
    kind, _, value = given[0].strip().partition(" ") if len(given) == 1 else ("", "", "")
    match kind.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).decode("ascii").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError, ValueError):
                return ""
    return ""
