"""The gate: finds out who sends a request, and what that caller may do, before its path or body is looked at."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import math
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from ipaddress import IPv6Network, ip_address
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.domain import TOKEN_SCOPES, Caller, TokenScope
from advisor.errors import AdvisorError, IdentityUnavailable, InvalidInput, StorageUnavailable
from advisor.service import AccessService, Keystone, acting, form_key
from api.html.render import to_sign_in, wants_page
from api.http.envelope import RateLimit
from api.problems import OF_ERROR, OF_STATUS, Busy, CrossSite, Kind, kind_of, respond

# Whether a page of this service or of another site made a browser send a request.

_NOT_OURS = "the form was not sent from a page of this service"


def require_own_page(request: Request) -> None:
    """CrossSite unless the browser says that one of our own pages sent this; a request that says nothing is refused.

    The browser itself sets `Sec-Fetch-Site` (Fetch Metadata). It leaves it out on plain HTTP to another machine; then
    `Origin` must name the host that was asked (RFC 6454). Scripts can set neither.
    """
    site = request.headers.get("sec-fetch-site")
    is_ours = _names_us(request) if site is None else site == "same-origin"
    if not is_ours:
        raise CrossSite(_NOT_OURS)


def is_from_another_site(request: Request) -> bool:
    """Whether a browser says that a page of another site sent this; programs send no such header."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site not in {"same-origin", "none"}
    return "origin" in request.headers and not _names_us(request)


def _names_us(request: Request) -> bool:
    """Whether `Origin` is the host that was asked."""
    try:
        origin = urlsplit(request.headers.get("origin", ""))
    except ValueError:  # a bracket that nothing closes
        return False
    return origin.scheme in {"http", "https"} and origin.netloc.lower() == request.headers.get("host", "").lower()


def came_by_tls(request: Request) -> bool:
    """Whether the browser speaks TLS to this service, or to the proxy before it, by the origin of its own page.

    This needs no word of a proxy, and a client that lies weakens only its own cookie.
    """
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


# What a caller may do: read includes no other scope, write includes read, admin includes both; act stands apart.

# What a route needs: open = no token; agent = write, or a token for the agent of one host, which counts nowhere else.
Needs = TokenScope | Literal["open", "agent"]


def require(request: Request, needs: TokenScope | Literal["agent"]) -> None:
    """HTTPException 403 unless the caller has this scope; a request that no gate has passed has none."""
    caller: Caller | None = getattr(request.state, "caller", None)
    scope: TokenScope = "write" if needs == "agent" else needs
    if scope == "act" and (caller is None or caller.scope != "act" or not caller.host):
        raise HTTPException(403, "this needs a token of scope act, which is for the agent of one host")
    if scope == "act":
        return
    if caller is not None and caller.scope == "act":
        raise HTTPException(403, f"this token is for orders to the agent of host {caller.host}, and for nothing else")
    if caller is not None and caller.host and needs != "agent":
        raise HTTPException(
            403,
            f"this token is for the agent of host {caller.host}; it may only send samples, announcements and probes",
        )
    if caller is None or TOKEN_SCOPES.index(caller.scope) < TOKEN_SCOPES.index(scope):
        has = caller.scope if caller else "none"
        raise HTTPException(403, f"this needs a token of scope {scope}, and yours is of scope {has}")


class Guarded:
    """A route that checks the caller's scope before a byte of the body is read."""

    def __init__(self, app: ASGIApp, scope: TokenScope | Literal["agent"]) -> None:
        self.app = app
        self.scope = scope

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        require(Request(scope), self.scope)
        await self.app(scope, receive, send)


# Where the service listens: how addresses are read, and that a service without a token listens on loopback only.


@lru_cache(1024)
def is_loopback(name: str) -> bool:
    """Whether a host name or address always means this machine; asked of every request."""
    name = name.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `127.0.0.1:8080` or `[::1]:8080` into host and port; InvalidInput says what is wrong with it."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(\d{1,5})", listen)
    if not match or int(match[2]) > 65535:
        raise InvalidInput(f"{listen!r} is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080", field="listen")
    return match[1].strip("[]"), int(match[2])


def require_loopback(host: str) -> None:
    """InvalidInput for an address where others could reach a service without a token; it says what to do."""
    if not is_loopback(host):
        raise InvalidInput(
            f"refusing to listen on {host}: no token is configured, so any client that reaches it could change "
            "the inventory; make one with `cotenant token create`, or listen on 127.0.0.1 or [::1]",
            field="listen",
        )


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to that address; OSError when it is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay, 40 ms for every answer, off only for sockets that name TCP as their protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


# The cookie of a session: how it is set, read and deleted. It counts for pages only.

# A browser accepts a name with this prefix only with Secure, from this host itself and for every path (RFC 6265bis,
# 4.1.3).
_SECURE = "__Host-cotenant"
_PLAIN = "cotenant"


def read_cookie(request: Request) -> str | None:
    """The secret that the browser holds; None = none.

    Over TLS only the secure name counts, which a browser accepts from this host alone. The plain one could come from
    another host of the same domain, or from a party that changes its plain HTTP.
    """
    secure = request.cookies.get(_SECURE)
    return secure or (None if _is_over_tls(request) else request.cookies.get(_PLAIN))


def _is_over_tls(request: Request) -> bool:
    """Whether the browser speaks TLS: by the connection or a trusted proxy, else by headers of the browser.

    Browsers send Sec-Fetch-* over TLS and to their own machine only (https://www.w3.org/TR/fetch-metadata, section 2:
    to potentially trustworthy URLs).
    """
    name = request.url.hostname or ""
    return request.url.scheme == "https" or ("sec-fetch-site" in request.headers and not is_loopback(name))


def give_cookie(response: Response, secret: str, lasts_s: float, *, secure: bool) -> None:
    """Let the browser hold a secret for `lasts_s` seconds; no script can read it, no other site can have it sent."""
    name = _SECURE if secure else _PLAIN
    response.set_cookie(name, secret, max_age=int(lasts_s), path="/", secure=secure, httponly=True, samesite="strict")


def take_cookie_back(response: Response) -> None:
    """Let the browser forget the secret, under either name."""
    for name, secure in ((_SECURE, True), (_PLAIN, False)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")


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
        """The caller; None = any, on an open path, where nothing is waited for."""
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
        authorization, secret = headers.getlist("authorization"), read_cookie(request)
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
