"""Idempotency keys: a request that a caller sends again with its key gets the answer that it got before.

Source: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
"""

from __future__ import annotations

import base64
import hashlib
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from advisor import deadline
from advisor.errors import KeyInUse, KeyReused, StorageLocked
from advisor.store import idempotency
from advisor.store.idempotency import KeyUse
from advisor.store.later_writes import HASTY_S
from advisor.store.transactions import Write
from profiler.files import MEGABYTE, unpacked

MOST_KEPT = 256 * MEGABYTE  # of one answer

SPARE = timedelta(seconds=30)  # beyond the time of a request, before a key counts as left behind by one that died


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The body of an answer as it was sent, and the path where it can be read later ("" = nowhere)."""

    body: bytes
    path: str = ""


class Idempotency:
    """The keys of one service; thread-safe, and shared by all that use its database.

    Keys are per caller, and stored as digests: what a client puts into them is private. `most_s` is how long
    a request may take.
    """

    def __init__(self, write: Write, clock: Callable[[], datetime], most_s: float) -> None:
        self._write = write
        self._clock = clock
        self._lease = timedelta(seconds=most_s) + SPARE

    def begin_hastily(self, actor: str, key: str, request: str) -> KeyUse | KeptAnswer | None:
        """As `begin` for a request that changes nothing: None where another writer keeps the database."""
        try:
            return self.begin(actor, key, request, wait_s=HASTY_S)
        except StorageLocked:
            return None

    def begin(self, actor: str, key: str, request: str, *, wait_s: float | None = None) -> KeyUse | KeptAnswer:
        """The answer that this request got before, or its use of the key: `keep` or `let_go` must follow.

        KeyReused where the key was used for another request in the last 24 hours, KeyInUse while the same request is
        being worked on. One whose process died is taken over once it may have taken as long as any request.
        """
        now = self._clock()
        use = KeyUse(actor, _digest(key), _digest(request), now)
        with self._write(wait_s=wait_s) as connection:
            if idempotency.add(connection, use):
                return use
            former = idempotency.get(connection, actor, use.key)
            if former is None:  # let go between the two statements
                raise KeyInUse("a request with this key has just failed; send it again")
            age = abs(now - former.begun_at)  # one from the future was noted by a clock that was ahead
            if age >= (idempotency.KEPT if former.answer else self._lease):
                if not idempotency.begin_anew(connection, former, use.request, now):
                    raise KeyInUse("a request with this key is being worked on; ask again in a moment")
                return use
        if former.request != use.request:
            raise KeyReused(
                "this key was used for another question in the last 24 hours; give each question a key of its own",
                field="idempotency-key",
            )
        if former.answer is None:
            raise KeyInUse("a request with this key is being worked on; ask again in a moment")
        return KeptAnswer(unpacked(base64.b64decode(former.answer["packed"]), MOST_KEPT), former.answer["path"])

    def keep(self, use: KeyUse, answer: KeptAnswer) -> None:
        """Give this answer again from now on."""
        packed = base64.b64encode(zlib.compress(answer.body)).decode()
        kept = {"packed": packed, "path": answer.path}
        with deadline.within(math.inf), self._write() as connection:  # what was done is noted, however late it is
            idempotency.answer(connection, use, kept)

    def let_go(self, use: KeyUse) -> None:
        """The request failed: who sends it again is answered anew."""
        with deadline.within(math.inf), self._write() as connection:
            idempotency.delete(connection, use)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
