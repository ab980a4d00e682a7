"""The cookie of a session: how it is set, read and taken back; it counts for pages and for nothing else."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from api.auth.listening import is_loopback

# A browser takes a name that begins so only with Secure, from this host alone and for every path (RFC 6265bis, 4.1.3).
_SECURE = "__Host-cotenant"
_PLAIN = "cotenant"


def read(request: Request) -> str | None:
    """The secret that the browser holds, None = none.

    Over TLS only the name counts that a browser takes from this host alone: a neighbouring host of the same domain, or
    whoever can write into its plain HTTP, could have set the other one.
    """
    secure = request.cookies.get(_SECURE)
    return secure or (None if _is_over_tls(request) else request.cookies.get(_PLAIN))


def _is_over_tls(request: Request) -> bool:
    """By the connection, or a trusted proxy; else by what the browser adds on TLS and on its own machine only.

    https://www.w3.org/TR/fetch-metadata, section 2: Sec-Fetch-* go to potentially trustworthy URLs alone.
    """
    name = request.url.hostname or ""
    return request.url.scheme == "https" or ("sec-fetch-site" in request.headers and not is_loopback(name))


def give(response: Response, secret: str, lasts_s: float, *, secure: bool) -> None:
    """Let the browser hold a secret for so long; no script sees it, and no other site can have it sent."""
    name = _SECURE if secure else _PLAIN
    response.set_cookie(name, secret, max_age=int(lasts_s), path="/", secure=secure, httponly=True, samesite="strict")


def take_back(response: Response) -> None:
    """Let the browser forget it, whichever way it came."""
    for name, secure in ((_SECURE, True), (_PLAIN, False)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
