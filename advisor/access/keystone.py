"""Keystone: whose a token is that another service gave out, and which scope its roles have here."""

from __future__ import annotations

import hashlib
import re
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from advisor.domain import TOKEN_SCOPES, Caller, TokenScope
from advisor.errors import IdentityUnavailable, InvalidInput

CACHE_S = 60.0  # the longest that an answer is used: a token revoked in Keystone ends here within it
REFUSED_S = 10.0  # the longest that a refusal is used
MOST_REMEMBERED = 4096
TIMEOUT_S = 5.0
_TOKEN = re.compile(r"[A-Za-z0-9_=.:-]{16,4096}")  # Fernet, JWS and UUID tokens; nothing that could break a header
_USER = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SCOPES = tuple(scope for scope in TOKEN_SCOPES if scope != "act")  # which is for agents alone


@dataclass(frozen=True, slots=True)
class TokenValidation:
    """What Keystone said of a token, for as long as `until` (monotonic seconds); no caller = not valid here."""

    caller: Caller | None
    until: float


class Keystone:
    """Asks an Identity service (v3) about tokens with a credential of our own; thread-safe.

    The credential comes from `clouds.yaml` or `OS_*` variables, as openstacksdk finds them, and must be allowed
    `identity:validate_token`. Roles count in the project of that credential and in the system: in a project of their
    own, tenants commonly are members. `monotonic` and `clock` are for tests.
    """

    def __init__(
        self,
        url: str,
        roles: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = _checked_url(url)
        self._scopes = _read_roles(roles)
        self._clock = clock
        self._monotonic = monotonic
        self._session: Any = None
        self._connecting = threading.Lock()
        self._remembering = threading.Lock()
        # Apart, so that a flood of forged tokens cannot push out a valid one.
        self._valid: OrderedDict[bytes, TokenValidation] = OrderedDict()
        self._refused: OrderedDict[bytes, TokenValidation] = OrderedDict()

    def remembered(self, token: str) -> TokenValidation | None:
        """What was said of it of late; None = ask."""
        key = _key(token)
        answer = self._valid.get(key) or self._refused.get(key)
        return answer if answer is not None and self._monotonic() < answer.until else None

    def was_valid(self, token: str) -> bool:
        """Whether the last answer about it, which may be over, granted access."""
        return _key(token) in self._valid

    def ask(self, token: str) -> Caller | None:
        """Whose token it is, None = not valid, or without a role that counts here; blocks.

        IdentityUnavailable when Keystone does not answer, or not our credential: no access is granted by it then.
        """
        if not _TOKEN.fullmatch(token):
            return None
        try:
            described = self._describe(token)
            caller, left_s = (None, REFUSED_S) if described is None else self._judge(described)
        except IdentityUnavailable:
            raise
        except Exception as error:  # over half a credential keystoneauth raises Exception itself
            what = f"Keystone at {self._url} cannot be asked about a token, or answers what is none"
            advice = "see that it runs, and that OS_CLOUD or OS_USERNAME and so on name a credential"
            raise IdentityUnavailable(f"{what} ({type(error).__name__}); {advice}") from error
        until = self._monotonic() + min(left_s, CACHE_S if caller else REFUSED_S)
        self._remember(_key(token), TokenValidation(caller, until))
        return caller

    def _remember(self, key: bytes, answer: TokenValidation) -> None:
        remembered, opposite = (self._valid, self._refused) if answer.caller else (self._refused, self._valid)
        with self._remembering:
            opposite.pop(key, None)
            remembered[key] = answer
            remembered.move_to_end(key)
            while len(remembered) > MOST_REMEMBERED:
                remembered.popitem(last=False)

    def _describe(self, token: str) -> Mapping[str, Any] | None:
        """GET /v3/auth/tokens (Identity API v3, "Validate and show information for token"); None = there is none."""
        answer = self._connected().get(
            f"{self._url}/auth/tokens?nocatalog",
            headers={"X-Subject-Token": token, "Accept": "application/json"},
            authenticated=True,
            raise_exc=False,
            redirect=False,
        )
        if answer.status_code == 404:
            return None
        if answer.status_code != 200:
            raise IdentityUnavailable(f"Keystone at {self._url} answers {answer.status_code} to a question for a token")
        described: Mapping[str, Any] = answer.json()["token"]
        return dict(described)

    def _judge(self, described: Mapping[str, Any]) -> tuple[Caller | None, float]:
        """The caller and how many seconds the token has left."""
        left_s = (datetime.fromisoformat(described["expires_at"]) - self._clock()).total_seconds()
        project = described.get("project")
        here = bool(described.get("system")) or (project is not None and project["id"] == self._project())
        roles = [role["name"].lower() for role in described.get("roles", ())] if here and left_s > 0 else []
        scopes = [self._scopes[role] for role in roles if role in self._scopes]
        user = described["user"]["id"]
        if not scopes or not _USER.fullmatch(user):
            return None, left_s
        return Caller(f"keystone:{user}", max(scopes, key=TOKEN_SCOPES.index)), left_s

    def _project(self) -> str | None:
        """The project that our own credential is for, None when it is for the system."""
        project_id: str | None = self._connected().get_project_id()
        return project_id

    def _connected(self) -> Any:
        with self._connecting:
            if self._session is None:
                self._session = _open(self._url)
            return self._session


def _open(url: str) -> Any:
    """A keystoneauth session; it renews the token of our credential by itself."""
    from advisor.inventories.calls import read_settings  # requests takes its time to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openstacksdk warns of what it will no longer do itself
        try:
            settings = read_settings()
        except ValueError as error:
            raise IdentityUnavailable(str(error)) from error
        session = settings.get_one(auth={"auth_url": url}).get_session()
    session.timeout = TIMEOUT_S
    return session


def _checked_url(url: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._/-]*)?", url):
        message = "keystone_url is not the URL of an Identity endpoint, such as https://keystone.example.org:5000/v3"
        raise InvalidInput(message, field="keystone_url")
    return url.rstrip("/") if url.rstrip("/").endswith("/v3") else f"{url.rstrip('/')}/v3"


def _read_roles(text: str) -> Mapping[str, TokenScope]:
    """`admin=admin,member=write` as a mapping; names of roles are compared without case, as Keystone does."""
    scopes: dict[str, TokenScope] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        role, _, name = part.partition("=")
        scope = next((scope for scope in _SCOPES if scope == name.strip()), None)
        if not role.strip() or scope is None:
            message = f"keystone_roles: {part[:80]!r} is not ROLE=SCOPE with a scope of {', '.join(_SCOPES)}"
            raise InvalidInput(message, field="keystone_roles")
        scopes[role.strip().lower()] = scope
    return scopes


def _key(token: str) -> bytes:
    """Tokens are kept as digests, so that no dump of this memory holds one."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
