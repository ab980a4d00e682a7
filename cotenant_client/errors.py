"""What can go wrong: one class for each kind, made from the service's problem documents (RFC 9457)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

import httpx


class CotenantError(Exception):
    """The question was not answered; the message says why, in one sentence.

    `status` is the HTTP status, None where nothing was answered; `problem` the service's problem document, empty where
    what answered sent none.
    """

    def __init__(self, message: str, *, status: int | None = None, problem: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.problem: Mapping[str, Any] = problem or {}

    @property
    def code(self) -> str:
        """The stable code of what is wrong, see docs/reference/errors.md; empty where the service did not say it."""
        return str(self.problem.get("code") or "")

    @property
    def field(self) -> str | None:
        """The part of the input that is wrong, where there is one."""
        field = self.problem.get("field")
        return None if field is None else str(field)

    @property
    def request_id(self) -> str:
        """By which the log of the service names the request."""
        return str(self.problem.get("request_id") or "")


class Refused(CotenantError):  # noqa: N818 - the names are those of the service's own errors
    """The service says no, and would again."""


class InvalidInput(Refused):
    """Something in the question is wrong; `field` names it."""


class Unauthorised(Refused):
    """There is no token that the service takes, or its scope is too small."""


class NotFound(Refused):
    """What was asked about is not there."""


class Conflict(Refused):
    """It does not go with what is there now, such as another generation of the inventory."""


class BadAnswer(CotenantError):  # noqa: N818
    """Something answers that is no Cotenant."""


class Unavailable(CotenantError):  # noqa: N818
    """No answer now; later there may be one.

    `kind` says what failed: connection, name, protocol, refused, timeout, tls or closed (the client was closed), or
    answer where the service or a proxy itself says so. `sent` is False where the service has certainly done nothing.
    `retry_after_s` is how many seconds must pass first by the last answer, 0 where it does not say.
    """

    retry_after_s: float = 0.0

    def __init__(
        self,
        message: str,
        *,
        kind: str = "answer",
        sent: bool = True,
        status: int | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, status=status, problem=problem)
        self.kind = kind
        self.sent = sent


_OF_STATUS: Mapping[int, type[Refused]] = {
    400: InvalidInput,
    401: Unauthorised,
    403: Unauthorised,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: InvalidInput,
    415: InvalidInput,
    422: InvalidInput,
}


def of_answer(url: str, status: int, document: Any) -> CotenantError:
    """The error that an answer is; `document` is its JSON, None where it has none."""
    if not isinstance(document, dict) or "detail" not in document:
        if _later(status):  # a proxy's own, while the service behind it is away
            return Unavailable(f"{url} answers {status} and does not say why", sent=status != 429, status=status)
        return BadAnswer(f"{url} answers {status} and is no Cotenant", status=status)
    if _later(status):
        return Unavailable(str(document["detail"]), sent=status != 429, status=status, problem=document)
    return _OF_STATUS.get(status, Refused)(str(document["detail"]), status=status, problem=document)


def _later(status: int) -> bool:
    return status == 429 or status >= 500


def of_transport(url: str, error: Exception) -> Unavailable:
    """The error where no whole answer came, by what httpx raised."""
    causes = list(_causes(error))
    text = str(error) or type(error).__name__
    kind, words = "connection", f"the connection broke ({text})"
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        kind, words = "timeout", f"no answer in time ({text})"
    elif name := next((cause for cause in causes if isinstance(cause, socket.gaierror)), None):
        kind, words = "name", f"the server's name cannot be resolved ({name.strerror})"
    elif any(isinstance(cause, ssl.SSLError) for cause in causes):
        kind, words = "tls", f"the server's certificate or TLS does not hold ({text})"
    elif any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        kind, words = "refused", "nothing listens there"
    elif isinstance(error, httpx.ProtocolError) and "disconnected" not in text and "closed" not in text:
        kind, words = "protocol", f"what answers speaks no HTTP ({text})"
    sent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return Unavailable(f"{url} cannot be asked: {words}", kind=kind, sent=sent)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that it was raised from; with anyio one of several addresses may have failed by each."""
    while error is not None:
        yield error
        for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
            yield from _causes(inner)
        error = error.__cause__ or error.__context__
