"""A recommendation laid out for reading: its cards, its reasons by what they say, its headline; asks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from advisor.domain import (
    Band,
    Candidate,
    Instance,
    Reason,
    Recommendation,
    calibration_in_words,
    evidence_in_words,
    held_in_words,
    time_part,
)
from api.web import bars, picture

# In the order in which a reader asks: what is lost, why not the next one, what would change it, how sure is that.
_KINDS = {
    "loss": "What is lost",
    "comparison": "Beside the next host",
    "counterfactual": "What would change it",
    "uncertainty": "What is not sure",
}
UNNOTICED = 0.005  # of the speed or of the time
FOLDED_FROM = 3  # neighbours of whom nothing changes are folded from so many on
LISTED = 20  # rows of a candidate that are not folded, and as many that are; the page of its host has everybody
_SAME_SCORE = 0.0005  # what is less is no difference in three decimals
_NARROW, _WIDE = 0.06, 0.15  # half widths of an interval, as shares of the speed alone


@dataclass(frozen=True, slots=True)
class Card:
    """One candidate, ready to be shown."""

    candidate: Candidate
    rows: tuple[picture.IntervalRow, ...]
    settings: list[tuple[str, str]]
    changes: list[tuple[str, list[tuple[str, str]]]]  # what neighbours get, by name
    here: bool  # the instance is on this host already
    behind: str = ""  # by how much its score is below the best one's, empty = not at all
    learned: bool = False  # a trained model answered

    @property
    def reasons(self) -> list[tuple[str, list[Reason]]]:
        """The reasons under what they speak of; kinds without a reason are left out."""
        found = [
            (title, [reason for reason in self.candidate.reasons if reason.kind == kind])
            for kind, title in _KINDS.items()
        ]
        return [(title, reasons) for title, reasons in found if reasons]

    @property
    def crowded(self) -> str:
        """For which part of the time more vCPUs are ready to run there than CPUs; empty = never, or not known."""
        return time_part(self.candidate.crowded) if self.candidate.crowded else ""

    @property
    def shown(self) -> list[picture.IntervalRow]:
        """The newcomer, and the neighbours whose figures change or who fare badly."""
        return self._others[0]

    @property
    def unaffected(self) -> list[picture.IntervalRow]:
        """The neighbours of whom nothing changes that anybody would notice, if they are several."""
        return self._others[1]

    @property
    def _others(self) -> tuple[list[picture.IntervalRow], list[picture.IntervalRow]]:
        quiet = [row for row in self.rows if _is_quiet(row)]
        if len(quiet) < FOLDED_FROM:
            return list(self.rows), []
        return [row for row in self.rows if not _is_quiet(row)], quiet

    @property
    def worst(self) -> picture.IntervalRow:
        """Who keeps least of its speed there."""
        return min(self.rows, key=lambda row: row.mark)

    @property
    def shortest(self) -> str:
        """The part of the time in which whoever is short for longest is short of CPU; empty = not predicted."""
        effects = (self.candidate.newcomer, *self.candidate.neighbours)
        known = [effect.cpu for effect in effects if effect.cpu]
        return time_part(max(cpu.short for cpu in known)) if known else ""

    @property
    def room(self) -> tuple[bars.Room, ...]:
        """CPUs, memory and network as they are used before and after."""
        return bars.rooms(self.candidate.headroom)

    @property
    def affected(self) -> list[picture.IntervalRow]:
        """The neighbours who lose a point or more by it, who loses most first."""
        lose = [row for row in self.rows if not row.newcomer and row.loss >= 0.01]
        return sorted(lose, key=lambda row: -row.loss)


@dataclass(frozen=True, slots=True)
class RecommendationView:
    """A recommendation, ready to be shown."""

    recommendation: Recommendation
    instance: Instance
    cards: tuple[Card, ...]
    current: Card | None = None  # where it is now, when that is not among the cards
    stay: bool = False  # it is already where it is best off, or nowhere surely better
    LISTED: ClassVar[int] = LISTED

    @property
    def best(self) -> Card | None:
        """The first card."""
        return self.cards[0] if self.cards else None

    @property
    def rejected(self) -> list[tuple[str, int]]:
        """How many hosts were rejected for which code, the most frequent first."""
        return Counter(one.code for one in self.recommendation.rejected).most_common()

    @property
    def told(self) -> Card | None:
        """The card that the headline speaks of: where it stays, else the best one."""
        staying = next((card for card in self.cards if card.here), self.current)
        return staying if self.stay else self.best

    @property
    def age(self) -> str:
        """How old the data behind the answer is."""
        return picture.age_in_words(self.recommendation.snapshot_age_s)

    @property
    def evidence(self) -> str:
        """How well the residents of the host that the headline speaks of are known."""
        return "" if self.told is None else evidence_in_words(self.told.candidate.evidence, self.told.candidate.host)

    @property
    def held(self) -> str:
        """How answers about such newcomers have held."""
        return held_in_words(self.recommendation.evidence) if self.recommendation.evidence else ""

    @property
    def advice(self) -> str:
        """What to do to know more."""
        return self.recommendation.evidence.advice if self.recommendation.evidence else ""

    @property
    def sure(self) -> str:
        """How sure the headline is, in words: how wide its range is, what calibrated it, what was widened."""
        if self.told is None:
            return ""
        effect = self.told.candidate.newcomer
        calibration = self.told.candidate.calibration
        words = [calibration_in_words([calibration]).removesuffix(".")]
        if calibration == "observed":
            words.insert(0, _width(effect.throughput_ratio))
        if effect.outside_training and self.told.learned:
            words.append("nothing like it was measured, so the queueing model answers with a wider interval")
        elif effect.outside_training:
            words.append("what it runs is not known, so its range is wider")
        factor = self.recommendation.widened.get(self.told.candidate.host)
        if factor:
            words.append(f"intervals here are {factor:.1f} times as wide as the model's own, for it was off of late")
        return "; ".join(words)


def answer(
    recommendation: Recommendation, instance: Instance, limits: Mapping[str, float], there: Candidate | None = None
) -> RecommendationView:
    """Lay it out; `limits` are the lowest ratios that neighbours accept, `there` is how it stands where it is now."""
    learned = recommendation.model_version != "prior"
    best = recommendation.candidates[0] if recommendation.candidates else None

    def made(candidate: Candidate) -> Card:
        return card(candidate, instance, limits, best=best.score if best else 0.0, learned=learned)

    cards = tuple(made(candidate) for candidate in recommendation.candidates)
    current = made(there) if there else None
    # The best names only the first of those that it is tied with; the candidate of its present host may name the best.
    stay = best is not None and (
        instance.host in (best.host, *best.tied_with) or (there is not None and best.host in there.tied_with)
    )
    return RecommendationView(recommendation, instance, cards, current, stay)


def card(candidate: Candidate, instance: Instance, limits: Mapping[str, float], *, best: float, learned: bool) -> Card:
    """One candidate with everybody on its host, the newcomer first, then who is worst off; `best` is the best score.

    People are shown how far a score is behind the best: by itself it says little, and on crowded hosts it is below 0.
    """
    newcomer = picture.row(candidate.newcomer, newcomer=True, limit=instance.min_throughput_ratio)
    neighbours = sorted(candidate.neighbours, key=lambda one: (one.throughput_ratio.expected, one.instance))
    rows = (
        newcomer,
        *(picture.row(neighbour, newcomer=False, limit=limits.get(neighbour.instance)) for neighbour in neighbours),
    )
    settings = picture.settings_in_words(candidate.isolation)
    changes = [(name, picture.settings_in_words(wanted)) for name, wanted in candidate.changes.items()]
    behind = f"{best - candidate.score:.3f}" if best - candidate.score >= _SAME_SCORE else ""
    return Card(candidate, rows, settings, changes, candidate.host == instance.host, behind, learned)


def _is_quiet(row: picture.IntervalRow) -> bool:
    """Whether nothing changes for a neighbour that anybody would notice, and it fares well."""
    return not row.newcomer and row.level != "bad" and row.loss < UNNOTICED and row.longer < UNNOTICED


def _width(band: Band) -> str:
    half = (band.upper - band.lower) / 2
    if half <= _NARROW:
        return "Sure to a few per cent"
    if half <= _WIDE:
        return "Fairly sure"
    return "Not sure: the range is so wide that a measurement may turn the order over"
