"""Who may ask a service: tokens, sessions in browsers, Keystone, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from advisor.access.audit import Audit, Idempotency
from advisor.access.keystone import Keystone
from advisor.access.tokens import Sessions, Tokens
from advisor.domain import AuditEntry, Page, ServiceEvent
from advisor.settings import Settings
from advisor.store.transactions import Transactions


class AccessService:
    """Access and the audit log; thread-safe. Keystone is there where `keystone_url` is set."""

    def __init__(
        self, settings: Settings, transactions: Transactions, audit: Audit, clock: Callable[[], datetime]
    ) -> None:
        read, write = self._read, _ = transactions.read, transactions.write
        self._audit = audit
        self.keystone = Keystone(settings.keystone_url, settings.keystone_roles) if settings.keystone_url else None
        self.tokens = Tokens(read, write, clock, audit)
        self.sessions = Sessions(read, write, clock, audit, self.tokens, self.keystone)
        # As with the answers themselves, which a power cut may undo.
        self.idempotency = Idempotency(partial(write, synced=False), clock, settings.max_request_s)

    @property
    def guarded(self) -> bool:
        """Whether callers without a valid token are refused; call `tokens.refresh` first."""
        return self.keystone is not None or self.tokens.required

    def audit(
        self, *, actor: str | None = None, named: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[AuditEntry]:
        """Entries of the audit log, newest first; of one actor, about one object."""
        with self._read() as connection:
            return self._audit.page(connection, actor=actor, named=named, cursor=cursor, limit=limit)

    def events(self, after: str | None) -> tuple[tuple[ServiceEvent, ...], str]:
        """Up to 500 events after a mark or an event's id, oldest first, and the mark to go on from; None = from now on.

        InvalidInput for what is neither. An event comes two to three seconds late, so that none comes out of turn.
        """
        with self._read() as connection:
            return self._audit.events(connection, after)
