"""Orders to the agents of hosts: handed to them with what they report, and left for them by who has the keys.

The service that agents ask needs no key: it passes texts on. A controller signs orders and checks reports.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from advisor.changes.controller import ChangeFailed
from advisor.errors import InvalidInput
from advisor.store import rollouts
from advisor.store.rollouts import SignedText
from advisor.store.transactions import Transactions
from profiler.acting.orders import NotGenuine, Order, Report, check_key, read_report, signed
from profiler.files import read_secret
from profiler.observed import check_id

_POLL_S = 0.1


class OrderService:
    """Orders of one database; thread-safe. `keys` by host are read from a file when the first order is made."""

    def __init__(
        self,
        transactions: Transactions,
        clock: Callable[[], datetime],
        keys_file: Path | None,
        patience_s: float,
        *,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._read, self._write = transactions.read, transactions.write
        self._clock = clock
        self._keys_file = keys_file
        self._patience_s = patience_s
        self._wait = wait
        self._keys: Mapping[str, bytes] | None = None

    def exchange(self, host: str, reports: Sequence[SignedText]) -> tuple[SignedText, ...]:
        """Keep what the agent of a host reports, and hand it the orders that wait for it."""
        if not reports:
            with self._read() as connection:
                return rollouts.waiting(connection, host, self.now())
        with self._write() as connection:
            rollouts.report(connection, host, reports)
            return rollouts.waiting(connection, host, self.now())

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts whose keys this process has."""
        return frozenset(self._of_hosts())

    @property
    def patience_s(self) -> float:
        """How long a report is waited for."""
        return self._patience_s

    def now(self) -> float:
        """The time in s since the epoch."""
        return self._clock().timestamp()

    def ask(self, order: Order) -> Report:
        """Leave an order and wait for its report. ChangeFailed where no genuine one came in time: it is over then."""
        key = self._of_hosts()[order.host]
        text, signature = signed(order, key)
        with self._write() as connection:
            rollouts.add_order(
                connection, SignedText(order.id, text, signature), order.host, order.made_at, order.expires_at
            )
        forged = ""
        try:
            for _ in range(int(2 * self._patience_s / _POLL_S)):  # whatever the clock does meanwhile
                if self.now() >= order.expires_at:
                    break
                self._wait(_POLL_S)
                with self._read() as connection:
                    found = rollouts.reported(connection, order.id)
                if found is None or found.text == forged:
                    continue
                try:
                    report = read_report(found.text, found.signature, key)
                except NotGenuine:
                    forged = found.text
                    continue
                if report.order == order.id:
                    return report
                forged = found.text
        finally:
            with self._write() as connection:
                rollouts.remove(connection, order.id)
        what = "sent a report that is not signed with its key" if forged else "did not report"
        raise ChangeFailed(f"the agent on {order.host} {what} within {self._patience_s:.0f} s")

    def _of_hosts(self) -> Mapping[str, bytes]:
        if self._keys is None:
            self._keys = {} if self._keys_file is None else read_keys(self._keys_file)
        return self._keys


def read_keys(path: Path) -> dict[str, bytes]:
    """The keys of hosts from lines `HOST KEY`; InvalidInput names file and line, and shows no key."""
    try:
        text = read_secret(path)
    except ValueError as error:
        raise InvalidInput(str(error), field="apply_keys_file") from error
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            if len(words) != 2 or check_id(words[0], "host") in keys:
                raise ValueError("write one line HOST KEY for each host")  # noqa: TRY301
            keys[words[0]] = check_key(words[1])
        except ValueError as error:
            raise InvalidInput(f"{path}, line {number}: {error}", field="apply_keys_file") from None
    return keys
