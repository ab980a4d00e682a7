"""Tokens, and sessions of browsers that signed in with one: made, listed, revoked, and distinguished from forgeries."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cryptography.fernet import Fernet
from sqlalchemy import Connection

from advisor.access.audit import Audit, acting
from advisor.access.keystone import Keystone
from advisor.domain import TOKEN_SCOPES, Caller, Token, TokenScope
from advisor.errors import InvalidInput, NotFound, StorageLocked, StorageUnavailable
from advisor.store import callers
from advisor.store.callers import Session
from advisor.store.transactions import HASTY_S, Transaction, Write
from profiler.observed import check_id

CACHE_S = 1.0  # for so long a process goes by what it read of the database: a revoked token ends everywhere within it
MAX_NAME = 255
LONGEST = timedelta(days=3650)
_FORM = re.compile(r"cot_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_FORGED = ""  # no token has this id
log = logging.getLogger("cotenant.tokens")


@dataclass(frozen=True, slots=True)
class _Known:
    """What the database said at a time: tokens that are not revoked with their digests; whether there ever was any."""

    at: float
    live: Mapping[str, tuple[Token, str]]
    any: bool


class Tokens:
    """The tokens of one service. Thread-safe.

    Rows are never deleted: a service that has had a token asks for one ever after, for the last one to expire or be
    revoked must not open it to every client. `monotonic` (seconds) is for tests.
    """

    def __init__(
        self,
        read: Transaction,
        write: Write,
        clock: Callable[[], datetime],
        audit: Audit,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._write = write
        self._clock = clock
        self._audit = audit
        self._monotonic = monotonic
        self._loading = threading.Lock()
        self._known: _Known | None = None
        self._over: set[str] = set()  # ids of those that were seen to have expired, whatever the clock says later
        self._no_digest = secrets.token_hex(32)  # what a secret is compared with where the id is unknown

    def create(self, name: str, scope: TokenScope, *, lasts: timedelta | None, host: str = "") -> tuple[Token, str]:
        """A new token and its text, which is not stored; `lasts` None = until it is revoked.

        With a `host` it is for the agent there, and its scope is write, or act to change settings.
        """
        _check(name, scope, lasts, host)
        now = self._clock()
        token = Token(secrets.token_hex(8), name, scope, now, now + lasts if lasts else None, host=host)
        secret = secrets.token_urlsafe(32)
        with self._write() as connection:
            self._add(connection, token, secret)
        self._known = None
        return token, f"cot_{token.id}_{secret}"

    def accept(self, text: str, name: str, scope: TokenScope) -> Token:
        """Let in whoever has this token, which was made elsewhere, such as by who made the Secret that a client reads.

        Accepting it again changes nothing. InvalidInput when it is no token, or when its id is another's or revoked.
        """
        _check(name, scope, None, "")
        match = _FORM.fullmatch(text)
        if not match:
            raise InvalidInput("a token is cot_, 16 digits of 0-9 and a-f, _ and 43 of A-Z, a-z, 0-9, - and _")
        token, secret = Token(match[1], name, scope, self._clock(), None), match[2]
        with self._write() as connection:
            accepted = {stored.id: (stored, digest) for stored, digest in callers.load_all(connection)}.get(token.id)
            if accepted is None:
                self._add(connection, token, secret)
            elif accepted[0].revoked_at or not hmac.compare_digest(accepted[1], _digest(secret)):
                raise InvalidInput(f"token {token.id} was revoked, or its id is another's: make one with another id")
        self._known = None
        return accepted[0] if accepted else token

    def _add(self, connection: Connection, token: Token, secret: str) -> None:
        callers.add(connection, token, _digest(secret))
        expires = token.expires_at.isoformat() if token.expires_at else None
        detail = {"name": token.name, "scope": token.scope, "expires_at": expires}
        self._audit.record(
            connection, "token.create", [token.id], **detail, **({"host": token.host} if token.host else {})
        )

    def listing(self) -> tuple[Token, ...]:
        """Every token there ever was, newest first."""
        with self._read() as connection:
            return tuple(token for token, _ in callers.load_all(connection))

    def revoke(self, token_id: str) -> Token:
        """End a token; one that is revoked already stays as it is. NotFound when there is none of this id."""
        now = self._clock()
        with self._write() as connection:
            token = callers.get(connection, token_id)
            if token is None:
                raise NotFound(f"there is no token {token_id}")
            if token.revoked_at is None:
                callers.revoke(connection, token_id, now)
                self._audit.record(connection, "token.revoke", [token_id], name=token.name)
                token = replace(token, revoked_at=now)
        with self._loading:  # whoever read the tokens before that has noted them by then, and they are forgotten, too
            self._known = None
        return token

    @property
    def fresh(self) -> bool:
        """Whether what was read is young enough to go by, so that `refresh` would not read."""
        known = self._known
        return known is not None and self._monotonic() - known.at < CACHE_S

    def refresh(self) -> None:
        """Read the tokens again unless that was done just now; StorageUnavailable, and no access is granted by an old
        state."""
        with self._loading:
            if self.fresh:
                return
            former, at = self._known, self._monotonic()
            with self._read() as connection:
                rows = callers.load_all(connection)
            live = {token.id: (token, digest) for token, digest in rows if token.revoked_at is None}
            self._known = _Known(at, live, bool(rows))
            self._note_expired([token for token, _ in live.values() if self._is_over(token)])
        if rows and former is not None and not former.any:
            log.info("there is a token now: requests without one are refused from now on")

    def _note_expired(self, over: Sequence[Token]) -> None:
        """Store it, so that none is valid again once the clock was set back; else the next time."""
        if not over:
            return
        with suppress(StorageUnavailable), self._write(wait_s=HASTY_S) as connection:
            callers.expire(connection, [token.id for token in over])

    @property
    def read_once(self) -> bool:
        """Whether there is anything to go by, however old."""
        return self._known is not None

    @property
    def required(self) -> bool:
        """Whether there ever was a token, so that who has none is refused; `refresh` comes first."""
        known = self._known
        return known is None or known.any

    def caller(self, text: str) -> Caller | None:
        """Who has this token, None when it is wrong, expired or revoked; `refresh` comes first.

        An unknown id costs the same work as a wrong secret. A secret is 256 random bits, too many to go through,
        so that one SHA-256 hides it as well as a slow password hash would, and costs no request any time.
        """
        match = _FORM.fullmatch(text)
        token_id, secret = match.groups() if match else (_FORGED, text)
        known = self._known
        token, digest = (known.live if known else {}).get(token_id, (None, self._no_digest))
        right = hmac.compare_digest(_digest(secret), digest)
        return None if not right or token is None or self._is_over(token) else _caller(token)

    def holder(self, actor: str) -> Caller | None:
        """Who has the token of this `actor`, None when it has expired or was revoked; `refresh` comes first."""
        token = self._live(actor)
        return None if token is None or self._is_over(token) else _caller(token)

    def expires_at(self, actor: str) -> datetime | None:
        """When the token of this `actor` expires, None = never."""
        token = self._live(actor)
        return token.expires_at if token else None

    def _live(self, actor: str) -> Token | None:
        known = self._known
        token, _ = (known.live if known else {}).get(actor.removeprefix("token:"), (None, ""))
        return token

    def _is_over(self, token: Token) -> bool:
        if token.expires_at is not None and token.expires_at <= self._clock():
            self._over.add(token.id)
        return token.id in self._over


def _caller(token: Token) -> Caller:
    return Caller(f"token:{token.id}", token.scope, token.name, token.host)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _check(name: str, scope: str, lasts: timedelta | None, host: str) -> None:
    if host and scope not in ("act", "write"):
        raise InvalidInput("a token for the agent of one host has scope write or act", field="scope")
    if scope == "act" and not host:
        raise InvalidInput("a token of scope act is for the agent of one host: name it with --host", field="host")
    try:
        check_id(host or "any", "host")
    except ValueError as error:
        raise InvalidInput(str(error), field="host") from error
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInput(f"the name of a token is 1-{MAX_NAME} printable characters", field="name")
    if scope not in TOKEN_SCOPES:
        raise InvalidInput(f"scope {scope!r} is none of {', '.join(TOKEN_SCOPES)}", field="scope")
    if lasts is not None and not timedelta(0) < lasts <= LONGEST:
        raise InvalidInput(f"a token lasts up to {LONGEST.days} days, or never expires", field="expires")


# Sessions: who signed in to the pages with a token, for as long as it is good and no longer than half a day.

LASTS = timedelta(hours=12)
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that has just begun: its secret, which is not stored, and how many seconds it may last."""

    secret: str
    caller: Caller
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Held:
    """A session that has not ended: who began it, and who that is now by a token of ours, or else Keystone's token.

    Keystone has to be asked whose its token is, which may take long: callers do so in a thread.
    """

    actor: str
    caller: Caller | None
    keystone_token: str | None


class Sessions:
    """The sessions of one service; thread-safe, and shared by all that use its database.

    What is stored grants no access: the digest of the secret (256 random bits, as with tokens), and a token of
    Keystone's encrypted with the secret. What a session may do is what its token may do at that moment.
    """

    def __init__(
        self,
        read: Transaction,
        write: Write,
        clock: Callable[[], datetime],
        audit: Audit,
        tokens: Tokens,
        keystone: Keystone | None,
    ) -> None:
        self._read = read
        self._write = write
        self._clock = clock
        self._audit = audit
        self._tokens = tokens
        self._keystone = keystone

    def begin(self, token: str, *, former: str | None = None, request_id: str = "", client: str = "") -> Begun | None:
        """Sign in; None when the token is none, which the audit log keeps with the address `client`.

        Always a new secret; the session of `former`, which the browser held before, ends with it. IdentityUnavailable
        when Keystone cannot be asked.
        """
        now = self._clock()
        self._tokens.refresh()
        secret, sealed, until = secrets.token_urlsafe(32), None, now + LASTS
        caller = self._tokens.caller(token)
        if caller is not None:
            until = min(until, self._tokens.expires_at(caller.actor) or until)
        elif self._keystone is not None:
            caller = self._keystone.ask(token)
            sealed = _lock(secret).encrypt(token.encode()).decode() if caller else None
        with self._write() as connection, acting(caller.actor if caller else "anybody", request_id):
            callers.purge_sessions(connection, now)
            if caller is None:
                self._audit.record(connection, "session.refuse", client=client)
                return None
            ended = None if former is None else callers.end_session(connection, _digest(former))
            if ended is not None:
                with acting(ended, request_id):
                    self._audit.record(connection, "session.end", client=client)
            callers.add_session(connection, Session(_digest(secret), caller.actor, sealed, now, until))
            self._audit.record(connection, "session.begin", client=client, expires_at=until.isoformat())
        return Begun(secret, caller, (until - now).total_seconds())

    def held(self, secret: str) -> Held | None:
        """The session of this secret, None = there is none any more; `tokens.refresh` comes first. Blocks."""
        if not _SECRET.fullmatch(secret):
            return None
        now = self._clock()
        with self._read() as connection:
            session = callers.get_session(connection, _digest(secret), now)
            is_over = session is None and callers.session_is_over(connection, _digest(secret), now)
        if is_over:  # and stays so where the clock is set back
            with suppress(StorageLocked), self._write(wait_s=HASTY_S) as connection:
                callers.end_session(connection, _digest(secret))
        if session is None:
            return None
        if session.sealed is None:
            return Held(session.actor, self._tokens.holder(session.actor), None)
        return Held(session.actor, None, _lock(secret).decrypt(session.sealed.encode()).decode())

    def end(self, secret: str) -> None:
        """Sign out; nothing happens without a session."""
        with self._write() as connection:
            if callers.end_session(connection, _digest(secret)) is not None:
                self._audit.record(connection, "session.end")


def form_key(secret: str) -> str:
    """What every form of a session carries: it shows that the form is one of ours, without disclosing the secret."""
    return hmac.new(secret.encode(), b"form", hashlib.sha256).hexdigest()


def _lock(secret: str) -> Fernet:
    """Another digest of the secret than the one that is stored."""
    return Fernet(base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"keystone", "sha256")))
