"""The gate: who a request comes from is settled before a path, a method or a byte of the body is looked at."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ipaddress import IPv6Network, ip_address
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import Caller
from advisor.errors import AdvisorError, IdentityUnavailable, StorageUnavailable
from advisor.service import AccessService, Keystone, acting, form_key
from api.auth import cookies
from api.auth.listening import is_loopback
from api.auth.origin import is_from_another_site
from api.html.render import to_sign_in, wants_page
from api.http.limits import RateLimit
from api.problems import OF_ERROR, OF_STATUS, Busy, CrossSite, Kind, kind_of, respond

T = TypeVar("T")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")
_STATIC = "/static/"  # what the page that asks for a token is drawn with
_NEEDED = "a valid token is needed"  # the same for none, a wrong, an expired and a revoked one
_READS = {"GET", "HEAD", "OPTIONS"}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="cotenant"'}
ATTEMPTS_PER_S, ATTEMPTS_AT_ONCE = 1.0, 20  # to sign in, from one place: each that fails is a row of the audit log
# Threads and places to wait: who looks up a session, who shows a token that was valid when Keystone was asked last, and
# who shows one that it has not been asked about. Whoever forges tokens fills the last ones, and no others.
SESSIONS, KNOWN, STRANGERS = (4, 64), (4, 64), (4, 16)
_LOCAL = Caller("local", "admin")
log = logging.getLogger("cotenant.auth")


class AuthMiddleware:
    """Answers 401 to whoever has no valid token, on every path but the open ones, whether it is known or not.

    `programs` are the first steps of the API's paths: there only headers say who asks. Everywhere else it may be a
    session, too, which a browser keeps as a cookie; who has none is shown where to sign in.

    As long as there never was a token and no Keystone is named, everybody on this machine may do everything, and
    nobody else anything.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: AccessService,
        limit: RateLimit,
        open_paths: frozenset[str],
        programs: frozenset[str],
    ) -> None:
        self.app = app
        self.access = access
        self.limit = limit
        self.open_paths = open_paths
        self.programs = programs
        self._attempts = RateLimit(ATTEMPTS_PER_S, ATTEMPTS_AT_ONCE)
        self._sessions, self._known_tokens, self._strangers = (
            _Threads(*SESSIONS),
            _Threads(*KNOWN),
            _Threads(*STRANGERS),
        )
        self._refreshing: asyncio.Future[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        is_open = scope["path"] in self.open_paths or scope["path"].startswith(_STATIC)
        request.state.form_key = ""
        try:
            caller = await self._caller(request, is_open=is_open)
        except _Refused as refused:
            if refused.kind.status == 401 and request.method == "GET" and wants_page(request):
                await to_sign_in(request)(scope, receive, send)
                return
            await respond(request, refused.kind, refused.detail, headers=refused.headers)(scope, receive, send)
            return
        request.state.caller, request.state.actor = caller, caller and caller.actor
        request.state.is_still_known = partial(self._is_still_known, request)
        with acting(caller.actor if caller else "anybody", getattr(request.state, "request_id", "")):
            await self.app(scope, receive, send)

    async def _caller(self, request: Request, *, is_open: bool) -> Caller | None:
        """Who asks, None = anybody on an open path, which waits for nothing."""
        try:
            if not (is_open or self.access.tokens.fresh):
                await self._refresh(request.scope["path"])
            if not self.access.guarded:
                _check_from_here(request)
                _check_sender(request)
                caller: Caller | None = _LOCAL
            elif is_open:
                self._count_attempt(request)
                return None
            else:
                caller = await self._known(request)
        except AdvisorError as error:
            # The details name hosts and users of the operator's, and who asks is not known yet.
            log.warning("cannot check who asks: %s", error.message)
            raise _Refused(kind_of(error), "whose token this is cannot be found out now") from error
        if caller is None:
            raise _Refused(OF_STATUS[401], _NEEDED, _CHALLENGE)
        _wait(0.0 if is_open else self.limit.wait_s(caller.actor))
        return caller

    def _count_attempt(self, request: Request) -> None:
        if request.method == "POST":
            _wait(self._attempts.wait_s(_place(request.client.host if request.client else "")))

    async def _refresh(self, path: str) -> None:
        try:
            if self._refreshing is None:  # one for all who wait: with the database away, each would take its whole time
                self._refreshing = asyncio.ensure_future(to_thread.run_sync(self.access.tokens.refresh))
                self._refreshing.add_done_callback(self._refreshed)
            await asyncio.shield(self._refreshing)
        except StorageUnavailable:
            # Who watches the service hears of it by the tokens of before; nothing else could be answered anyway.
            if path != "/metrics" or not self.access.tokens.read_once:
                raise

    def _refreshed(self, done: asyncio.Future[None]) -> None:
        self._refreshing = None
        if not done.cancelled():
            done.exception()  # everybody who waited may have gone

    async def _known(self, request: Request) -> Caller | None:
        headers = request.headers
        given, secret = headers.getlist("authorization"), cookies.read(request)
        if secret and not given and "x-auth-token" not in headers and not self._is_for_programs(request):
            caller = await self._signed_in(secret)
            request.state.form_key = form_key(secret) if caller else ""
            return caller
        if any(one.strip().lower().startswith("basic") for one in given):  # which a browser sends again by itself
            _check_sender(request)
        keystone, subject = self.access.keystone, headers.get("x-auth-token")
        if given or keystone is None or subject is None:
            return self.access.tokens.caller(_token_in(given))
        return await self._ask_keystone(keystone, subject)

    async def _is_still_known(self, request: Request) -> bool:
        """Whether who asked would be let in now: a stream outlasts what was settled at its beginning.

        StorageUnavailable where the tokens cannot be read.
        """
        try:
            if not self.access.tokens.fresh:
                await self._refresh(request.scope["path"])
            return not self.access.guarded or await self._known(request) is not None
        except (IdentityUnavailable, _Refused):
            return False

    async def _signed_in(self, secret: str) -> Caller | None:
        held = await self._sessions.run(self.access.sessions.held, secret)
        if held is None:
            return None
        if held.keystone_token is None or self.access.keystone is None:
            return held.caller
        caller = await self._ask_keystone(self.access.keystone, held.keystone_token)
        return caller if caller and caller.actor == held.actor else None

    async def _ask_keystone(self, keystone: Keystone, subject: str) -> Caller | None:
        """Whose token it is, by what is remembered or by asking."""
        answer = keystone.remembered(subject)
        if answer:
            return answer.caller
        threads = self._known_tokens if keystone.was_valid(subject) else self._strangers
        return await threads.run(keystone.ask, subject)

    def _is_for_programs(self, request: Request) -> bool:
        return first_step(request.scope["path"]) in self.programs


class _Threads:
    """So many threads, and so many places to wait for one; who comes then is refused at once."""

    def __init__(self, threads: int, places: int) -> None:
        self._limiter = CapacityLimiter(threads)
        self._most = threads + places
        self._there = 0

    async def run(self, work: Callable[[str], T], argument: str) -> T:
        """Do it in one of the threads; _Refused at once where too many wait."""
        if self._there >= self._most:
            raise _Refused(OF_ERROR[Busy], "too many tokens and sessions wait to be checked; ask again in a moment")
        self._there += 1
        try:
            return await to_thread.run_sync(work, argument, limiter=self._limiter)
        finally:
            self._there -= 1


class _Refused(Exception):  # noqa: N818
    """Why a request does not get through."""

    def __init__(self, kind: Kind, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.headers = kind, detail, headers


def first_step(path: str) -> str:
    """`v1` of `/v1/hosts`."""
    return path.removeprefix("/").partition("/")[0]


def _wait(wait_s: float) -> None:
    if wait_s:
        seconds = str(math.ceil(wait_s))
        raise _Refused(OF_STATUS[429], f"too many requests: wait {seconds} s", {"Retry-After": seconds})


def _place(client: str) -> str:
    """An IPv4 address, or the /64 of an IPv6 one: so many of those one person has (RFC 6177)."""
    try:
        address = ip_address(client)
    except ValueError:  # a Unix socket has no peer address
        return client
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))


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


def _check_sender(request: Request) -> None:
    """Where no token of a header says who asks, a page of another site must not ask in an administrator's browser.

    A change without a body needs no leave of ours to be sent there, and 127.0.0.1 is in everybody's reach.
    """
    if request.method not in _READS and is_from_another_site(request):
        raise _Refused(OF_ERROR[CrossSite], "a page of another site sent this")


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
