"""What an agent that changes settings must not forget when it ends: orders that counted, and what was there before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from profiler.acting.orders import LONGEST_S, Order
from profiler.files import read_text, write_whole

MOST_ORDERS = 10_000  # that are not over yet
MOST_BEFORE = 100_000  # settings
_MOST_BYTES = 64 * 2**20
_HOUR_S = 3600.0


class Memory:
    """A file that is on the disk before an order is carried out; for one thread.

    An order counts once. Its id is kept until it is over by the latest time that was ever seen here, the clock's or
    that of an order: a clock that is set back lets no order count again.
    """

    def __init__(self, path: Path) -> None:
        """ValueError, one sentence, where the file is damaged: without it, orders could be repeated."""
        self._path = path
        self._latest = 0.0
        self._orders: dict[str, float] = {}  # when each is over
        self._changed: list[float] = []  # when something was changed in the last hour
        self._before: dict[str, str] = {}
        if path.exists():
            self._load()

    def take(self, order: Order, now: float, per_hour: int) -> str:
        """Note an order as done once and for all; why it does not count, empty = it does. OSError: it was not noted."""
        future = order.made_at > now + LONGEST_S
        now = max(now, self._latest)
        if order.id in self._orders:
            return "this order was taken before, and is not repeated"
        if order.expires_at <= now:
            return "this order is over: compare the clocks of this host and of the service"
        if future:
            return "this order is of a time to come: compare the clocks of this host and of the service"
        self._orders = {name: over for name, over in self._orders.items() if over > now}
        self._changed = [at for at in self._changed if now - _HOUR_S < at <= now]
        if len(self._orders) >= MOST_ORDERS:
            return f"{MOST_ORDERS:,} orders are not over yet"
        if order.action == "set":
            if len(self._changed) >= per_hour:
                return f"{len(self._changed)} changes in the last hour are as many as may be"
            self._changed.append(now)
        self._latest = max(now, order.made_at)
        self._orders[order.id] = order.expires_at
        self._store()
        return ""

    def note_before(self, order: Order, found: Mapping[str, str]) -> None:
        """Keep what was there before the first change of each setting, to which it may always be brought back."""
        for name, text in found.items():
            if len(self._before) < MOST_BEFORE:
                self._before.setdefault(_name(order, name), text)
        self._store()

    def is_return(self, order: Order) -> bool:
        """Whether an order sets nothing but what was there before the first change."""
        return all(self._before.get(_name(order, name)) == text for name, text in order.settings.items())

    def forget(self, order: Order) -> None:
        """Forget what was there before: it is there again."""
        for name in order.settings:
            self._before.pop(_name(order, name), None)
        self._store()

    def _store(self) -> None:
        document = {"latest": self._latest, "orders": self._orders, "changed": self._changed, "before": self._before}
        write_whole(self._path, json.dumps(document).encode())

    def _load(self) -> None:
        try:
            document: Any = json.loads(read_text(self._path, _MOST_BYTES))
            self._latest = float(document["latest"])
            self._orders = {str(name): float(over) for name, over in document["orders"].items()}
            self._changed = [float(at) for at in document["changed"]]
            self._before = {str(name): str(text) for name, text in document["before"].items()}
        except (OSError, ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
            damaged = f"{self._path} is damaged ({type(error).__name__}), and without it orders could count twice"
            message = f"{damaged}: wait for {LONGEST_S:.0f} s, remove it, and take changes back by hand"
            raise ValueError(message) from None


def _name(order: Order, setting: str) -> str:
    return json.dumps([order.system, order.target, setting])
