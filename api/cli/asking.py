"""Questions to a running service in place of a file: `--server`, its token, and what went wrong in one sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from advisor.errors import AdvisorError, InvalidInput, NotFound
from profiler.agent.delivery import PushToken
from profiler.agent.http_client import HttpClient, HttpError, parse_url

SERVER = "COTENANT_SERVER"
_PAGE = 1000
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Ask this running service instead of a file.", show_default="COTENANT_SERVER, else the file"
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token for --server, mode 640 or less.",
        show_default="COTENANT_TOKEN, if set",
    ),
]


class ServiceFailed(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """The service that was asked does not answer, or not as Cotenant does; only commands raise it."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    client: HttpClient

    @classmethod
    def of(cls, url: str, token_file: Path | None, *, patience_s: float = 0.0) -> Service:
        """The service at a base URL; InvalidInput where URL or token cannot be used.

        An answer may take `patience_s` longer than most do.
        """
        try:
            parsed = parse_url(url)
            token = PushToken(token_file, parsed)
        except ValueError as error:
            raise InvalidInput(str(error), field="server") from error
        return cls(url, HttpClient(parsed, token, f"cotenant/{version('cotenant')}", patience_s=patience_s))

    def get(self, *steps: str) -> Any:
        """The JSON at a path; NotFound and InvalidInput as the service says, ServiceFailed for all else."""
        return self._ask("GET", "/".join(["", "v1", *(quote(step, safe="") for step in steps)]))

    def all_of(self, what: str) -> Iterator[Any]:
        """Each item of a list that the service gives in pages; errors as of `get`."""
        after: str | None = None
        while True:
            cursor = f"&cursor={quote(after, safe='')}" if after else ""
            page = self._ask("GET", f"/v1/{what}?limit={_PAGE}{cursor}")
            yield from page["items"]
            before, after = after, page["next_cursor"]
            if not after:
                return
            if after == before:
                raise ServiceFailed(f"{self.url} gives the same page of {what} again and again")

    def post(self, *steps: str, body: Any) -> Any:
        """The JSON answer to a JSON body."""
        return self._ask("POST", "/".join(["", "v1", *steps]), json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        try:
            answer = self.client.ask(method, path, body)
        except HttpError as error:
            raise ServiceFailed(f"{self.url} cannot be asked: {error}") from error
        finally:
            self.client.close()
        try:
            told = json.loads(answer.body)
            if 200 <= answer.status < 300:
                return told
            detail, field = str(told["detail"]), told.get("field")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ServiceFailed(f"{self.url} answers {answer.status} and is no Cotenant") from error
        if answer.status == 404:
            raise NotFound(detail)
        if answer.status in {400, 413, 422}:
            raise InvalidInput(detail, field=field)
        raise ServiceFailed(f"{self.url} refuses with {answer.status}: {detail}")


def asked_service(
    server: str | None, token_file: Path | None, file: Path | None, *, patience_s: float = 0.0
) -> Service | None:
    """The service to ask, None = the file; InvalidInput where both or neither were given."""
    url = server or (None if file is not None else os.environ.get(SERVER))
    if url is not None and file is not None:
        raise InvalidInput(f"{file} and --server are two clouds; give one", field="server")
    if url is None and file is None:
        raise InvalidInput(f"give an inventory file, or a service with --server or {SERVER}", field="inventory")
    if url is None and token_file is not None:
        raise InvalidInput("--token-file goes with --server", field="token_file")
    return None if url is None else Service.of(url, token_file, patience_s=patience_s)
