"""Transactions of a service, none on tables of another version, and writes that may happen later."""

from __future__ import annotations

import contextvars
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, cast

from sqlalchemy import Connection

from advisor import deadline
from advisor.errors import SchemaMismatch, StorageLocked, StorageUnavailable
from advisor.store import migrate
from advisor.store.engine import Database
from advisor.store.sample_store import STORED, SampleStore

Found = TypeVar("Found")
Transaction = Callable[[], AbstractContextManager[Connection]]  # opens one, to read or to write


class Write(Protocol):
    """Opens a transaction that writes; `wait_s` as in Database.write."""

    def __call__(self, *, wait_s: float | None = None) -> AbstractContextManager[Connection]:
        """Open it."""


class Transactions:
    """One per service; thread-safe. `samples` are wherever the service keeps them.

    Brings an empty database to the newest tables. Raises SchemaMismatch on the database of a newer version or another
    program; on one of an older version every transaction does, until `upgrade`.
    """

    def __init__(self, database: Database, samples: SampleStore = STORED) -> None:
        self._database = database
        self.samples = samples
        self._outdated: SchemaMismatch | None = None
        with database.read() as connection:
            tables_fit = migrate.fit(connection)
        if tables_fit == "empty":
            self.upgrade()
            return
        try:
            migrate.refuse(database, tables_fit)
        except SchemaMismatch as error:
            if tables_fit != "older":
                raise
            self._outdated = error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that writes nothing."""
        self.refuse()
        with self._database.read() as connection:
            yield connection

    @contextmanager
    def write(self, *, synced: bool = True, wait_s: float | None = None) -> Iterator[Connection]:
        """A transaction that is committed at its end, or rolled back when it raises; options as in Database.write."""
        self.refuse()
        with self._database.write(synced=synced, wait_s=wait_s) as connection:
            yield connection

    def refuse(self) -> None:
        """Raise where no transaction may begin: SchemaMismatch, or that the caller's time is up."""
        deadline.check()
        if self._outdated is not None:
            raise SchemaMismatch(self._outdated.message)

    def upgrade(self) -> str:
        """Bring the database to the newest tables; returns the revision."""
        revision = migrate.upgrade(self._database)
        self._outdated = None
        return revision


# Work of several threads in one transaction.

MOST_TOGETHER = 32
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(slots=True)
class _Turn(Generic[Item, Result]):
    """What a thread brought, and what became of it once `is_done`; without, the thread is to go on with the next."""

    item: Item
    woken: threading.Event = field(default_factory=threading.Event)
    is_done: bool = False
    result: Result | None = None
    error: BaseException | None = None


class Together(Generic[Item, Result]):
    """Threads that come while one is at it wait, and the first of them then works for all that wait: many small
    transactions become a few. One that is alone does not wait. Thread-safe."""

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._work = work
        self._lock = threading.Lock()  # over what is below
        self._waiting: deque[_Turn[Item, Result]] = deque()
        self._at_it = False

    def __call__(self, item: Item) -> Result:
        """What the work made of it. Where it fails for several, each is tried by itself, and gets its own error."""
        mine: _Turn[Item, Result] = _Turn(item)
        with self._lock:
            self._waiting.append(mine)
            goes_on, self._at_it = not self._at_it, True
        if not goes_on:
            mine.woken.wait()
        if not mine.is_done:
            with self._lock:
                part = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_TOGETHER))]
            try:
                self._do(part)
            finally:
                self._hand_over([turn for turn in part if turn is not mine])
        if mine.error is not None:
            raise mine.error
        return cast(Result, mine.result)

    def _do(self, part: Sequence[_Turn[Item, Result]]) -> None:
        try:
            results = self._work([turn.item for turn in part])
        except Exception as error:  # noqa: BLE001 - its own thread raises it
            for turn in part if len(part) > 1 else ():
                self._do([turn])
            if len(part) == 1:
                part[0].error = error
            return
        for turn, result in zip(part, results, strict=True):
            turn.result = result

    def _hand_over(self, done: Sequence[_Turn[Item, Result]]) -> None:
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._at_it = following is not None
        if following is not None:
            following.woken.set()
        for turn in done:
            turn.is_done = True
            turn.woken.set()


# Writes that no caller waits for: what a dry run or a plan leaves behind, stored once no other writer is at it.

HASTY_S = 0.2  # a writer that waits longer lets its caller go first
# What may be written later waits less: SQLite lets a writer sleep longer each time that it finds another one at it, and
# each answer of a worker that wrote beside another one or beside a sync held a thread for up to 0.2 s.
BRIEF_S = 0.005
MOST = 1000  # writes that may wait, of some 10 KB each
TOGETHER = 100  # at most in one transaction: each would wait for a turn of its own behind all other writers
TURN_S = 3.0  # for which they wait for their turn, before what ends the service is looked at again
AGAIN_S = 0.5  # after a database that did not answer
LAST_S = 10.0  # for what still waits when the service ends

SOON_S, LOOK_S = 0.5, 0.02  # for so long a reader looks again for what another process may be about to store

log = logging.getLogger(__name__)


def found_soon(find: Callable[[], Found | None], *, is_new: bool) -> Found | None:
    """What `find` finds; of what `is_new` a process may have spoken before it was stored, so it is looked for again."""
    until_s = time.monotonic() + SOON_S
    while (found := find()) is None and is_new and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    return found


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A write in the context of its caller: who acts is in the audit log."""

    work: Callable[[Connection], None]
    synced: bool
    key: str
    value: object
    context: contextvars.Context


class LaterWrites:
    """One per process; thread-safe. What waits is kept in memory: a process that is killed loses it.

    What waits is stored together, in the order in which it came.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._lock = threading.Lock()  # over what is below
        self._waiting: deque[_Waiting] = deque()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def write(self, work: Callable[[Connection], None], *, key: str = "", value: object = None, synced: bool) -> None:
        """Do it at once where no other writer is at it, else soon; `find` gives `value` by `key` until it is stored.

        StorageUnavailable where the database does not answer, or too much waits already.
        """
        if not self._waiting:
            try:
                with self._transactions.write(synced=synced, wait_s=BRIEF_S) as connection:
                    work(connection)
            except StorageLocked:
                pass
            else:
                return
        with self._lock:
            if len(self._waiting) >= MOST or self._ending.is_set():
                raise StorageLocked(
                    "the database is locked by another writer, and too much waits to be stored; try again"
                )
            self._waiting.append(_Waiting(work, synced, key, value, contextvars.copy_context()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._store, name="later-writes", daemon=True)
                self._thread.start()

    def find(self, key: str) -> object:
        """What waits under this key, None = nothing does."""
        with self._lock:
            return next((waiting.value for waiting in self._waiting if waiting.key == key), None)

    def close(self) -> None:
        """Store what waits, for LAST_S at most; the log says how much was lost."""
        self._ending.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _store(self) -> None:
        until_s = math.inf
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
            if self._ending.is_set():
                until_s = min(until_s, time.monotonic() + LAST_S)
            stored = self._store_together()
            with self._lock:
                for _ in range(stored):
                    self._waiting.popleft()
            if not stored:
                if time.monotonic() >= until_s:
                    log.warning("%d answers and plans were not stored: the database is locked", len(self._waiting))
                    return
                self._ending.wait(AGAIN_S)

    def _first(self) -> list[_Waiting]:
        with self._lock:
            return list(itertools.islice(self._waiting, TOGETHER))

    def _store_together(self, only: Sequence[_Waiting] = ()) -> int:
        """How many of the first are done with: all, in one transaction, or none, which are to be tried again. What
        cannot be stored at all is left out, which the log says. Without `only` these are all that wait when it is this
        writer's turn, up to the first that needs a transaction of the other kind."""
        batch = list(only) or self._first()
        synced = any(waiting.synced for waiting in batch)
        try:
            with deadline.within(math.inf), self._transactions.write(synced=synced, wait_s=TURN_S) as connection:
                if not only:
                    batch = list(itertools.takewhile(lambda waiting: synced or not waiting.synced, self._first()))
                for waiting in batch:
                    waiting.context.run(_do, waiting.work, connection)
        except StorageUnavailable:
            return 0
        except Exception:
            if len(batch) == 1:
                log.exception("an answer was not stored")
                return 1
            stored = (self._store_together([waiting]) for waiting in batch)  # one of them spoils it for all
            return len([*itertools.takewhile(bool, stored)])
        return len(batch)


def _do(work: Callable[[Connection], None], connection: Connection) -> None:
    with deadline.within(math.inf):  # the caller's own time, which is in its context, is over
        work(connection)
