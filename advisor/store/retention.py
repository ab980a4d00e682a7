"""Retention: old samples become five-minute means; old means, answers and plans go; in steps between other writers."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from sqlalchemy import Connection

from advisor.background import BackgroundPass
from advisor.errors import Conflict
from advisor.settings import Settings
from advisor.store import answers, callers, demands, hosts, probes, rollouts, rollups, samples, scores, stays
from advisor.store.engine import Database
from advisor.store.rollups import BUCKET_S, Removed
from advisor.store.schema import chunks

HOSTS_AT_ONCE = 100  # are looked at …
ROLLED_AT_ONCE = 20  # … and at most so many rolled up in one transaction
STEP_S = 0.1  # that others wait for a step to let them write: longer ones are followed by smaller ones
ANSWERS_AT_ONCE = 200  # of 4 KB each, as a rule
SPAN_S = 3600.0  # of samples in one step: 30,000 of a host with 30 instances, whatever has piled up
EVERY = timedelta(minutes=10)
LEASE = timedelta(minutes=10)  # after the last renewal of a pass whose process was killed another one may go on
RENEWED = timedelta(minutes=1)  # not after each step: all who store samples let who renews it pass first
KEEP_STAYS = timedelta(days=90)
KEEP_ROLLOUTS = timedelta(days=365)  # at their end: what was changed a year ago is history
KEEP_PROBES = timedelta(days=90)  # a host or guest that was not probed since may be another one by now
_FIRST_S = 60.0  # after the start

log = logging.getLogger(__name__)


class Retention(BackgroundPass):
    """One per process; of all passes on a database, in whatever process, one works at a time."""

    def __init__(self, database: Database, settings: Settings, clock: Callable[[], datetime]) -> None:
        failed = "what is old was not gone over to the end"
        super().__init__("retention", failed, first_s=_FIRST_S, every_s=EVERY.total_seconds())
        self._database = database
        self._keep = timedelta(days=settings.keep_samples_days)
        self._keep_rollups = timedelta(days=settings.keep_rollups_days)
        self._keep_answers = (
            (answers.expire, timedelta(days=settings.keep_recommendations_days), "recommendations"),
            (answers.expire_plans, timedelta(days=settings.keep_plans_days), "plans"),
        )
        self._clock = clock
        self._at_once, self._slowest_s = ROLLED_AT_ONCE // 10, 0.0  # hosts in one transaction, and how long those took

    def run(self) -> Removed:
        """Go over everything once, without pauses; Conflict while another pass does, in this process or another."""
        removed = self._go_over(early=True, pausing=False)
        if removed is None:
            raise Conflict("samples are being rolled up now; let that finish, or try again in ten minutes")
        return removed

    def _pass(self) -> None:
        removed = self._go_over(early=False, pausing=True)
        if removed is not None:
            log.info("retention: %s", removed)

    def _go_over(self, *, early: bool, pausing: bool) -> Removed | None:
        """Once over everything, None = another pass does; what was done where another one took over on the way."""
        holder = uuid.uuid4().hex
        now = self._clock()
        cut_s = (now - self._keep).timestamp() // BUCKET_S * BUCKET_S

        if not self._hold(holder, cut_s, early=early):
            return None
        held_at = now

        def hold() -> bool:
            nonlocal held_at
            renewed_at = self._clock()
            if timedelta(0) <= renewed_at - held_at < RENEWED:
                return True
            held_at = renewed_at
            return self._hold(holder, cut_s, early=False)

        try:
            if not self._keep_rollups:  # no means are kept: days of samples go as they are
                self._drop_days(cut_s, pausing=pausing, whole=True)
            removed, ours = self._samples(cut_s, hold, pausing=pausing)
            self._drop_days(cut_s, pausing=pausing, whole=False)
            self._rest_of(cut_s, now, pausing=pausing)
            return removed + self._answers(now, hold, pausing=pausing) if ours else removed
        finally:
            with self._database.write() as connection:
                rollups.let_go(connection, holder, None if self._stopping.is_set() else self._clock() + EVERY)

    def _drop_days(self, cut_s: float, *, pausing: bool, whole: bool) -> None:
        """Give the space of partitions back that are before the border, of which no sample is taken any more: of those
        that are empty, or of all."""
        with self._database.read() as connection:
            names = samples.over(connection, cut_s)
            gone = names if whole else [name for name in names if samples.is_empty(connection, name)]
        for name in gone:
            with self._resting(pausing=pausing), self._database.write() as connection:
                samples.drop(connection, name)

    def _rest_of(self, cut_s: float, now: datetime, *, pausing: bool) -> None:
        """What else is old, each in a transaction of its own."""
        steps: tuple[Callable[[Connection], object], ...] = (
            lambda connection: probes.expire(connection, now - KEEP_PROBES),  # which may move the inventory
            lambda connection: demands.expire_totals(connection, now.timestamp()),
            lambda connection: stays.expire(connection, (now - KEEP_STAYS).timestamp()),
            lambda connection: hosts.expire_memory(connection, cut_s),
            lambda connection: scores.expire(connection, cut_s, cut_s - self._keep_rollups.total_seconds()),
            lambda connection: scores.expire_vms(connection, cut_s),
            lambda connection: callers.expire_keys(connection, now - callers.KEPT),
            lambda connection: callers.purge_sessions(connection, now),
            lambda connection: rollouts.expire(connection, now - KEEP_ROLLOUTS, ANSWERS_AT_ONCE),
        )
        for step in steps:
            with self._resting(pausing=pausing), self._database.write() as connection:
                step(connection)
        with self._database.read() as connection:
            gone = demands.expired(connection, cut_s)
        for part in chunks(gone):
            with self._resting(pausing=pausing), self._database.write() as connection:
                demands.expire(connection, part, cut_s)

    def _samples(self, cut_s: float, hold: Callable[[], bool], *, pausing: bool) -> tuple[Removed, bool]:
        """What became of samples and roll-ups, and whether no other pass took over on the way."""
        expired_s = cut_s - self._keep_rollups.total_seconds()
        removed, last = Removed(), ""
        while not self._stopping.is_set():
            with self._database.read() as connection:
                names = rollups.hosts_after(connection, last, HOSTS_AT_ONCE)
            if not names:
                break
            removed += self._tidy(names, cut_s, expired_s, pausing=pausing)
            last = names[-1]
            if not hold():  # a step outlasted the lease
                return removed, False
        return removed, True

    def _answers(self, now: datetime, hold: Callable[[], bool], *, pausing: bool) -> Removed:
        removed = Removed()
        for expire, keep_for, noun in self._keep_answers:
            while not self._stopping.is_set():
                with self._resting(pausing=pausing), self._database.write() as connection:
                    count = expire(connection, now - keep_for, ANSWERS_AT_ONCE)
                removed += Removed(**{noun: count})
                if count < ANSWERS_AT_ONCE:
                    break
                if not hold():
                    return removed
        return removed

    def _tidy(self, names: Sequence[str], cut_s: float, expired_s: float, *, pausing: bool) -> Removed:
        removed, start = Removed(), 0
        while start < len(names) and not self._stopping.is_set():
            part, self._slowest_s = names[start : start + self._at_once], 0.0
            removed += Removed(samples=self._roll(part, cut_s, pausing=pausing))
            with self._step(pausing=pausing) as connection:
                expired = rollups.expire(connection, part, expired_s)
                removed += Removed(rollups=expired, series=rollups.drop_empty(connection, part, expired_s))
            start += len(part)
            if self._slowest_s > STEP_S:
                self._at_once = max(self._at_once // 2, 1)
            elif self._slowest_s < STEP_S / 4:
                self._at_once = min(self._at_once * 2, ROLLED_AT_ONCE)
        return removed

    def _roll(self, names: Sequence[str], cut_s: float, *, pausing: bool) -> int:
        rolled = 0
        while not self._stopping.is_set() and (begin_s := self._begins_s(names, cut_s)) is not None:
            with self._step(pausing=pausing) as connection:
                rolled += rollups.roll(connection, names, begin_s, min(begin_s + SPAN_S, cut_s))
        return rolled

    def _begins_s(self, names: Sequence[str], cut_s: float) -> float | None:
        """The border before the first sample of these hosts that is to be rolled up, None = there is none."""
        with self._database.read() as connection:
            first_s = rollups.oldest(connection, names)
        return None if first_s is None or first_s >= cut_s else first_s // BUCKET_S * BUCKET_S

    @contextmanager
    def _step(self, *, pausing: bool) -> Iterator[Connection]:
        """A transaction over some hosts and a pause; `_slowest_s` has how long it kept others waiting."""
        with self._resting(pausing=pausing), self._database.write() as connection:
            began_s = time.monotonic()  # once the lock is there
            yield connection
            self._slowest_s = max(self._slowest_s, time.monotonic() - began_s)

    @contextmanager
    def _resting(self, *, pausing: bool) -> Iterator[None]:
        """After a step as long a pause: half of the time is for others that wait to write."""
        started = time.monotonic()
        yield
        self._rest(started, pausing=pausing)

    def _hold(self, holder: str, cut_s: float, *, early: bool) -> bool:
        now = self._clock()
        with self._database.write() as connection:
            return rollups.hold(connection, holder, now, now + LEASE, cut_s, early=early)
