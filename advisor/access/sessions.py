"""Sessions: who signed in to the pages with a token, for as long as it is good and no longer than half a day."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography.fernet import Fernet

from advisor.access.audit import Audit, acting
from advisor.access.keystone import Keystone
from advisor.access.tokens import Tokens
from advisor.domain import Caller
from advisor.errors import StorageLocked
from advisor.store import sessions
from advisor.store.later_writes import HASTY_S
from advisor.store.sessions import Session
from advisor.store.transactions import Transaction, Write

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
            sessions.purge(connection, now)
            if caller is None:
                self._audit.record(connection, "session.refuse", client=client)
                return None
            ended = None if former is None else sessions.end(connection, _digest(former))
            if ended is not None:
                with acting(ended, request_id):
                    self._audit.record(connection, "session.end", client=client)
            sessions.add(connection, Session(_digest(secret), caller.actor, sealed, now, until))
            self._audit.record(connection, "session.begin", client=client, expires_at=until.isoformat())
        return Begun(secret, caller, (until - now).total_seconds())

    def held(self, secret: str) -> Held | None:
        """The session of this secret, None = there is none any more; `tokens.refresh` comes first. Blocks."""
        if not _SECRET.fullmatch(secret):
            return None
        now = self._clock()
        with self._read() as connection:
            session = sessions.get(connection, _digest(secret), now)
            is_over = session is None and sessions.is_over(connection, _digest(secret), now)
        if is_over:  # and stays so where the clock is set back
            with suppress(StorageLocked), self._write(wait_s=HASTY_S) as connection:
                sessions.end(connection, _digest(secret))
        if session is None:
            return None
        if session.sealed is None:
            return Held(session.actor, self._tokens.holder(session.actor), None)
        return Held(session.actor, None, _lock(secret).decrypt(session.sealed.encode()).decode())

    def end(self, secret: str) -> None:
        """Sign out; nothing happens without a session."""
        with self._write() as connection:
            if sessions.end(connection, _digest(secret)) is not None:
                self._audit.record(connection, "session.end")


def form_key(secret: str) -> str:
    """What every form of a session carries: it shows that the form is one of ours, and tells nothing of the secret."""
    return hmac.new(secret.encode(), b"form", hashlib.sha256).hexdigest()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _lock(secret: str) -> Fernet:
    """Another digest of the secret than the one that is stored."""
    return Fernet(base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"keystone", "sha256")))
