"""Monitor: who is held against what happens, how good each has been, and how far its intervals must be widened."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import Host, Inventory, ModelQuality, Recommendation
from advisor.errors import BrokenArtifact
from advisor.lifecycle import outcome_checks
from advisor.lifecycle.outcome_checks import OutcomeScorer
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.settings import Settings
from advisor.store import models, observed
from advisor.store.recommendations import RecordedOutcome
from models.evaluation.prediction_checks import FEW, CheckedPrediction, by_scene, widening
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler.observed import Colocation

log = logging.getLogger(__name__)


class Monitor:
    """One per process; thread-safe. Keeps nothing that is not in the database, only what takes long to work out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reading = threading.Lock()
        self._shadows: dict[str, Predictor | None] = {}  # None = could not be read
        # version, newest row, and the factors by platform
        self._factors: tuple[str, int, Mapping[str, float]] = ("", 0, {})
        self._qualities: dict[str, tuple[tuple[int, int], ModelQuality]] = {}

    def judges(self, shadows: Iterable[str], chosen: ActivePredictor) -> tuple[OutcomeScorer, ...]:
        """The model in use, the `shadows` by version, and the prior as the yardstick of all."""
        found = [] if chosen.degraded else [OutcomeScorer("active", chosen.predictor)]
        found += [OutcomeScorer("shadow", one) for one in self._read(tuple(shadows)) if one is not None]
        if all(not isinstance(judge.predictor, PriorPredictor) for judge in found):
            found.append(OutcomeScorer("baseline", PriorPredictor()))
        return tuple(found)

    def check_colocation(
        self, colocation: Colocation, inventory: Inventory, judges: Sequence[OutcomeScorer], now: datetime
    ) -> tuple[CheckedPrediction, ...]:
        """Rows for a co-location; none, and a line in the log, when that fails."""
        return _anyway(lambda: outcome_checks.of_colocation(colocation, inventory, judges, now))

    def check_placement(
        self, answer: Recommendation, outcome: RecordedOutcome, inventory: Inventory, judges: Sequence[OutcomeScorer]
    ) -> tuple[CheckedPrediction, ...]:
        """Rows for a placement's outcome; none, and a line in the log, when that fails."""
        now = outcome.recorded_at
        return _anyway(
            lambda: outcome_checks.of_placement(answer, outcome.host, outcome.ratios, inventory, judges, now)
        )

    def keep(self, connection: Connection, rows: Sequence[CheckedPrediction], *, instead_of: str | None = None) -> None:
        """Store rows, `instead_of` what that source told before."""
        if instead_of is not None:
            observed.forget(connection, instead_of)
        observed.add(connection, rows, keep=self._settings.keep_observed)

    def factors(self, connection: Connection, version: str, hosts: Iterable[Host]) -> Mapping[str, float]:
        """By how much a model's throughput intervals are to be widened to hold, by host, 1 = they hold.

        Hosts on whose platform too few outcomes were held against them are left out.
        """
        if not self._settings.adapt_intervals:
            return {}
        held, number, wide = self._factors
        newest = observed.newest(connection)
        if (held, number) != (version, newest):
            known = wide if held == version and number < newest else {}
            changed = observed.platforms_since(connection, number if known is wide else 0)
            now = {**known, **{one: self._widening(connection, one, version) for one in changed}}
            wide = {platform: factor for platform, factor in now.items() if factor is not None}
            self._factors = version, newest, wide
        if not wide:
            return {}
        named = ((host.id, outcome_checks.platform_of(host)) for host in hosts)
        return {host: wide[platform] for host, platform in named if platform in wide}

    def quality(self, connection: Connection, version: str, window: int | None = None) -> ModelQuality:
        """Figures, alarms and comparisons of a model by its stored rows, the last `window` of each group."""
        from models.evaluation.quality import assess

        window = window or self._settings.quality_window
        state = observed.newest(connection), window
        held = self._qualities.get(version)
        if held is None or held[0] != state:
            rows = observed.of_version(connection, version, last=window)
            others = observed.of_sources(connection, _last_sources(rows, window), other_than=version)
            held = state, assess(version, rows, others, window=window)
            self._qualities = {version: held} if len(self._qualities) > 20 else {**self._qualities, version: held}
        return held[1]

    def _widening(self, connection: Connection, platform: str, version: str) -> float | None:
        """The factor of a platform, None while too few scenes were seen there."""
        window = self._settings.quality_window
        rows = observed.throughput_on(connection, platform, version, last=2 * window)
        return widening(rows, window) if len(by_scene(rows)) >= FEW else None

    def _read(self, versions: Sequence[str]) -> tuple[Predictor | None, ...]:
        """Each artifact is read once for as long as it is a shadow, also when it turned out to be broken."""
        with self._reading:
            self._shadows = {
                version: self._shadows[version] if version in self._shadows else self._load(version)
                for version in versions
            }
            return tuple(self._shadows.values())

    def _load(self, version: str) -> Predictor | None:
        try:
            return active.load(self._settings.model_dir / version)
        except BrokenArtifact as error:
            log.error("shadow: %s", error)  # noqa: TRY400 - the sentence says it all
            return None


def shadows(connection: Connection) -> tuple[str, ...]:
    """The models that are tried beside the one in use."""
    return tuple(card.version for card in models.in_status(connection, "shadow"))


def _last_sources(rows: Sequence[CheckedPrediction], window: int) -> set[str]:
    by_target: dict[str, list[str]] = {}
    for row in rows:
        by_target.setdefault(row.target, []).append(row.source)
    return {source for found in by_target.values() for source in found[-window:]}


def _anyway(check: Callable[[], tuple[CheckedPrediction, ...]]) -> tuple[CheckedPrediction, ...]:
    """An outcome is worth keeping whatever goes wrong while it is looked at."""
    try:
        return check()
    except Exception:
        log.exception("an observed outcome could not be held against what was predicted")
        return ()
