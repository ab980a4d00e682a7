"""Whether a page of this service or of another site made a browser send a request."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

from api.problems import CrossSite

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
