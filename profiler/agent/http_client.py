"""Posts to the Cotenant server: a checked URL, a token that is never shown, deadlines, and no redirects."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from profiler.observed import ProbeResult

PATH = "/v1/samples"
ANNOUNCE = "/v1/announcements"
PROBES = "/v1/probes"
PLAIN_VARIABLE = "COTENANT_TOKEN_OVER_HTTP"
_SILENCE_S = 10.0  # without a byte
_DEADLINE_S = 30.0  # for a whole exchange: a server may not stretch it by a byte every nine seconds
_LARGEST_ANSWER = 1 << 23  # ten thousand reasons are under 2 MB
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}\Z")


KINDS = ("connection", "name", "protocol", "refused", "timeout", "tls", "token")


class HttpError(Exception):
    """No answer, or none that makes sense; `kind` is one of few words, for counting."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """Where to push; made by `parse_url`."""

    secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{name}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The server's answer."""

    status: int
    body: bytes
    retry_after: str | None


def parse_url(url: str) -> ServerUrl:
    """Read the server's base URL, such as `https://cotenant.example:8443`; ValueError is one sentence."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url[:100]!r} is not a URL ({error})") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL holds a user or password; give a token with --token-file instead")
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f]", url):
        raise ValueError(f"{url[:100]!r} is not a URL such as https://cotenant.example:8443")
    if parts.query or parts.fragment:
        raise ValueError(f"{url[:100]!r} has a query or fragment; give the server's base URL")
    secure = parts.scheme == "https"
    path = parts.path.rstrip("/").removesuffix(PATH) + PATH
    return ServerUrl(secure, parts.hostname, port or (443 if secure else 80), path)


def check_token(text: str) -> str:
    """The token without its line end; ValueError where it cannot be a token (the message does not show it)."""
    token = text.strip()
    if not _TOKEN.match(token):
        raise ValueError("the token is empty or holds blanks, line ends or other than ASCII characters")
    return token


def may_carry_token(server: ServerUrl) -> bool:
    """Over plain HTTP a token may only go to this machine, unless PLAIN_VARIABLE says that no other machine can
    listen."""
    if server.secure or server.host == "localhost" or os.environ.get(PLAIN_VARIABLE) == "1":
        return True
    try:
        return ipaddress.ip_address(server.host).is_loopback
    except ValueError:
        return False


class ServerConnection(Protocol):
    """Carries JSON bodies to a server, directly (`HttpClient`) or by way of something that passes them on."""

    def post(self, body: bytes, to: str = PATH) -> HttpAnswer: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class HttpClient:
    """Keeps one connection open between posts; for one thread."""

    def __init__(
        self,
        server: ServerUrl,
        token: Callable[[], str | None],
        agent: str,
        deadline_s: float | None = None,
    ) -> None:
        """`token` is called before every post, so that a renewed token is used; a post ends after `deadline_s`."""
        self._server = server
        self._token = token
        self._agent = agent
        self._deadline_s = _DEADLINE_S if deadline_s is None else deadline_s
        self._ended = False
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, to: str = PATH, content: Mapping[str, str] | None = None) -> HttpAnswer:
        """Send a body, JSON unless `content` has other headers, to a path behind the URL; raises HttpError when there
        is no whole answer in time."""
        headers = {"User-Agent": self._agent, **(content or {"Content-Type": "application/json"})}
        try:
            token = self._token()
        except ValueError as error:
            raise HttpError("token", str(error)) from None
        if token:
            headers["Authorization"] = f"Bearer {token}"
        path = self._server.path.removesuffix(PATH) + to
        reused = self._connection is not None
        try:
            return self._exchange(path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            self.close()
            if not reused or self._ended:
                raise _explain(error) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise _explain(error) from None
        try:  # the server had closed an idle connection, which is no failure
            return self._exchange(path, body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise _explain(error) from None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Make a post under way fail at once, when the agent ends; the only method that another thread may call."""
        self._ended = True
        connection = self._connection
        if connection is not None:
            _cut(connection)

    def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        connection = self._connection = self._connection or self._connect()
        deadline = threading.Timer(self._deadline_s, _cut, (connection,))
        deadline.daemon = True
        deadline.start()
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            content = response.read(_LARGEST_ANSWER + 1)
        finally:
            deadline.cancel()
        if len(content) > _LARGEST_ANSWER or response.will_close:
            response.close()
            self.close()
        return HttpAnswer(response.status, content[:_LARGEST_ANSWER], response.getheader("Retry-After"))

    def _connect(self) -> http.client.HTTPConnection:
        silence_s = min(_SILENCE_S, self._deadline_s)
        if not self._server.secure:
            return http.client.HTTPConnection(self._server.host, self._server.port, timeout=silence_s)
        context = ssl.create_default_context()  # verifies name and chain; SSL_CERT_FILE names another authority
        return http.client.HTTPSConnection(self._server.host, self._server.port, timeout=silence_s, context=context)


def _cut(connection: http.client.HTTPConnection) -> None:
    with contextlib.suppress(OSError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _explain(error: Exception) -> HttpError:
    """One of KINDS, and a sentence."""
    text = str(error) or type(error).__name__
    if isinstance(error, TimeoutError):
        return HttpError("timeout", f"no answer in time ({text})")
    if isinstance(error, socket.gaierror):
        return HttpError("name", f"the server's name cannot be resolved ({error.strerror})")
    if isinstance(error, ssl.SSLError):
        return HttpError("tls", f"the server's certificate or TLS does not hold ({text})")
    if isinstance(error, ConnectionRefusedError):
        return HttpError("refused", "nothing listens there")
    if isinstance(error, http.client.HTTPException) and not isinstance(error, ConnectionError):
        return HttpError("protocol", f"what answers does not speak HTTP ({type(error).__name__})")
    return HttpError("connection", f"the connection broke ({text})")


# Sends one result of a probe to the server. Nothing is spooled: a person waits and can try again.


class ProbePushError(Exception):
    """The server did not take a result; one sentence that says why and what to do."""


def push_result(
    server: ServerConnection, result: ProbeResult, host: str, instance: str | None = None, peer: str | None = None
) -> None:
    """Send a result of a host, of an `instance` on it, or of the way to a `peer`; ProbePushError unless it is kept."""
    try:
        answer = server.post(json.dumps({"probes": [_body(result, host, instance, peer)]}).encode(), PROBES)
    except HttpError as error:
        raise ProbePushError(f"the result was not sent: {error}") from None
    try:
        reply: Any = json.loads(answer.body)
        if answer.status != 200:
            raise ProbePushError(f"the server refused the result: {answer.status}, {str(reply['detail'])[:500]}")
        if reply["dropped"]:
            raise ProbePushError(f"the server did not take the result: {str(reply['reasons'][0]['reason'])[:500]}")
        if reply["older"]:
            raise ProbePushError("the server has a newer result of this probe; check the clock of this machine")
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ProbePushError(
            f"the answer is not that of a Cotenant server of this version (status {answer.status})"
        ) from None


def _body(result: ProbeResult, host: str, instance: str | None, peer: str | None) -> dict[str, Any]:
    time = result.circumstances["taken_at"]
    return {"host": host, "instance": instance, "peer": peer, "time": time, **result.document()}
