"""Signed orders to change settings of one host, reports on them, and what an agent must not forget of both."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from profiler.files import read_text, write_whole

Action = Literal["read", "set"]
ReportState = Literal["done", "failed", "gone", "refused"]
SYSTEMS = ("control-groups", "libvirt")
ACTIONS: tuple[Action, ...] = ("read", "set")
STATES: tuple[ReportState, ...] = ("done", "failed", "gone", "refused")
MOST_BYTES = 16_384  # of an order or report
MOST_SETTINGS = 64
LONGEST_S = 300.0  # between an order's time and its end
LEAST_KEY, MOST_KEY = 32, 1_024  # characters
_KEY = re.compile(r"[\x21-\x7e]+\Z")
_ID = re.compile(r"[0-9a-f]{32}\Z")
_Kind = Literal["order", "report"]


class NotGenuine(ValueError):  # noqa: N818 - reads as what it says at the raise
    """A text that is not signed by who has the key, or no order or report; one sentence."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the agent of `host` is asked to do between `made_at` and `expires_at` (s since the epoch).

    `settings` are the texts to set, by name; of action read only the names count. `expected` is what is to be there
    before a change. `id` is random and counts once.
    """

    id: str
    host: str
    action: Action
    system: str
    instance: str
    target: str
    settings: Mapping[str, str]
    made_at: float
    expires_at: float
    expected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of an order: texts that were read `before` and `after` it, and why it was not done."""

    order: str
    state: ReportState
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


def check_key(text: str) -> bytes:
    """The key as bytes, without its line end; ValueError, which does not show it, where it is none."""
    key = text.strip()
    if not LEAST_KEY <= len(key) <= MOST_KEY or not _KEY.match(key):
        form = f"{LEAST_KEY} to {MOST_KEY:,} characters of ASCII without blanks"
        raise ValueError(f"a key is {form}: make one with openssl rand -hex 32")
    return key.encode("ascii")


def signed(what: Order | Report, key: bytes) -> tuple[str, str]:
    """The text of an order or report, and its signature."""
    text = json.dumps(asdict(what), separators=(",", ":"), sort_keys=True)
    return text, _signature("order" if isinstance(what, Order) else "report", text, key)


def read_order(text: str, signature: str, key: bytes, host: str) -> Order:
    """The order that a text is; NotGenuine where signature or form is wrong, or it is for another host. Its time is
    not checked."""
    document = _document("order", text, signature, key)
    order: Order = _made(Order, document)
    if (
        not _ID.match(order.id)
        or order.action not in ACTIONS
        or order.system not in SYSTEMS
        or not 0 < order.expires_at - order.made_at <= LONGEST_S
        or not 0 < len(order.settings) <= MOST_SETTINGS
        or not order.expected.keys() <= order.settings.keys()
    ):
        raise NotGenuine("the order is none of this version")
    if order.host != host:
        raise NotGenuine(f"the order is for host {order.host[:80]}")
    return order


def read_report(text: str, signature: str, key: bytes) -> Report:
    """The report that a text is; NotGenuine where its signature or form is wrong."""
    report: Report = _made(Report, _document("report", text, signature, key))
    if report.state not in STATES:
        raise NotGenuine("the report is none of this version")
    return report


def _signature(kind: _Kind, text: str, key: bytes) -> str:
    # JSON can spell half a character, which UTF-8 cannot: who has no key may send it, and it is not signed
    return hmac.new(key, f"cotenant {kind} 1\n{text}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _document(kind: _Kind, text: str, signature: str, key: bytes) -> Any:
    right = _signature(kind, text, key).encode()
    if len(text) > MOST_BYTES or not hmac.compare_digest(signature.encode("utf-8", "replace"), right):
        raise NotGenuine(f"the {kind} is not signed with the key of this host")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotGenuine(f"the {kind} is no JSON") from None


def _made(kind: type[Any], document: Any) -> Any:
    """An Order or Report of a document that has exactly its fields, each of the right type."""
    declared = {one.name: one.type for one in fields(kind)}
    if not isinstance(document, dict) or document.keys() != declared.keys():
        raise NotGenuine("it has other fields than this version knows")
    for name, value in document.items():
        wanted = str(declared[name])
        if wanted.startswith("Mapping"):
            right = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
        elif wanted == "float":
            right = type(value) in (int, float) and abs(value) < 1e12
        else:
            right = isinstance(value, str)
        if not right:
            raise NotGenuine(f"its field {name} is none")
    return kind(**document)


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
