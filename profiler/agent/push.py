"""Delivers samples to the service: what is sent, what is repeated, what is given up."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

from profiler.agent.announcement import Announcer
from profiler.agent.http_client import (
    ANNOUNCE,
    KINDS,
    PLAIN_VARIABLE,
    HttpAnswer,
    HttpError,
    ServerConnection,
    ServerUrl,
    check_token,
    may_carry_token,
)
from profiler.agent.loop import Log
from profiler.agent.spool import SampleBatch, Spool, SpoolEntry, SpoolStatus, batch_of
from profiler.collectors.windows import MetricWindow
from profiler.files import read_secret

# Delivers finished windows to the server: one thread encodes and spools them, another one sends them.

_RETRY_S = 5.0  # after a write that the disk refused
TOKEN_VARIABLE = "COTENANT_TOKEN"  # noqa: S105 - the name of the variable, not a token


class PushToken:
    """The bearer token: from a file that is read before every post, so that it can be renewed, or the environment."""

    def __init__(self, file: Path | None, server: ServerUrl) -> None:
        """Read it once. ValueError is one sentence: no token in the file, or a server that must not get it."""
        self._file = file
        self._fixed = os.environ.get(TOKEN_VARIABLE) if file is None else None
        if self() is not None and not may_carry_token(server):
            raise ValueError(
                f"the token is not sent to {server}: use https, a server on this machine, or {PLAIN_VARIABLE}=1 where "
                "no other machine can listen"
            )

    def __call__(self) -> str | None:
        if self._file is not None:
            try:
                text = read_secret(self._file)
            except ValueError as error:
                raise ValueError(f"token file {error}") from None
            return check_token(text)
        return check_token(self._fixed) if self._fixed else None


class Delivery:
    """Takes windows from the agent without blocking it, and stores and sends them in threads of its own."""

    def __init__(self, spool: Spool, wire: ServerConnection, log: Log, announcer: Announcer | None = None) -> None:
        self._spool = spool
        self._log = log
        self._pusher = Pusher(spool, wire, log, announcer=announcer)
        self._new = threading.Event()
        self._ending = False
        self._writer = threading.Thread(target=self._write, name="spool", daemon=True)
        self._pusher.start()
        self._writer.start()

    def deliver(self, window: MetricWindow) -> None:
        """Take a window; quick, whatever disk and server do."""
        try:
            self._spool.put(batch_of(window))
        except (ValueError, OverflowError, OSError) as error:  # the wall clock is far outside what dates can be
            self._log.warn("window_lost", error=f"its time {window.end_s} is not a date: {error}")
        self._new.set()

    def status(self) -> tuple[SpoolStatus, PushStatus]:
        return self._spool.status(), self._pusher.status()

    def close(self, timeout_s: float) -> None:
        """Write what is in memory, stop sending, leave the spool to the next agent."""
        self._ending = True
        self._new.set()
        self._writer.join(timeout_s)
        self._pusher.stop(timeout_s)
        self._spool.close()

    def _write(self) -> None:
        stored = True
        while True:
            self._new.wait(None if stored else _RETRY_S)
            self._new.clear()
            ending = self._ending
            stored = self._spool.store()
            self._pusher.wake()
            if ending:
                return


NEWS_S = 1.0  # between two looks whether an announcement is due, while no window is to be sent
MOST_SAMPLES = 10_000  # in one call, the server's limit unless it is configured otherwise; at most 10 MB
_GROW_AFTER = 50  # calls that arrived since the last change: a limit that stays refuses one call in 51
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
_LONGEST_RETRY_AFTER_S = 3600.0
_NO_WINDOWS = ("samples", "windows")  # fields that a server refuses where it knows none, or takes fewer
_EXAMPLES = 5  # of reasons of one kind, in one line of the log
# Kinds of failed attempts beside those without an answer (http_client.KINDS).
_ANSWERS = ("garbage", "internal", "overloaded", "redirect", "server_error", "unauthorised", "unexpected_status")
_REASONS = (("unknown host", "unknown_host"), ("unknown instance", "unknown_instance"), ("time is", "time"))
_HINTS = {"unknown_host": "give the id that this host has in the inventory with --host"}


@dataclass(frozen=True, slots=True)
class PushStatus:
    """Samples by what the server did with them (`dropped` by reason), failed attempts by kind, last success (epoch)."""

    accepted: int
    duplicate: int
    dropped: Mapping[str, int]
    refused: int
    failures: Mapping[str, int]
    last_success_s: float | None


class Pusher:
    """Empties a spool over a wire. `step` makes one attempt; `start` makes a thread that goes on doing so."""

    def __init__(
        self,
        spool: Spool,
        wire: ServerConnection,
        log: Log,
        chance: Callable[[], float] = random.random,
        announcer: Announcer | None = None,
    ) -> None:
        self._announcer = announcer
        self._spool = spool
        self._wire = wire
        self._log = log
        self._chance = chance
        self._most = MOST_SAMPLES
        self._knows_windows = True  # the server
        self._arrived = 0  # calls since `_most` last changed
        self._alone = 0  # entries still to be sent one by one, after the server refused them together
        self._failed = 0  # attempts in a row
        self._counted: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter(dict.fromkeys(("other", *(kind for _, kind in _REASONS)), 0))
        self._failures: Counter[str] = Counter(dict.fromkeys((*KINDS, *_ANSWERS), 0))
        self._last_success_s: float | None = None
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Signal that there may be something new to send."""
        self._wake.set()

    def stop(self, timeout_s: float) -> None:
        """End; a post under way is cut off, and its samples stay in the spool."""
        self._stopping = True
        self._wake.set()
        self._wire.interrupt()
        self._thread.join(timeout_s)

    def status(self) -> PushStatus:
        return PushStatus(
            self._counted["accepted"], self._counted["duplicate"], dict(self._dropped), self._counted["refused"],
            dict(self._failures), self._last_success_s,
        )  # fmt: skip

    def step(self) -> float | None:
        """Send once. Seconds to wait before the next attempt: 0 = go on, None = there is nothing to send.

        An announcement goes before samples: the server drops samples of instances that it does not know.
        """
        if self._announcer is not None and (announcement := self._announcer.due()) is not None:
            return self._announce(self._announcer, announcement)
        entries = self._spool.oldest(0 if self._alone else self._most)
        if not entries:
            self._alone = 0
            return None
        batches: list[SampleBatch] = []
        present: list[SpoolEntry] = []
        for entry in entries:
            batch = self._spool.read(entry)
            if batch is not None:
                present.append(entry)
                batches.append(batch)
        if not present:
            return 0.0
        return self._send(present, batches)

    def _announce(self, announcer: Announcer, body: bytes) -> float:
        try:
            answer = self._wire.post(body, ANNOUNCE)
        except HttpError as error:
            return self._back_off(error.kind, str(error))
        status = answer.status
        if status in (401, 429) or 300 <= status < 400 or status >= 500:
            return self._on_status(answer, [], 0)
        announcer.done()
        if 200 <= status < 300:
            self._failed = 0
            for note in _notes(answer):
                self._log.warn("announced", same=note, note=note)
            return 0.0
        detail = "this server is older than its agents" if status in (404, 405) else _problem(answer)[0]
        hint = "samples are sent as before; --no-announce ends this message"
        self._log.warn("not_announced", same=detail, status=status, error=detail, hint=hint)
        return 0.0

    def _send(self, entries: list[SpoolEntry], batches: list[SampleBatch]) -> float:
        as_windows = self._knows_windows and sum(batch.size for batch in batches) <= self._most
        for body, number in self._bodies(batches, as_windows=as_windows):
            try:
                answer = self._wire.post(json.dumps(body, separators=(",", ":")).encode())
                if as_windows and answer.status == 422 and _problem(answer)[1].partition(".")[0] in _NO_WINDOWS:
                    self._knows_windows = False  # it is older than its agents, or takes fewer samples
                    return 0.0
                if not 200 <= answer.status < 300:
                    return self._on_status(answer, entries, number)
                self._take(answer, number)
                self._arrived += 1
            except HttpError as error:
                return self._back_off(error.kind, str(error))
        self._spool.acknowledge(entries)
        self._grow()
        self._alone = max(0, self._alone - 1)
        self._failed = 0
        self._last_success_s = time.time()
        return 0.0

    def _bodies(self, batches: list[SampleBatch], *, as_windows: bool) -> Iterator[tuple[dict[str, Any], int]]:
        """What to post, and of how many samples: all windows whole, or samples in calls that are small enough."""
        if as_windows:
            yield {"windows": [batch.window() for batch in batches]}, sum(batch.size for batch in batches)
            return
        samples = [sample for batch in batches for sample in batch.samples()]
        for begin in range(0, len(samples), self._most):
            part = samples[begin : begin + self._most]
            yield {"samples": part}, len(part)

    def _grow(self) -> None:
        """Try larger calls, and windows, again after a while: what refused them may have been reconfigured since."""
        if self._arrived >= _GROW_AFTER:
            self._most = min(2 * self._most, MOST_SAMPLES)
            self._knows_windows = True
            self._arrived = 0

    def _take(self, answer: HttpAnswer, sent: int) -> None:
        """Count what the server says it did. HttpError (`garbage`) where that does not add up."""
        try:
            document: Any = json.loads(answer.body)
            counts = [document[name] for name in ("accepted", "duplicate", "dropped")]
            reasons = [str(item["reason"]) for item in document.get("reasons", [])]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise HttpError("garbage", "the server says it is done, and not what it did: is this Cotenant?") from None
        if any(type(count) is not int or count < 0 for count in counts) or sum(counts) != sent:
            raise HttpError("garbage", f"the server counts {counts} of {sent} samples")
        self._counted["accepted"] += counts[0]
        self._counted["duplicate"] += counts[1]
        self._count_dropped(counts[2], reasons)

    def _count_dropped(self, dropped: int, reasons: list[str]) -> None:
        by_kind: dict[str, list[str]] = {}
        for reason in reasons:
            kind = next((kind for text, kind in _REASONS if text in reason), "other")
            by_kind.setdefault(kind, []).append(reason)
        self._dropped["other"] += max(0, dropped - len(reasons))
        for kind, of_kind in by_kind.items():
            self._dropped[kind] += len(of_kind)
            examples = "; ".join(list(dict.fromkeys(of_kind))[:_EXAMPLES])
            hint = {"hint": _HINTS[kind]} if kind in _HINTS else {}
            self._log.warn("not_stored", same=kind, samples=len(of_kind), reason=examples[:1000], **hint)

    def _on_status(self, answer: HttpAnswer, entries: list[SpoolEntry], sent: int) -> float:
        detail, field = _problem(answer)
        status = answer.status
        too_many = status == 413 or (status == 422 and field == "samples")  # over the limit of bytes, or of samples
        if too_many and sent > 1:
            self._most = max(1, sent // 2)
            self._arrived = 0
            self._log.warn("push_split", most_samples=self._most, error=detail)
            return 0.0
        if status in (400, 413, 422):
            return self._refused(entries, status, detail)
        if status in (401, 403):
            return self._back_off("unauthorised", f"the server refuses the token ({status}): {detail}")
        if 300 <= status < 400:
            return self._back_off("redirect", f"the server redirects ({status}), which is not followed; give its URL")
        kind = "overloaded" if status in (429, 503) else "server_error" if status >= 500 else "unexpected_status"
        return self._back_off(kind, f"the server answers {status}: {detail}", _seconds(answer.retry_after))

    def _refused(self, entries: list[SpoolEntry], status: int, detail: str) -> float:
        if len(entries) > 1:  # one of them is at fault: the others are sent again, one by one
            self._alone = len(entries)
            return 0.0
        self._spool.refuse(entries[0])
        self._alone = max(0, self._alone - 1)
        self._counted["refused"] += entries[0].samples
        self._log.warn("refused", same=detail, status=status, samples=entries[0].samples, error=detail)
        return 0.0

    def _back_off(self, kind: str, message: str, at_least_s: float = 0.0) -> float:
        """Seconds to wait: doubled with each failure up to a minute, then randomly less, to spread the hosts."""
        self._failures[kind] += 1
        self._failed += 1
        if not self._stopping:
            self._log.warn("push_failed", same=kind, kind=kind, error=message)
        longest = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2.0 ** min(self._failed - 1, 10))
        return max(longest * (0.5 + self._chance() / 2), at_least_s)

    def _run(self) -> None:
        while not self._stopping:
            wait = self._attempt()
            if wait is None:  # announcements may be due between windows
                self._wake.wait(None if self._announcer is None else NEWS_S)
            elif wait > 0:
                self._sleep(wait)
            self._wake.clear()
        self._wire.close()

    def _attempt(self) -> float | None:
        try:
            return self.step()
        except Exception as error:  # noqa: BLE001 - the spool keeps everything; try again rather than end for ever
            return self._back_off("internal", f"{type(error).__name__}: {error}")

    def _sleep(self, seconds: float) -> None:
        """Wait for a time that new samples do not shorten, but `stop` does."""
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            self._wake.wait(left)
            if not self._stopping:
                self._wake.clear()


def _problem(answer: HttpAnswer) -> tuple[str, str]:
    """Detail and field of a problem document; of anything else its beginning."""
    try:
        document = json.loads(answer.body)
        return str(document["detail"])[:500], str(document.get("field") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return answer.body[:100].decode("utf-8", "replace"), ""


def _notes(answer: HttpAnswer) -> list[str]:
    """The server's remarks on an announcement, one sentence each."""
    try:
        return [str(note)[:500] for note in json.loads(answer.body)["notes"]][:_EXAMPLES]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _seconds(retry_after: str | None) -> float:
    """Read Retry-After, seconds or a date (RFC 9110, section 10.2.3); 0 when there is none that makes sense."""
    if retry_after is None:
        return 0.0
    try:
        seconds = (
            float(retry_after)
            if retry_after.isdecimal()
            else parsedate_to_datetime(retry_after).timestamp() - time.time()
        )
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_S)
