"""What was reported of answers afterwards, and of co-locations: kept, and held against what the models predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from advisor.access.audit import Audit, actor
from advisor.domain import AdviceWorth, AnsweredAs, Page, QualityReport, Recommendation, RecommendationOutcome
from advisor.errors import NotFound
from advisor.lifecycle import advice_worth, outcome_checks
from advisor.lifecycle.arrivals import with_alternatives
from advisor.lifecycle.monitoring import Monitor, shadows
from advisor.lifecycle.outcome_checks import OutcomeScorer, as_colocation, run_of, source_of
from advisor.lifecycle.registry import ModelRegistry
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.store import counters, models, recommendations, stays
from advisor.store.recommendations import RecordedOutcome
from advisor.store.transactions import Transactions
from advisor.telemetry import ingest
from advisor.telemetry.profiles import parse_since
from advisor.validation import check_value
from profiler.observed import Colocation


class OutcomeService:
    """What was observed after answers and of co-locations, and how well predictions held; thread-safe."""

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
        """Store where the instance went and the throughput ratio of each instance there; the latest report wins.

        It is compared with the answer, and with what the shadow and the prior predict for the same scene. Answers after
        this one are moved by it as by a co-location.
        """
        check_value(host, "host")
        check_value(ratios, "ratios")
        answer, former = self._read_both(recommendation_id)
        if former is not None and (former.host, former.ratios) == (host, ratios):
            return
        now = self._clock()
        view, scorers = self._scorers(now)
        outcome = RecordedOutcome(host, ratios, now)
        checked = self._monitor.check_placement(answer, outcome, view.inventory, scorers)
        colocation, run = as_colocation(answer, host, ratios, view.inventory), run_of(recommendation_id)
        with self._write() as connection:
            counters.hold(connection, "posted")
            if not recommendations.set_outcome(connection, recommendation_id, outcome):
                raise NotFound(f"there is no recommendation {recommendation_id}")
            self._audit.record(connection, "outcome.put", [recommendation_id, host])
            self._monitor.keep(connection, checked, instead_of=source_of(recommendation_id))
            known = models.forget_colocations(connection, run)
            if colocation is not None:
                models.add_colocation(connection, colocation, now, actor())
            if known or colocation is not None:
                counters.bump(connection, "posted")

    def record_colocation(self, colocation: Colocation) -> bool:
        """True when it is new, False when it was sent before; Conflict when it was sent with other values.

        What the models in use, in shadow and the prior predict for it is stored beside it, where its host is known;
        answers after this one are moved by it.
        """
        ingest.check_colocation(colocation)
        now = self._clock()
        view, scorers = self._scorers(now)
        checked = self._monitor.check_colocation(colocation, view.inventory, scorers, now)
        with self._write() as connection:
            counters.hold(connection, "posted")
            new = ingest.record(connection, colocation, now=now, sender=actor())
            if new:
                counters.bump(connection, "posted")
                self._monitor.keep(connection, checked)
                self._audit.record(connection, "colocation.add", [colocation.run])
            return new

    def get(self, recommendation_id: str) -> RecommendationOutcome:
        """One answer with what was reported of it; NotFound when there is none such."""
        return outcome_checks.outcome_beside(*self._read_both(recommendation_id))

    def page(
        self, *, which: AnsweredAs = "all", cursor: str | None = None, limit: int = 100
    ) -> Page[RecommendationOutcome]:
        """Answers with what was reported of them, newest first: all, real ones (no dry runs), or those reported of."""
        with self._read() as connection:
            return outcome_checks.outcomes_page(connection, which, cursor=cursor, limit=limit)

    def quality(self, version: str | None = None, *, window: int | None = None) -> QualityReport:
        """How a model's predictions held recently, by default the active one's; NotFound when there is none such.

        `window` is how many rows each group has at most, by default `quality_window`.
        """
        if version is None:
            version = self._cache.at(self._clock())[1].predictor.version
        else:
            version = self._models.get(version).version
        with self._read() as connection:
            return self._monitor.quality(connection, version, window)

    def worth(self, *, since: str = "7d") -> AdviceWorth:
        """What the advice of so long ago until now was worth; InvalidInput for a time that is none."""
        now = self._clock()
        begin = datetime.fromtimestamp(max(now.timestamp() - parse_since(since), 0.0), UTC)
        with self._read() as connection:
            came, seats = stays.since(connection, begin.timestamp()), stays.seats(connection)
            asked = stays.asked(connection, begin)
        report = advice_worth.worth(came, asked, seats, begin, now)
        view, active = self._cache.at(now)
        placements = with_alternatives(report.placements, view.snapshot, active)
        return advice_worth.with_placements(report, placements)

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
