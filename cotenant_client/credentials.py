"""Where the service is and who asks: a checked URL, and a token that goes only over a private connection."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Generator
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from cotenant_client.errors import Unauthorised

TOKEN_VARIABLE = "COTENANT_TOKEN"  # noqa: S105 - the name of the variable, not a token
PLAIN_VARIABLE = "COTENANT_TOKEN_OVER_HTTP"
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}\Z")
_MOST_BYTES = 2**16
_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o004  # the group counts as others: whoever writes the token chooses it


def base_url(url: str) -> httpx.URL:
    """The service's base URL, such as `https://cotenant.example:8443`; ValueError is one sentence."""
    try:
        parts = urlsplit(url)
        parsed = httpx.URL(url.rstrip("/"))
    except (ValueError, httpx.InvalidURL) as error:
        raise ValueError(f"{url[:100]!r} is no URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL holds a user or password; give a token instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError(f"{url[:100]!r} is no URL such as https://cotenant.example:8443")
    if parts.query or parts.fragment:
        raise ValueError(f"{url[:100]!r} has a query or fragment; give the base URL")
    return parsed


class TokenAuth(httpx.Auth):
    """The bearer token: as given, from a file that is read before every request so that it can be renewed, or else
    from COTENANT_TOKEN. It is put into the request here, so that no other frame and no error holds it."""

    def __init__(self, url: httpx.URL, token: str | None, file: Path | str | None) -> None:
        """Read it once. ValueError is one sentence: it is no token, or it must not be sent to this URL."""
        if token is not None and file is not None:
            raise ValueError("give a token or a file that holds one, not both")
        self._url = url
        self._file = None if file is None else Path(file)
        self._given = os.environ.get(TOKEN_VARIABLE) or None if token is None and file is None else token
        if self._token() is not None and not _may_carry_token(url):
            raise ValueError(
                f"the token is not sent to {url}: use https, a server on this machine, or {PLAIN_VARIABLE}=1 where "
                "no other machine can listen"
            )

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Put the token into the request; Unauthorised where its file is no longer what it was."""
        try:
            token = self._token()
        except ValueError as error:
            raise Unauthorised(f"{self._url} cannot be asked: {error}") from None
        if token is not None:
            request.headers["Authorization"] = f"Bearer {token}"
        yield request

    def _token(self) -> str | None:
        token = self._given
        if self._file is not None:
            try:
                token = _private_text(self._file)
            except OSError as error:
                raise ValueError(f"token file {self._file} cannot be read: {error.strerror}") from None
        if token is not None and not _TOKEN.match(token := token.strip()):
            raise ValueError("the token is empty or holds blanks, line ends or other than ASCII characters")
        return token


def _private_text(path: Path) -> str:
    """The text of a file that others can neither change nor read; the group may read."""
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if what := "change" if mode & _OTHERS_WRITE else "read" if mode & _OTHERS_READ else "":
            raise ValueError(
                f"token file {path} is refused because others may {what} it (mode {mode & 0o777:03o}); chmod 640 it"
            )
        return file.read(_MOST_BYTES).decode("ascii", errors="replace")


def _may_carry_token(url: httpx.URL) -> bool:
    """Over plain HTTP a token may only go to this machine, unless PLAIN_VARIABLE says that no other can listen."""
    if url.scheme == "https" or url.host == "localhost" or os.environ.get(PLAIN_VARIABLE) == "1":
        return True
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False
