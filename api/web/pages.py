"""The pages: the question with its ranked answer on `/`, and the description of the API on `/docs`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from advisor.domain import OBJECTIVES, Candidate, Instance, Recommendation
from advisor.errors import InvalidInput, NotFound
from advisor.service import Advisor
from api.problems import KINDS
from api.routes.common import AdvisorDep
from api.web import picture
from api.web.describe import describe, shapes
from api.web.form import Form
from api.web.render import page

_OFFERED = 500  # instances and workloads in the pick lists; any other name can be typed or asked for through the API


@dataclass(frozen=True, slots=True)
class Card:
    """One candidate, ready to be shown."""

    candidate: Candidate
    rows: tuple[picture.Row, ...]
    settings: list[tuple[str, str]]
    changes: list[tuple[str, list[tuple[str, str]]]]  # what neighbours get, by name
    here: bool  # the instance is on this host already


@dataclass(frozen=True, slots=True)
class Answer:
    """A recommendation, ready to be shown."""

    recommendation: Recommendation
    instance: Instance
    cards: tuple[Card, ...]
    current: Card | None  # where it is now, when that is not among the cards
    stay: bool  # it is already where it is best off, or nowhere surely better

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


def where(request: Request, advisor: AdvisorDep) -> HTMLResponse:
    """Where should this instance go? A form and the ranked answer."""
    form = Form.read(request.query_params)
    state = advisor.ready()
    answer = _answer(form, advisor) if form.asked else None
    return page(
        "where.html",
        status=422 if form.errors else 200,
        form=form,
        answer=answer,
        state=state,
        age=picture.age_in_words,
        instances=[(one.id, one.host) for one in advisor.instances(limit=_OFFERED).items],
        workloads=[one.name for one in advisor.workloads(limit=_OFFERED).items],
        objectives=OBJECTIVES,
        picture=picture,
    )


def docs(request: Request) -> HTMLResponse:
    """Every operation, its fields and its problems, from the OpenAPI document."""
    document: dict[str, Any] = request.app.openapi()
    return page("docs.html", document=document, groups=describe(document), shapes=shapes(document), kinds=KINDS)


def _answer(form: Form, advisor: Advisor) -> Answer | None:
    try:
        instance = _anew(advisor.instance(form.existing)) if form.existing else form.new_instance()
        if instance is None:
            return None
        recommendation = advisor.place(form.request(instance))
        limits = _limits(advisor, recommendation)
        cards = tuple(_card(candidate, instance, limits) for candidate in recommendation.candidates)
        current = None
        if instance.host and not any(card.here for card in cards):
            there = advisor.place(form.request(instance, hosts=(instance.host,))).candidates
            current = _card(there[0], instance, limits) if there else None
    except NotFound as error:
        form.errors["instance"] = error.message
        return None
    except InvalidInput as error:
        form.blame(error)
        return None
    stay = bool(cards) and (cards[0].here or instance.host in cards[0].candidate.tied_with)
    return Answer(recommendation, instance, cards, current, stay)


def _anew(instance: Instance) -> Instance:
    """An instance as it may be moved: its pinning speaks of the pCPUs of the host that it leaves."""
    return replace(instance, settings=replace(instance.settings, pinning=None))


def _card(candidate: Candidate, instance: Instance, limits: dict[str, float]) -> Card:
    newcomer = picture.row(candidate.newcomer, newcomer=True, limit=instance.min_throughput_ratio)
    neighbours = sorted(candidate.neighbours, key=lambda one: (one.throughput_ratio.expected, one.instance))
    rows = (newcomer, *(picture.row(one, newcomer=False, limit=limits.get(one.instance)) for one in neighbours))
    settings = picture.settings_in_words(candidate.isolation)
    changes = [(name, picture.settings_in_words(wanted)) for name, wanted in candidate.changes.items()]
    return Card(candidate, rows, settings, changes, candidate.host == instance.host)


def _limits(advisor: Advisor, recommendation: Recommendation) -> dict[str, float]:
    """The limits of everybody on the candidate hosts; a neighbour that left meanwhile has none."""
    found = {}
    for candidate in recommendation.candidates:
        for neighbour in advisor.instances(host=candidate.host, limit=_OFFERED).items:
            if neighbour.min_throughput_ratio is not None:
                found[neighbour.id] = neighbour.min_throughput_ratio
    return found
