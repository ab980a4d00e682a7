"""What was told of answers afterwards, and of co-locations: kept, and held against what the models predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from advisor.access.audit import Audit
from advisor.domain import AdviceWorth, AnsweredAs, ModelQuality, Page, Recommendation, RecommendationOutcome
from advisor.errors import NotFound
from advisor.lifecycle import advice_worth, outcomes
from advisor.lifecycle.alternatives import with_alternatives
from advisor.lifecycle.monitoring import Monitor, shadows
from advisor.lifecycle.outcome_checks import OutcomeScorer, source_of
from advisor.lifecycle.registry import ModelRegistry
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.store import recommendations, stays
from advisor.store.recommendations import RecordedOutcome
from advisor.store.transactions import Transactions
from advisor.telemetry import ingest
from advisor.telemetry.profiles import parse_since
from advisor.validation import check_value
from profiler.observed import Colocation


class DatabaseOutcomes:
    """The OutcomeService over the database; thread-safe."""

    def __init__(
        self,
        cache: SnapshotCache,
        monitor: Monitor,
        models: ModelRegistry,
        transactions: Transactions,
        audit: Audit,
        clock: Callable[[], datetime],
    ) -> None:
        self._cache = cache
        self._monitor = monitor
        self._models = models
        self._read, self._write = transactions.read, transactions.write
        self._audit = audit
        self._clock = clock

    def record(self, recommendation_id: str, host: str, ratios: Mapping[str, float]) -> None:
        check_value(host, "host")
        check_value(ratios, "ratios")
        answer, former = self._read_both(recommendation_id)
        if former is not None and (former.host, former.ratios) == (host, ratios):
            return
        now = self._clock()
        view, scorers = self._scorers(now)
        outcome = RecordedOutcome(host, ratios, now)
        checked = self._monitor.check_placement(answer, outcome, view.inventory, scorers)
        with self._write() as connection:
            if not recommendations.set_outcome(connection, recommendation_id, outcome):
                raise NotFound(f"there is no recommendation {recommendation_id}")
            self._audit.record(connection, "outcome.put", [recommendation_id, host])
            self._monitor.keep(connection, checked, instead_of=source_of(recommendation_id))

    def record_colocation(self, colocation: Colocation) -> bool:
        ingest.check_colocation(colocation)
        now = self._clock()
        view, scorers = self._scorers(now)
        checked = self._monitor.check_colocation(colocation, view.inventory, scorers, now)
        with self._write() as connection:
            new = ingest.record(connection, colocation, now=now)
            if new:
                self._monitor.keep(connection, checked)
                self._audit.record(connection, "colocation.add", [colocation.run])
            return new

    def get(self, recommendation_id: str) -> RecommendationOutcome:
        return outcomes.beside(*self._read_both(recommendation_id))

    def page(
        self, *, which: AnsweredAs = "all", cursor: str | None = None, limit: int = 100
    ) -> Page[RecommendationOutcome]:
        with self._read() as connection:
            return outcomes.page(connection, which, cursor=cursor, limit=limit)

    def quality(self, version: str | None = None, *, window: int | None = None) -> ModelQuality:
        if version is None:
            version = self._cache.at(self._clock())[1].predictor.version
        else:
            version = self._models.get(version).version
        with self._read() as connection:
            return self._monitor.quality(connection, version, window)

    def worth(self, *, since: str = "7d") -> AdviceWorth:
        now = self._clock()
        begin = datetime.fromtimestamp(max(now.timestamp() - parse_since(since), 0.0), UTC)
        with self._read() as connection:
            came, seats = stays.since(connection, begin.timestamp()), stays.seats(connection)
            asked = stays.asked(connection, begin)
        found = advice_worth.worth(came, asked, seats, begin, now)
        view, active = self._cache.at(now)
        placements = with_alternatives(found.placements, view.snapshot, active)
        return advice_worth.with_placements(found, placements)

    def _read_both(self, recommendation_id: str) -> tuple[Recommendation, RecordedOutcome | None]:
        with self._read() as connection:
            answer = recommendations.get(connection, recommendation_id)
            if answer is None:
                raise NotFound(f"there is no recommendation {recommendation_id}")
            return answer, recommendations.outcome(connection, recommendation_id)

    def _scorers(self, now: datetime) -> tuple[CloudView, Sequence[OutcomeScorer]]:
        view, active = self._cache.at(now)
        with self._read() as connection:
            tried = shadows(connection)
        return view, self._monitor.judges(tried, active)
