"""An answered placement on a page: candidates with their effects, reasons, and what to run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor import offline
from advisor.domain import (
    AnsweredAs,
    Candidate,
    Instance,
    Reason,
    Recommendation,
    RecommendationOutcome,
    settings_named,
    time_part,
)
from api.html import picture
from api.html.render import page
from api.routes.common import Cursor, OutcomeDep, PathId
from api.web import chart
from api.web.form import OBJECTIVE_WORDS

# A recommendation laid out for reading: a card for each candidate, reasons by kind, the headline.

if TYPE_CHECKING:
    from advisor.offline import ReportDocument

# In the order in which a reader asks: what is lost, why not the next host, what would change it, how sure is that.
_KINDS = {
    "loss": "What is lost",
    "comparison": "Beside the next host",
    "counterfactual": "What would change it",
    "uncertainty": "What is not sure",
}
UNNOTICED = 0.005  # smaller changes, of the speed or of the part of the time, are not noticed
FOLDED_FROM = 3  # unaffected neighbours are folded where there are at least so many
LISTED = 20  # rows of a candidate that are shown at once, and as many folded ones; the page of its host lists all
_SAME_SCORE = 0.0005  # smaller differences do not show in three decimals


@dataclass(frozen=True, slots=True)
class Card:
    """One candidate, ready to be shown."""

    candidate: Candidate
    rows: tuple[picture.IntervalRow, ...]
    settings: list[tuple[str, str]]
    changes: list[tuple[str, list[tuple[str, str]]]]  # what neighbours get, by name
    here: bool  # the instance is on this host already
    behind: str = ""  # how far its score is below the best one; empty = not at all
    learned: bool = False  # a trained model answered

    @property
    def reasons(self) -> list[tuple[str, list[Reason]]]:
        """The reasons of each kind under its title; kinds without a reason are left out."""
        by_title = [
            (title, [reason for reason in self.candidate.reasons if reason.kind == kind])
            for kind, title in _KINDS.items()
        ]
        return [(title, reasons) for title, reasons in by_title if reasons]

    @property
    def crowded(self) -> str:
        """The part of the time with more vCPUs ready to run there than CPUs; empty = never, or not known."""
        return time_part(self.candidate.crowded) if self.candidate.crowded else ""

    @property
    def shown(self) -> list[picture.IntervalRow]:
        """The new VM, and the neighbours whose figures change or who fare badly."""
        return self._shown_and_unaffected[0]

    @property
    def unaffected(self) -> list[picture.IntervalRow]:
        """The neighbours whose figures do not change noticeably; empty where there are fewer than FOLDED_FROM."""
        return self._shown_and_unaffected[1]

    @property
    def _shown_and_unaffected(self) -> tuple[list[picture.IntervalRow], list[picture.IntervalRow]]:
        quiet = [row for row in self.rows if _is_quiet(row)]
        if len(quiet) < FOLDED_FROM:
            return list(self.rows), []
        return [row for row in self.rows if not _is_quiet(row)], quiet

    @property
    def worst(self) -> picture.IntervalRow:
        """The instance that keeps least of its speed there."""
        return min(self.rows, key=lambda row: row.mark)

    @property
    def longest_short(self) -> str:
        """The largest contended time of any instance there; empty = not predicted."""
        effects = (self.candidate.new_vm, *self.candidate.neighbours)
        parts = [effect.cpu.short for effect in effects if effect.cpu]
        return time_part(max(parts)) if parts else ""

    @property
    def room(self) -> tuple[chart.Room, ...]:
        """How full CPUs, memory and network are before and after."""
        return chart.rooms(self.candidate.headroom)


@dataclass(frozen=True, slots=True)
class RecommendationView:
    """A recommendation, ready to be shown."""

    recommendation: Recommendation
    document: ReportDocument
    instance: Instance
    cards: tuple[Card, ...]
    current: Card | None = None  # where it is now, as it is
    tuned: tuple[Card, ...] = ()  # hosts after changes to their residents
    LISTED: ClassVar[int] = LISTED

    @property
    def best(self) -> Card | None:
        """The first card."""
        return self.cards[0] if self.cards else None

    @property
    def rejected(self) -> list[tuple[str, int]]:
        """How many hosts were rejected for which code, the most frequent first."""
        return Counter(rejection.code for rejection in self.recommendation.rejected).most_common()

    @property
    def age(self) -> str:
        """How old the data behind the answer is."""
        return picture.age_in_words(self.recommendation.snapshot_age_s)

    @property
    def advice(self) -> str:
        """How earlier answers about such instances held, and what to do to know more."""
        return " ".join(
            sentence for section in self.document.sections if section.id == "advice" for sentence in section.sentences
        )


def answer(recommendation: Recommendation, instance: Instance, limits: Mapping[str, float]) -> RecommendationView:
    """Lay it out; `limits` are the lowest ratios that neighbours accept."""
    learned = recommendation.model_version != "analytic"
    best = recommendation.candidates[0] if recommendation.candidates else None

    def card_of(candidate: Candidate) -> Card:
        lost = recommendation.unpins(candidate)
        return card(candidate, instance, limits, best=best.score if best else 0.0, learned=learned, is_unpinned=lost)

    cards = tuple(card_of(candidate) for candidate in recommendation.candidates)
    current = card_of(recommendation.present) if recommendation.present else None
    tuned = tuple(card_of(candidate) for candidate in recommendation.tuned)
    document = offline.placement_document(recommendation)
    return RecommendationView(recommendation, document, instance, cards, current, tuned)


def card(
    candidate: Candidate,
    instance: Instance,
    limits: Mapping[str, float],
    *,
    best: float,
    learned: bool,
    is_unpinned: bool = False,
) -> Card:
    """One candidate with every instance on its host: the new VM, then neighbours, the worst off first.

    `best` is the best score. A reader sees how far a score is behind it: by itself a score says little, and on crowded
    hosts it is below 0.
    """
    new_vm = picture.row(candidate.new_vm, new_vm=True, limit=instance.min_throughput_ratio)
    neighbours = sorted(candidate.neighbours, key=lambda effect: (effect.throughput_ratio.expected, effect.instance))
    rows = (
        new_vm,
        *(picture.row(neighbour, new_vm=False, limit=limits.get(neighbour.instance)) for neighbour in neighbours),
    )
    settings = settings_named(candidate.isolation)
    if is_unpinned:
        settings.insert(0, ("pin", "none, in place of the one that it has"))
    changes = [
        (name, settings_named(changed))
        for name, changed in candidate.changes.items()
        if not candidate.tuning  # whose steps say it
    ]
    behind = f"{best - candidate.score:.3f}" if best - candidate.score >= _SAME_SCORE else ""
    return Card(candidate, rows, settings, changes, candidate.host == instance.host, behind, learned)


def _is_quiet(row: picture.IntervalRow) -> bool:
    """Whether a neighbour fares well and no figure of it changes noticeably."""
    return not row.new_vm and row.level != "bad" and row.loss < UNNOTICED and row.longer < UNNOTICED


_ROWS = 25
_LAST = 100  # answers with an outcome, of which the share inside is taken


def listing(request: Request, outcomes: OutcomeDep, which: AnsweredAs = "real", cursor: Cursor = None) -> HTMLResponse:
    """Answers, newest first, predicted beside observed where an outcome was reported."""
    answers = outcomes.page(which=which, cursor=cursor, limit=_ROWS)
    reported = outcomes.page(which="reported", limit=_LAST)
    return page(
        request,
        "placements.html",
        rows=answers.items,
        next_cursor=answers.next_cursor,
        first=cursor is None,
        which=which,
        share=_share(reported.items),
        last=_LAST if reported.next_cursor else None,
    )


def show(request: Request, placement: PathId, outcomes: OutcomeDep) -> HTMLResponse:
    """One answer as it was given, and the outcome that was reported."""
    outcome = outcomes.get(placement)
    recommendation = outcome.recommendation
    instance = recommendation.request.instance
    limit = {instance.id: instance.min_throughput_ratio}
    return page(
        request,
        "placement.html",
        outcome=outcome,
        answer=answer(recommendation, instance, {}),
        objective=OBJECTIVE_WORDS[recommendation.request.objective],
        beside=[picture.beside(row, limit=limit.get(row.instance)) for row in outcome.beside],
        share=_share([outcome]),
    )


def _share(outcomes: Sequence[RecommendationOutcome]) -> tuple[int, int]:
    """How many of the measured ratios lie inside the predicted interval, and of how many."""
    inside = [row.inside for outcome in outcomes for row in outcome.beside if row.inside is not None]
    return sum(inside), len(inside)
