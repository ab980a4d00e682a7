"""Monitor: which models are scored against what happens, how good each was, and how far its intervals must widen."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import (
    EVIDENCE_LEVELS,
    Band,
    Candidate,
    Effect,
    EvidenceLevel,
    Host,
    Inventory,
    LevelHeld,
    Plan,
    PlanStep,
    QualityReport,
    Recommendation,
    SceneEffects,
    listed,
)
from advisor.errors import BrokenArtifact
from advisor.lifecycle import outcome_checks, window_checks
from advisor.lifecycle.outcome_checks import OutcomeScorer
from advisor.lifecycle.window_checks import WindowRows
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.prediction.posted import unmoved
from advisor.settings import Settings
from advisor.store import models, predictions
from advisor.store.answers import RecordedOutcome
from models.evaluation.prediction_checks import (
    FEW,
    WIDEST,
    CheckedPrediction,
    WindowFigures,
    WindowKey,
    by_scene,
    calibrating,
    grouped,
    groups_of,
    widen,
    widening,
)
from models.physics.prior import CEILING, PriorPredictor
from models.prediction import Predictor
from profiler.observed import Colocation

# Answers with throughput intervals as wide as observed outcomes show that they must be; the order of hosts stays.

# By host, at least 1; a host that is not there keeps the model's own intervals, which no outcome has calibrated.
Factors = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HowItHeld:
    """What was observed of a model's predictions: the `factors`, and how its forecasts held by what was known of the
    instance. `doubted` are hosts that contradict the model now, whose intervals nothing has calibrated."""

    factors: Factors
    levels: Mapping[EvidenceLevel, LevelHeld]
    doubted: Collection[str] = frozenset()


def inflated_recommendation(answer: Recommendation, held: HowItHeld) -> Recommendation:
    """Widen each candidate by the factor of its host, and say so, and how answers about such new VMs have held."""
    if answer.evidence is not None:
        answer = replace(answer, evidence=replace(answer.evidence, held=held.levels.get(answer.evidence.level)))
    factors = held.factors
    shown = (*answer.candidates, *answer.tuned, *filter(None, [answer.present]))
    if not any(given.host in factors for given in shown):
        return answer
    candidates, tuned = (
        tuple(inflated_candidate(given, held) for given in some) for some in (answer.candidates, answer.tuned)
    )
    present = answer.present and inflated_candidate(answer.present, held)
    answer = replace(answer, candidates=candidates, tuned=tuned, present=present)
    used = {given.host: factor for given in shown if (factor := factors.get(given.host, 1.0)) > 1}
    if not used:
        return answer
    note = "Intervals on {hosts} are {most:.1f} times as wide as the model's own, which held too rarely of late."
    notes = (*answer.notes, note.format(hosts=listed(sorted(used)), most=max(used.values())))
    return replace(answer, widened=used, notes=notes)


def inflated_candidate(given: Candidate, held: HowItHeld) -> Candidate:
    """Widen what happens to every instance on one host."""
    if given.host not in held.factors:
        return given
    factor = held.factors[given.host]
    neighbours = tuple(inflated_effect(neighbour, factor) for neighbour in given.neighbours)
    # At the widest it is not known whether it is wide enough.
    calibration = "observed" if factor < WIDEST and given.host not in held.doubted else given.calibration
    return replace(given, new_vm=inflated_effect(given.new_vm, factor), neighbours=neighbours, calibration=calibration)


def inflated_scene(answer: SceneEffects, host: Host, factors: Factors) -> SceneEffects:
    """Widen the answer about one host."""
    if host.id not in factors:
        return answer
    return replace(answer, effects=tuple(inflated_effect(given, factors[host.id]) for given in answer.effects))


def inflated_plan(answer: Plan, held: HowItHeld) -> Plan:
    """Widen every step of a plan, and what it says of the hosts before and after."""
    factors = held.factors
    if not factors:
        return answer
    return replace(
        answer,
        steps=tuple(_step(step, factors.get(step.host or "", 1.0)) for step in answer.steps),
        before=_everywhere(answer.before, factors),
        after=_everywhere(answer.after, factors),
    )


def inflated_effect(given: Effect, factor: float) -> Effect:
    """Widen the throughput bands of one instance."""
    before = None if given.before is None else _band(given.before, factor)
    return replace(given, throughput_ratio=_band(given.throughput_ratio, factor), before=before)


def _step(step: PlanStep, factor: float) -> PlanStep:
    if step.new_vm is None:
        return step
    neighbours = tuple(inflated_effect(given, factor) for given in step.neighbours)
    return replace(step, new_vm=inflated_effect(step.new_vm, factor), neighbours=neighbours)


def _everywhere(effects: Mapping[str, tuple[Effect, ...]], factors: Factors) -> dict[str, tuple[Effect, ...]]:
    return {
        host: tuple(inflated_effect(given, factors.get(host, 1.0)) for given in here) for host, here in effects.items()
    }


def _band(band: Band, factor: float) -> Band:
    lower, upper = (widen(band.expected, edge, factor) for edge in (band.lower, band.upper))
    return Band(band.expected, lower, min(upper, max(band.upper, CEILING)))


log = logging.getLogger(__name__)


class Monitor:
    """One per process; thread-safe. Keeps nothing that is not in the database, only what takes long to work out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reading = threading.Lock()
        self._shadows: dict[str, Predictor | None] = {}  # None = could not be read
        # version, newest row, and the factors by platform
        self._factors: tuple[str, int, Mapping[str, float]] = ("", 0, {})
        self._windows: tuple[int, Mapping[WindowKey, WindowFigures]] = (0, {})  # newest change, and every group
        self._qualities: dict[str, tuple[tuple[int, int, int], QualityReport]] = {}

    def judges(self, shadows: Iterable[str], chosen: ActivePredictor) -> tuple[OutcomeScorer, ...]:
        """The model in use, the `shadows` by version, and the prior as the yardstick of all; each as it was trained."""
        scorers = [] if chosen.degraded else [OutcomeScorer("active", unmoved(chosen.predictor))]
        scorers += [OutcomeScorer("shadow", shadow) for shadow in self._read(tuple(shadows)) if shadow is not None]
        if all(not isinstance(judge.predictor, PriorPredictor) for judge in scorers):
            scorers.append(OutcomeScorer("baseline", PriorPredictor()))
        return tuple(scorers)

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
        """Store rows; those that the source `instead_of` gave before are deleted."""
        if instead_of is not None:
            predictions.forget_observed(connection, instead_of)
        predictions.add_observed(connection, rows, keep=self._settings.keep_observed)

    def keep_windows(self, connection: Connection, checked: Sequence[WindowRows]) -> None:
        """Add to the figures of the groups that these rows belong to."""
        if not any(part.rows for part in checked):
            return
        stored, changed = predictions.change(connection), {}
        for part in checked:
            for key, rows in grouped(part.rows, part.question, part.levels).items():
                figures = changed[key] = stored.setdefault(key, WindowFigures())
                figures.add(rows, part.ends_s)
        predictions.put(connection, changed)

    def factors(
        self, connection: Connection, version: str, hosts: Iterable[Host], doubted: Mapping[str, float] | None = None
    ) -> Mapping[str, float]:
        """By how much a model's throughput intervals are to be widened to hold, by host, 1 = they hold.

        Hosts on whose platform too little was held against them, outcomes or windows, are left out. Where both say
        something the wider one counts. `doubted` hosts contradict what is said of them, and must be as wide at least.
        """
        return self.how_it_held(connection, version, hosts, doubted).factors

    def seen_factors(self, connection: Connection, version: str, hosts: Iterable[Host]) -> Mapping[str, float]:
        """The same for all of `hosts`, and also by windows that are too few to calibrate answers on."""
        hosts = tuple(hosts)
        factors = self.how_it_held(connection, version, hosts).factors
        groups = self._groups(connection, predictions.newest(connection)[1])
        seen = {
            key.platform: min(figures.scaled, WIDEST)
            for key, figures in groups.items()
            if key.version == version and calibrating(key) and figures.scenes >= FEW
        }
        return {
            host.id: max(factors.get(host.id, 1.0), seen.get(window_checks.platform_of(host), 1.0)) for host in hosts
        }

    def how_it_held(
        self, connection: Connection, version: str, hosts: Iterable[Host], doubted: Mapping[str, float] | None = None
    ) -> HowItHeld:
        """As `factors`, and how the model's forecasts held in contended windows by what was known of the instance."""
        outcomes, windows = predictions.newest(connection)
        groups = self._groups(connection, windows)
        levels = {level: figures for level in EVIDENCE_LEVELS if (figures := _level(groups, version, level))}
        if not self._settings.adapt_intervals:
            return HowItHeld({}, levels)
        wide = self._by_outcomes(connection, version, outcomes)
        of_windows = {
            key.platform: factor
            for key, group in groups.items()
            if key.version == version and calibrating(key) and (factor := group.factor) is not None
        }
        doubted = doubted or {}
        if not wide and not of_windows and not doubted:
            return HowItHeld({}, levels)
        factors: dict[str, float] = {}
        for host in hosts:
            applicable = (
                wide.get(outcome_checks.platform_of(host)),
                of_windows.get(window_checks.platform_of(host)),
                doubted.get(host.id),
            )
            if known := [factor for factor in applicable if factor is not None]:
                factors[host.id] = max(known)
        return HowItHeld(factors, levels, frozenset(factors.keys() & doubted.keys()))

    def _by_outcomes(self, connection: Connection, version: str, newest: int) -> Mapping[str, float]:
        was, number, wide = self._factors
        if (was, number) != (version, newest):
            former = wide if was == version and number < newest else {}
            changed = predictions.platforms_observed_since(connection, number if former is wide else 0)
            now = {**former, **{platform: self._widening(connection, platform, version) for platform in changed}}
            wide = {platform: factor for platform, factor in now.items() if factor is not None}
            self._factors = version, newest, wide
        return wide

    def _groups(self, connection: Connection, newest: int) -> Mapping[WindowKey, WindowFigures]:
        number, groups = self._windows
        if number != newest:
            groups = predictions.load(connection)
            self._windows = newest, groups
        return groups

    def quality(self, connection: Connection, version: str, window: int | None = None) -> QualityReport:
        """Figures, alarms and comparisons of a model by its stored rows, the last `window` of each group."""
        from models.evaluation.quality import assess

        window = window or self._settings.quality_window
        outcomes, windows = predictions.newest(connection)
        state = outcomes, windows, window
        cached = self._qualities.get(version)
        if cached is None or cached[0] != state:
            rows = predictions.observed_of_version(connection, version, last=window)
            others = predictions.observed_of_sources(connection, _last_sources(rows, window), other_than=version)
            of_windows = groups_of(version, self._groups(connection, windows))
            cached = state, assess(version, rows, others, window=window, windows=of_windows)
            self._qualities = {version: cached} if len(self._qualities) > 20 else {**self._qualities, version: cached}
        return cached[1]

    def _widening(self, connection: Connection, platform: str, version: str) -> float | None:
        """The factor of a platform, None while too few scenes were seen there."""
        window = self._settings.quality_window
        rows = predictions.throughput_observed_on(connection, platform, version, last=2 * window)
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
    """The models that are scored beside the active one."""
    return tuple(card.version for card in models.in_status(connection, "shadow"))


def _level(groups: Mapping[WindowKey, WindowFigures], version: str, level: EvidenceLevel) -> LevelHeld | None:
    """How a model's forecasts of one level held on all platforms together, None where too few windows tell.

    Rounded, so that remembered answers need not change with every window.
    """
    wanted_key = version, level, "forecast", True
    of_level = [
        group for key, group in groups.items() if (key.version, key.level, key.question, key.contended) == wanted_key
    ]
    windows, rows = (round(sum(getattr(group, name) for group in of_level)) for name in ("scenes", "rows"))
    if windows < FEW or not rows:
        return None
    coverage, error = (sum(getattr(group, name) for group in of_level) / rows for name in ("covered", "absolute"))
    return LevelHeld(round(windows, 2 - len(str(windows))), round(coverage, 2), round(error, 2))


def _last_sources(rows: Sequence[CheckedPrediction], window: int) -> set[str]:
    by_target: dict[str, list[str]] = {}
    for row in rows:
        by_target.setdefault(row.target, []).append(row.source)
    return {source for sources in by_target.values() for source in sources[-window:]}


def _anyway(check: Callable[[], tuple[CheckedPrediction, ...]]) -> tuple[CheckedPrediction, ...]:
    """The rows of a check, none where it fails: an outcome is worth keeping whatever goes wrong while it is checked."""
    try:
        return check()
    except Exception:
        log.exception("an observed outcome could not be held against what was predicted")
        return ()
