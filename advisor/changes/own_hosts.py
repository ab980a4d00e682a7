"""Whether the service itself places instances on a host: what is closed where no scheduler can be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from advisor.changes.controller import NO, OPEN, YES, Gone, Meaning
from advisor.domain import Change, Command, Host
from advisor.errors import InvalidInput
from advisor.inventories import writes
from advisor.store import hosts
from advisor.store.transactions import Transactions


class OwnHosts:
    """Hosts of the inventory, `enabled` or not."""

    def __init__(self, transactions: Transactions, clock: Callable[[], datetime]) -> None:
        self._transactions = transactions
        self._clock = clock

    def meaning(self, host: Host, command: Command) -> Meaning:
        raise InvalidInput(f"on {host.id} {' '.join(command.argv)[:200]!r} is run by hand", field="command")

    def closing(self, host: Host) -> Meaning:
        return Meaning("host", host.id, {OPEN: YES}, {OPEN: NO})

    def read(self, change: Change) -> Mapping[str, str]:
        with self._transactions.read() as connection:
            return {OPEN: YES if _found(connection, change).enabled else NO}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        with self._transactions.write() as connection:
            set_open(connection, _found(connection, change), values[OPEN] == YES, self._clock())

    def same(self, setting: str, one: str, other: str) -> bool:
        del setting
        return one == other


def set_open(connection: Connection, host: Host, is_open: bool, now: datetime) -> None:
    """Let the service place instances on a host, or place none there."""
    if host.enabled != is_open:
        writes.put_host(connection, replace(host, enabled=is_open), now)


def _found(connection: Connection, change: Change) -> Host:
    host = hosts.get(connection, change.target)
    if host is None:
        raise Gone(f"host {change.target} is not in the inventory any more")
    return host
