"""Signed calls to CloudStack's API, page by page; the signature by the developer's guide ("Signing API requests")."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

from advisor.inventories.calls import CalledServer, CallError, given_account, keeps_secrets

Row = Mapping[str, Any]
REFUSED = frozenset({401, 403, 432, 531})  # ApiErrorCode.java: 432 unsupported action, 531 account error
PAGE = 500  # the largest that `default.page.size` allows unless an operator has changed it
MOST_PAGES = 2000
TIMEOUT_S = 60.0
MOST_BYTES = 32 << 20  # a page of 500 VMs is about 2 MB
VALID_FOR = timedelta(minutes=10)  # how long a signed call can be sent again by an eavesdropper
INI = Path("~/.cloudstack.ini")  # as CloudStack's `cs` keeps it: a section per cloud with endpoint, key and secret


@dataclass(frozen=True, slots=True)
class Account:
    """Where the API is, and who asks. The secret never leaves: only what it signed does."""

    endpoint: str
    key: str = field(repr=False)
    secret: str = field(repr=False)


def account(cloud: str | None, environment: Mapping[str, str] = os.environ, ini: Path = INI) -> Account:
    """From CLOUDSTACK_ENDPOINT, _KEY and _SECRET, or a named section of ~/.cloudstack.ini; ValueError says what lacks.

    Plain http is taken to this machine only: a call on its way can be read and, for minutes, repeated.
    """
    fields = given_account(
        cloud, ("endpoint", "key", "secret"), variable="CLOUDSTACK_", environment=environment, ini=ini
    )
    if not keeps_secrets(fields["endpoint"]):
        raise ValueError("the endpoint is not an https:// address, and not on this machine")
    return Account(fields["endpoint"], fields["key"], fields["secret"])


def signature(parameters: Mapping[str, str], secret: str) -> str:
    """Base64 of the HMAC-SHA1 of the parameters: sorted by name, values encoded as java.net.URLEncoder does but with
    %20 for a blank, and all of it in small letters."""
    in_order = sorted(parameters.items(), key=lambda item: item[0].lower())
    text = "&".join(f"{name}={quote(value, safe='*').replace('~', '%7E')}" for name, value in in_order).lower()
    return base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()


def signed(parameters: Mapping[str, str], asking: Account, now: datetime) -> dict[str, str]:
    """The parameters of a call with key, time limit and signature."""
    whole = {
        **parameters,
        "response": "json",
        "apiKey": asking.key,
        "signatureVersion": "3",
        "expires": (now + VALID_FOR).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+0000"),
    }
    return {**whole, "signature": signature(whole, asking.secret)}


class Api:
    """Calls to one management server."""

    def __init__(self, asking: Account, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._asking = asking
        self._clock = clock
        self._server = CalledServer(asking.endpoint, None, None, most_bytes=MOST_BYTES, timeout_s=TIMEOUT_S)

    def rows(self, command: str, item: str, **parameters: str) -> list[Row]:
        """All pages of a listing; CallError says why there are none. An empty list has no key of its own."""
        return [row for page in self._pages(command, item, parameters) for row in page]

    def _pages(self, command: str, item: str, parameters: Mapping[str, str]) -> Iterator[list[Row]]:
        received = 0
        for page in range(1, MOST_PAGES + 1):
            answer = self._call({"command": command, "page": str(page), "pagesize": str(PAGE), **parameters})
            rows = answer.get(item, [])
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                raise CallError(f"{command} gave no list of {item}")
            count = answer.get("count", 0)
            if not isinstance(count, int):
                raise CallError(f"{command} gave no count")
            received += len(rows)
            yield rows
            if not rows or received >= count:
                return
        raise CallError(f"{command} gave more than {MOST_PAGES} pages")

    def _call(self, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        command = parameters["command"]
        data = signed(parameters, self._asking, self._clock())  # in the body, so that no access log shows the key
        status, _, body = self._server.answer(command, "", data)
        try:
            inner = json.loads(body)[f"{command.lower()}response"]
            code = int(inner.get("errorcode", status))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise CallError(f"{command}: HTTP {status} and no answer of CloudStack's") from None
        if code != 200:
            raise CallError(f"{command}: {code} {inner.get('errortext', '')}"[:200], refused=code in REFUSED)
        answer: Mapping[str, Any] = inner
        return answer
