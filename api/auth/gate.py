"""The gate: finds out who sends a request before its path, method or body is looked at."""

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
_STATIC = "/static/"  # style and script of the page that asks for a token
_NEEDED = "a valid token is needed"  # the same for none, a wrong, an expired and a revoked one
_READS = {"GET", "HEAD", "OPTIONS"}
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="cotenant"'}
ATTEMPTS_PER_S, ATTEMPTS_AT_ONCE = 1.0, 20  # sign-ins from one place: each that fails is a row of the audit log
# Threads and places to wait for looking up sessions, for tokens that were valid when Keystone was asked last, and for
# tokens that it has not been asked about. A client that forges tokens fills only the last of the three.
SESSIONS, KNOWN, STRANGERS = (4, 64), (4, 64), (4, 16)
_LOCAL = Caller("local", "admin")
log = logging.getLogger("cotenant.auth")


class AuthMiddleware:
    """Answers 401 to callers without a valid token, on every path but the open ones, whether the path exists or not.

    `programs` are the first steps of the API's paths: there only headers say who asks. On pages a session, which a
    browser keeps as a cookie, counts as well; a browser without one is sent to the sign-in page.

    While no token was ever made and no Keystone is configured, every client on this machine may do everything, and no
    client else may do anything.
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
        self._sessions, self._known_tokens = _Threads(*SESSIONS), _Threads(*KNOWN)
        self._strangers = _Threads(*STRANGERS)
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
        """Who asks; None = anybody, on an open path, where nothing is waited for."""
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
            # The message may name the operator's hosts and users, which an unknown caller must not learn.
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
            if self._refreshing is None:  # one for all that wait: without the database each would take its whole time
                self._refreshing = asyncio.ensure_future(to_thread.run_sync(self.access.tokens.refresh))
                self._refreshing.add_done_callback(self._refreshed)
            await asyncio.shield(self._refreshing)
        except StorageUnavailable:
            # Monitoring must see that the database is away, so /metrics goes by the tokens that were read before.
            if path != "/metrics" or not self.access.tokens.read_once:
                raise

    def _refreshed(self, refresh: asyncio.Future[None]) -> None:
        self._refreshing = None
        if not refresh.cancelled():
            refresh.exception()  # asyncio would log it where every client that waited has gone

    async def _known(self, request: Request) -> Caller | None:
        headers = request.headers
        authorization, secret = headers.getlist("authorization"), cookies.read(request)
        if secret and not authorization and "x-auth-token" not in headers and not self._is_for_programs(request):
            caller = await self._signed_in(secret)
            request.state.form_key = form_key(secret) if caller else ""
            return caller
        if any(header.strip().lower().startswith("basic") for header in authorization):  # browsers repeat it unasked
            _check_sender(request)
        keystone, subject = self.access.keystone, headers.get("x-auth-token")
        if authorization or keystone is None or subject is None:
            return self.access.tokens.caller(_token_in(authorization))
        return await self._ask_keystone(keystone, subject)

    async def _is_still_known(self, request: Request) -> bool:
        """Whether the caller would still be let in now: a stream may outlast the token that it began with.

        StorageUnavailable where the tokens cannot be read.
        """
        try:
            if not self.access.tokens.fresh:
                await self._refresh(request.scope["path"])
            return not self.access.guarded or await self._known(request) is not None
        except (IdentityUnavailable, _Refused):
            return False

    async def _signed_in(self, secret: str) -> Caller | None:
        session = await self._sessions.run(self.access.sessions.held, secret)
        if session is None:
            return None
        if session.keystone_token is None or self.access.keystone is None:
            return session.caller
        caller = await self._ask_keystone(self.access.keystone, session.keystone_token)
        return caller if caller and caller.actor == session.actor else None

    async def _ask_keystone(self, keystone: Keystone, subject: str) -> Caller | None:
        """Whose token it is, as remembered, or as Keystone says."""
        answer = keystone.remembered(subject)
        if answer:
            return answer.caller
        threads = self._known_tokens if keystone.was_valid(subject) else self._strangers
        return await threads.run(keystone.ask, subject)

    def _is_for_programs(self, request: Request) -> bool:
        return first_step(request.scope["path"]) in self.programs


class _Threads:
    """A number of threads and of places to wait for one; beyond them requests are refused at once."""

    def __init__(self, threads: int, places: int) -> None:
        self._limiter = CapacityLimiter(threads)
        self._most = threads + places
        self._present = 0

    async def run(self, work: Callable[[str], T], argument: str) -> T:
        """Do it in one of the threads; _Refused at once where too many wait."""
        if self._present >= self._most:
            raise _Refused(OF_ERROR[Busy], "too many tokens and sessions wait to be checked; ask again in a moment")
        self._present += 1
        try:
            return await to_thread.run_sync(work, argument, limiter=self._limiter)
        finally:
            self._present -= 1


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
    """An IPv4 address, or the /64 of an IPv6 address: one person has all addresses of a /64 (RFC 6177)."""
    try:
        address = ip_address(client)
    except ValueError:  # a Unix socket has no peer address
        return client
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))


def _check_from_here(request: Request) -> None:
    """Without a token only requests from this machine to a loopback name are answered.

    A page in an administrator's browser can point a name of its own at 127.0.0.1 (DNS rebinding), and could then read
    and write a service that asks for no token. It cannot forge the Host header.
    """
    match = _HOST.match(request.headers.get("host", ""))
    client = request.client.host if request.client else "localhost"  # a Unix socket has no peer address
    if not match or not is_loopback(match["name"]) or not is_loopback(client):
        detail = "no token is configured, so only requests to a loopback name or address are answered"
        raise _Refused(OF_STATUS[421], detail)


def _check_sender(request: Request) -> None:
    """Where no token in a header says who asks, a page of another site must not ask through an administrator's browser.

    A browser sends a change without a body to any site without asking that site first, and to 127.0.0.1, too.
    """
    if request.method not in _READS and is_from_another_site(request):
        raise _Refused(OF_ERROR[CrossSite], "a page of another site sent this")


def _token_in(headers: Sequence[str]) -> str:
    """The token of the one `Authorization` header: Bearer, or the password of Basic, all that some clients can send."""
    kind, _, value = headers[0].strip().partition(" ") if len(headers) == 1 else ("", "", "")
    match kind.lower():
        case "bearer":
            return value.strip()
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).decode("ascii").partition(":")[2]
            except (binascii.Error, UnicodeDecodeError, ValueError):
                return ""
    return ""
