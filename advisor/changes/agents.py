"""Whether the service itself places instances on a host: what is closed where no scheduler can be asked."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection

from advisor.changes.controller import NO, OPEN, YES, ChangeFailed, Executor, ExecutorKind, Gone, Meaning, Reach
from advisor.domain import Change, Command, Host
from advisor.errors import InvalidInput
from advisor.inventories import writes
from advisor.store import hosts
from advisor.store.transactions import Transactions
from profiler.acting.orders import Action, Order, Report


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


# Settings of other hosts, changed by the agents there: signed orders out, signed reports back.
#
# An agent may lie. It is believed only that it says what it says: what a change brought is measured by the windows of
# all
# hosts, and a report that is not signed with the key of its host is none.


class OrderBox(Protocol):
    """Where orders are left for agents."""

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts whose agents may change settings: those with a key."""
        ...

    @property
    def patience_s(self) -> float:
        """How long a report is waited for."""
        ...

    def now(self) -> float:
        """The time in s since the epoch."""
        ...

    def ask(self, order: Order) -> Report:
        """Leave an order, and wait for the report on it; ChangeFailed where none came, after which the order is over
        and gone."""
        ...


@dataclass(frozen=True, slots=True)
class BoxOfAgents:
    """Executors whose orders go to a box."""

    box: OrderBox

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts whose agents take orders."""
        return self.box.hosts

    def executor(self, system: str, kind: ExecutorKind) -> Executor:
        """One for the settings of a system; InvalidInput where agents do not change that."""
        if kind.understand is None:
            raise InvalidInput(f"agents do not change what {system} changes", field="executor")
        return ByAgent(system, self.box, kind.understand, kind.open(Reach()).same)


@dataclass(slots=True)
class ByAgent:
    """Settings of one `system` on the hosts of `box`; `understand` and `alike` are of the executor of that system."""

    system: str
    box: OrderBox
    understand: Callable[[Host, Command], Meaning]
    alike: Callable[[str, str, str], bool]
    _found: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)

    def meaning(self, host: Host, command: Command) -> Meaning:
        if host.id not in self.box.hosts:
            raise InvalidInput(f"there is no key of the agent on {host.id}: name it in apply_keys_file", field="host")
        return self.understand(host, command)

    def read(self, change: Change) -> Mapping[str, str]:
        report = self._asked("read", change, change.after, {})
        return self._noted(change, report.after)

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        found = self._found.get((change.host, change.target), {})
        if not change.after.keys() <= found.keys():
            found = self.read(change)
        # All settings of a change go together: what a quota means, its period says.
        report = self._asked("set", change, {name: values.get(name, found[name]) for name in change.after}, found)
        self._noted(change, report.after)

    def same(self, setting: str, one: str, other: str) -> bool:
        return self.alike(setting, one, other)

    def _noted(self, change: Change, found: Mapping[str, str]) -> Mapping[str, str]:
        absent = [name for name in change.after if name not in found]
        if absent:
            raise ChangeFailed(f"the agent on {change.host} says nothing of {absent[0]} of {change.subject}")
        kept = {name: found[name] for name in change.after}
        self._found[change.host, change.target] = kept
        return kept

    def _asked(self, action: Action, change: Change, settings: Collection[str] | Mapping[str, str],
               expected: Mapping[str, str]) -> Report:  # fmt: skip
        texts = dict(settings) if isinstance(settings, Mapping) and action == "set" else dict.fromkeys(settings, "")
        known = {name: expected[name] for name in texts if name in expected}
        now = self.box.now()
        order = Order(
            secrets.token_hex(16), change.host, action, self.system, change.instance, change.target, texts, now,
            now + self.box.patience_s, known,
        )  # fmt: skip
        report = self.box.ask(order)
        if report.state == "gone":
            raise Gone(f"the agent on {change.host}: {report.why}")
        if report.state != "done":
            raise ChangeFailed(f"the agent on {change.host} {report.state} an order for {change.subject}: {report.why}")
        return report
