"""One question to the Cotenant service over HTTP, with one time-out for all of it."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MOST_BYTES = 32 * 2**20  # an answer about 1,000 hosts has under 1 MiB
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class NoAnswer(Exception):  # noqa: N818 - reads as what it says at the raise
    """The service could not be asked or did not answer as it should; the message says why, without secrets."""


@dataclass(frozen=True)
class Service:
    """Where the service is and how long a question may take (s)."""

    url: str
    token_file: str | None = None
    ca_file: str | None = None
    timeout_s: float = 2.0

    def ask(self, body: Mapping[str, Any]) -> Any:
        """The answer to `POST /v1/placements`; NoAnswer when it does not come in time or is not JSON.

        It is asked in a thread, because a socket's time-out counts for each step anew, and not for looking up a name.
        A thread that is no longer waited for soon ends by those time-outs.
        """
        outcome: list[Any] = []
        thread = threading.Thread(target=self._ask_into, args=(outcome, body), name="cotenant", daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if not outcome:
            raise NoAnswer(f"no answer within {self.timeout_s:g} s")
        if isinstance(outcome[0], BaseException):
            raise NoAnswer(str(outcome[0]) or type(outcome[0]).__name__) from outcome[0]
        return outcome[0]

    def _ask_into(self, outcome: list[Any], body: Mapping[str, Any]) -> None:
        try:
            outcome.append(self._post("/v1/placements", body))
        except Exception as error:  # noqa: BLE001 - raised again in the thread that waits
            outcome.append(error)

    def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        connection, base = self._connect()
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self._authorization()}
        try:
            connection.request("POST", base + path, json.dumps(body).encode(), headers)
            response = connection.getresponse()
            content = response.read(MOST_BYTES + 1)
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise NoAnswer(f"status {response.status}: {_title(content)}")
        if len(content) > MOST_BYTES:
            raise NoAnswer(f"an answer of more than {MOST_BYTES} bytes")
        return json.loads(content, parse_constant=_refuse)

    def _connect(self) -> tuple[http.client.HTTPConnection, str]:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NoAnswer("[cotenant] url is not http://HOST:PORT or https://HOST:PORT")
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            trusted = ssl.create_default_context(cafile=self.ca_file)
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self.timeout_s, context=trusted
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=self.timeout_s)
        return connection, parts.path.rstrip("/")

    def _authorization(self) -> dict[str, str]:
        """The header with the token, which is read each time, so that a new token counts at once."""
        if not self.token_file:
            return {}
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise NoAnswer("the token is not sent in the clear: use https in [cotenant] url")
        return {"Authorization": "Bearer " + _read_secret(self.token_file)}


def _read_secret(path: str) -> str:
    """The text of a file that only its owner may write and only owner and group may read."""
    with Path(path).open(encoding="ascii") as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        if mode & 0o026:
            raise NoAnswer(f"{path} is refused because others may read or change it (mode {mode:03o}); chmod 640 it")
        return file.read(MOST_BYTES).strip()


def _title(content: bytes) -> str:
    """The title of a problem document, short and printable."""
    try:
        text = str(json.loads(content)["title"])
    except (ValueError, KeyError, TypeError, RecursionError):
        text = "no problem document"
    return "".join(char if char.isprintable() else " " for char in text[:200])


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
