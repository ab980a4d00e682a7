"""Answers: decided once on one cloud, remembered without the new VM's name, and given again to the same question."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from advisor.domain import Anomaly, AnswerSource, PlacementRequest, Recommendation, codec
from advisor.lifecycle import anomalies, monitoring
from advisor.lifecycle.monitoring import HowItHeld
from advisor.placement import decision
from advisor.placement.evidence import with_class
from advisor.placement.requests import NEW_VM, new_id, with_name, without_name
from advisor.prediction.active import LRUCache, QuestionContext
from advisor.snapshot import ClusterSnapshot
from advisor.store.answers import PackedBody

MOST_BYTES = 32 * 2**20  # of what answers take, their texts among it
QUESTION = 8  # a question takes so many times its text: a short name of a host is an object of 50 bytes
FORMER = timedelta(seconds=0.5)  # replicas are documented to agree within a second of a write
# What is of one answer: when, by which model, on what; the rest was decided, and is the same for every such question.
HEAD = ("id", "created_at", "model_version", "model_origin", "degraded", "snapshot_age_s", "dry_run")
Held = Callable[[str], HowItHeld]  # of a model's version


@dataclass(frozen=True, slots=True)
class EncodedRecommendation:
    """A recommendation, and its body as text: `body` as the contract's JSON, `stored` as the store has it.

    In `head` candidates, rejections and notes may say NEW_VM where the new VM's name belongs, and so may `stored`,
    which is packed once for all questions that have this answer; in `body` the name stands.
    """

    head: Recommendation
    body: bytes
    stored: PackedBody
    source: AnswerSource = "miss"

    @classmethod
    def of(cls, recommendation: Recommendation) -> EncodedRecommendation:
        """Write both texts."""
        return replace(cls.only_stored(recommendation), body=codec.answer_text(recommendation, apart=HEAD))

    @classmethod
    def only_stored(cls, recommendation: Recommendation) -> EncodedRecommendation:
        """Write what the store has; no client gets the answer as JSON."""
        return cls(recommendation, b"", PackedBody.of(recommendation, NEW_VM))

    @property
    def size(self) -> int:
        """About how many bytes it takes: beside the texts, values that take two and a half times the first."""
        return len(self.body) * 7 // 2 + len(self.stored.text)

    @property
    def recommendation(self) -> Recommendation:
        """The answer as a value; whoever only passes it on does without."""
        return with_name(self.head, self.head.request.instance.id)

    def to(
        self, request: PlacementRequest, now: datetime, taken_at: datetime, source: AnswerSource
    ) -> EncodedRecommendation:
        """The same said to this question, which is the one that was answered but for the new VM's name."""
        head = replace(
            self.head,
            id=new_id(now),
            created_at=now,
            request=request,
            snapshot_age_s=max((now - taken_at).total_seconds(), 0.0),
        )
        name, stood = request.instance.id.encode(), NEW_VM.encode()  # an id needs no quoting in JSON
        return EncodedRecommendation(head, self.body.replace(stood, name), self.stored, source)

    def as_json(self) -> bytes:
        """The answer to `POST /v1/placements`, equal to its text as a whole but for the order of fields."""
        return b"%b,%b" % (codec.answer_text(self.head, only=HEAD)[:-1], self.body[1:])


@dataclass(slots=True)
class SnapshotEpoch:
    """One state of the cloud: when it was laid out, and when a question last found it so."""

    taken_at: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class RecommendationCache:
    """What one predictor answered, by the question, on the cloud of `moment` and on those before it; thread-safe."""

    moment: SnapshotEpoch
    _kept: LRUCache[bytes, tuple[EncodedRecommendation, SnapshotEpoch, int]]
    _deciding: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def on(cls, snapshot: ClusterSnapshot, most_bytes: int = MOST_BYTES) -> RecommendationCache:
        """None yet; there is room for so many bytes."""
        kept = LRUCache[bytes, tuple[EncodedRecommendation, SnapshotEpoch, int]](most_bytes, lambda entry: entry[2])
        return cls(SnapshotEpoch(snapshot.taken_at, snapshot.taken_at), kept)

    def after(self, snapshot: ClusterSnapshot) -> RecommendationCache:
        """The same once the cloud has changed to this one; what was answered too long ago to be given again goes."""
        now = snapshot.taken_at
        self._kept.drop(lambda entry: now - entry[1].seen > FORMER)
        return replace(self, moment=SnapshotEpoch(now, now))

    def find(self, question: str) -> EncodedRecommendation | None:
        """What was answered on the cloud as it is."""
        found = self._kept.find(_key(question))
        return found[0] if found is not None and found[1] is self.moment else None

    def former(self, question: str, now: datetime) -> tuple[EncodedRecommendation, SnapshotEpoch] | None:
        """What would have been answered at most FORMER ago."""
        found = self._kept.find(_key(question))
        return found[:2] if found is not None and abs(now - found[1].seen) <= FORMER else None

    def keep(self, question: str, recommendation: EncodedRecommendation) -> None:
        """Remember it, in place of what was answered before."""
        self._kept.keep(_key(question), (recommendation, self.moment, recommendation.size + QUESTION * len(question)))

    @contextmanager
    def deciding(self) -> Iterator[bool]:
        """Whether no other thread is deciding an answer now: two threads at it are no faster than one."""
        alone = self._deciding.acquire(blocking=False)
        try:
            yield alone
        finally:
            if alone:
                self._deciding.release()


def _key(question: str) -> bytes:
    """A question may name thousands of hosts, and brings by how much the intervals of each are widened."""
    return blake2b(question.encode(), digest_size=32).digest()


def answer(
    snapshot: ClusterSnapshot,
    context: QuestionContext,
    request: PlacementRequest,
    answers: RecommendationCache,
    held: Held,
    *,
    alarms: Sequence[Anomaly] = (),
    former: bool = False,
) -> EncodedRecommendation:
    """The answer to a checked question; `answers` are those of this snapshot and predictor.

    Remembered or not it is the same. What is answered in place of a model that failed is not remembered. With `former`
    a question that would wait for another one to be decided may be answered by what was true at most FORMER ago: after
    a change the questions of many are decided one after the other, and no client shall wait for all of them.
    """
    active, now = context.active, context.now
    request = with_class(snapshot, request)  # by its name, too, which the remembered answer does without
    nameless, how_it_held = without_name(request, snapshot), held(active.predictor.version)
    wider = sorted(item for item in how_it_held.factors.items() if item[1] > 1)
    question = codec.text(
        (nameless, wider, hash(frozenset(how_it_held.factors)), sorted(how_it_held.doubted), how_it_held.levels)
    )
    encoded = answers.find(question)
    if encoded is not None:
        return encoded.to(request, now, snapshot.taken_at, "hit")
    with answers.deciding() as alone:
        before = None if alone or not former else answers.former(question, now)
        if before is not None:
            return before[0].to(request, now, before[1].taken_at, "former")
        decided = decision.recommend(snapshot, context, nameless)
        if decided.model_version != active.predictor.version:
            how_it_held = held(decided.model_version)
        encoded = EncodedRecommendation.of(
            anomalies.annotated(monitoring.inflated_recommendation(decided, how_it_held), alarms)
        )
        if decided.degraded == active.degraded:
            answers.keep(question, encoded)
    return encoded.to(request, now, snapshot.taken_at, "miss")
