"""The cookie of a session: how it is set, read and deleted. It counts for pages only."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from api.auth.listening import is_loopback

# A browser accepts a name with this prefix only with Secure, from this host itself and for every path (RFC 6265bis,
# 4.1.3).
_SECURE = "__Host-cotenant"
_PLAIN = "cotenant"


def read(request: Request) -> str | None:
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


def give(response: Response, secret: str, lasts_s: float, *, secure: bool) -> None:
    """Let the browser hold a secret for `lasts_s` seconds; no script can read it, no other site can have it sent."""
    name = _SECURE if secure else _PLAIN
    response.set_cookie(name, secret, max_age=int(lasts_s), path="/", secure=secure, httponly=True, samesite="strict")


def take_back(response: Response) -> None:
    """Let the browser forget the secret, under either name."""
    for name, secure in ((_SECURE, True), (_PLAIN, False)):
        response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="strict")
