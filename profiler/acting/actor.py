"""An agent that changes settings: it asks the service for orders, checks each, carries it out, and reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from profiler.acting.allowed import Allowed, SettingGone, SettingNotSet, SettingRefused, SettingsOf
from profiler.acting.orders import MOST_BYTES, Memory, NotGenuine, Order, Report, read_order, signed
from profiler.agent.http_client import HttpAnswer, HttpError, ServerConnection
from profiler.agent.loop import Log

ORDERS = "/v1/orders"
EVERY_S = 5.0  # between two questions
SOON_S = 0.2  # after an order: another one may follow
LONGEST_WAIT_S = 60.0
_SOON_TIMES = 50  # questions that soon after an order
_KEPT = 1_000  # reports that are sent again where their order comes again
_AT_ONCE = 100  # reports in one call

# The system and target of an instance on this host as it is found here, whatever an order says; None = it is not here.
Locate = Callable[[str], tuple[str, str] | None]


class Actor:
    """Carries out the orders of one host; `step` asks once. For one thread.

    `allowed` is read for each order, so that what an administrator takes back counts at once; ValueError from it
    refuses the order.
    """

    def __init__(
        self,
        host: str,
        wire: ServerConnection,
        key: bytes,
        allowed: Callable[[], Allowed],
        memory: Memory,
        systems: Mapping[str, SettingsOf],
        locate: Locate,
        log: Log,
        clock: Callable[[], float],
    ) -> None:
        self._host = host
        self._wire = wire
        self._key = key
        self._allowed = allowed
        self._memory = memory
        self._systems = systems
        self._locate = locate
        self._log = log
        self._clock = clock
        self._reports: dict[str, tuple[str, str]] = {}  # of orders: text and signature
        self._unsent: list[str] = []
        self._failed = self._soon = 0

    def step(self) -> float:
        """Ask once, and carry out what comes; returns the seconds until the next question."""
        sending = self._unsent[:_AT_ONCE]
        reports = [{"order": one, "text": self._reports[one][0], "signature": self._reports[one][1]} for one in sending]
        try:
            answer = self._wire.post(json.dumps({"host": self._host, "reports": reports}).encode(), ORDERS)
            orders = _orders(answer)
        except HttpError as error:
            self._failed += 1
            self._log.warn("orders_not_read", same=error.kind, kind=error.kind, error=str(error))
            return min(EVERY_S * 2.0 ** min(self._failed, 10), LONGEST_WAIT_S)
        self._failed = 0
        del self._unsent[: len(sending)]
        for text, signature in orders:
            self._take(text, signature)
        if self._unsent:
            self._soon = _SOON_TIMES
            return 0.0
        self._soon = max(self._soon - 1, 0)
        return SOON_S if self._soon else EVERY_S

    def _take(self, text: str, signature: str) -> None:
        try:
            order = read_order(text, signature, self._key, self._host)
        except NotGenuine as error:  # no report: whoever sent it has not the key
            self._log.warn("order_refused", same=str(error), error=str(error))
            return
        if order.id not in self._reports:
            report = self._carried_out(order)
            if order.action == "set" or report.state == "refused":
                self._log.info(
                    "order", id=order.id, action=order.action, instance=order.instance, target=order.target,
                    settings=json.dumps(dict(order.settings)), state=report.state, error=report.why,
                )  # fmt: skip
            while len(self._reports) >= _KEPT:
                del self._reports[next(iter(self._reports))]
            self._reports[order.id] = signed(report, self._key)
        if order.id not in self._unsent:
            self._unsent.append(order.id)

    def _carried_out(self, order: Order) -> Report:
        try:
            refusal = self._refusal(order)
            if refusal:
                return Report(order.id, "refused", why=refusal)
            system = self._systems[order.system]
            return self._set(order, system) if order.action == "set" else self._read(order, system)
        except SettingRefused as error:
            return Report(order.id, "refused", why=_short(error))
        except SettingGone as error:
            return Report(order.id, "gone", why=_short(error))
        except SettingNotSet as error:
            return Report(order.id, "failed", why=_short(error))
        except Exception as error:  # noqa: BLE001 - one order that breaks something ends no agent
            return Report(order.id, "failed", why=_short(error))

    def _refusal(self, order: Order) -> str:
        """Why an order is not carried out; it counts from here on, whatever becomes of it."""
        try:
            allowed = self._allowed()
        except ValueError as error:
            return _short(error)
        if order.system not in self._systems:
            return f"this agent changes no {order.system}"
        found = self._locate(order.instance)
        if found is None:
            raise SettingGone(f"instance {order.instance} is not on this host")
        if found != (order.system, order.target):
            return f"instance {order.instance} is not {order.system} {order.target[:80]!r} here"
        # Back to what was there before the first change is always allowed, and is none of the changes of an hour.
        returns = order.action == "set" and self._memory.is_return(order)
        if not returns:
            allowed.check(self._systems[order.system], order.instance, order.settings if order.action == "set" else {})
        return self._memory.take(order, self._clock(), 10**9 if returns else allowed.per_hour)

    def _read(self, order: Order, system: SettingsOf) -> Report:
        found = system.read(order.target, list(order.settings))
        return Report(order.id, "done", before=found, after=found)

    def _set(self, order: Order, system: SettingsOf) -> Report:
        found = system.read(order.target, list(order.settings))
        other = {
            name: found[name]
            for name, text in order.expected.items()
            if not system.same(name, found[name], text) and not system.same(name, found[name], order.settings[name])
        }
        if other:
            name, text = next(iter(other.items()))
            return Report(order.id, "refused", before=found, why=f"{name} is {text[:60]!r}, not what the order expects")
        self._memory.note_before(order, found)
        returns = self._memory.is_return(order)
        try:
            system.write(order.target, {name: text for name, text in order.settings.items() if found[name] != text})
        except (SettingNotSet, SettingRefused) as error:
            return Report(order.id, "failed", found, system.read(order.target, list(order.settings)), _short(error))
        after = system.read(order.target, list(order.settings))
        if returns and after == dict(order.settings):
            self._memory.forget(order)
        return Report(order.id, "done", before=found, after=after)


def _orders(answer: HttpAnswer) -> list[tuple[str, str]]:
    if answer.status != 200:
        raise HttpError("unexpected_status", f"the server answers {answer.status}: {_detail(answer.body)}")
    try:
        document = json.loads(answer.body)
        found = [(str(one["text"]), str(one["signature"])) for one in document["orders"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise HttpError("garbage", "the answer is none of a Cotenant server of this version") from None
    return [pair for pair in found[:_AT_ONCE] if len(pair[0]) <= MOST_BYTES]


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])[:300]
    except (ValueError, LookupError, TypeError, RecursionError):
        return body[:100].decode("utf-8", "replace")


def _short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:500]
