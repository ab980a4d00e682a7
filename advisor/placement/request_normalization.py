"""Requests without the new VM's name, so that cached answers apply to any name."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from advisor.domain import Candidate, Effect, Instance, MitigationStep, PlacementRequest, Recommendation, Rejection
from advisor.snapshot import ClusterSnapshot
from models.data.demand_classes import stem_of
from models.data.scene import INSTANCE

T = TypeVar("T")

# The stand-in for every new VM's name. It cannot be guessed, so no other text contains it.
NEW_VM = f"newcomer-{secrets.token_hex(16)}"

# Names that every tool reads as the name of an instance; `advisor.render.names` lists the others.
_PLAIN = re.compile(r"(?!Domain-0\Z)(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._:-]{0,59}\Z")


def without_name(request: PlacementRequest, snapshot: ClusterSnapshot) -> PlacementRequest:
    """The request with NEW_VM as the name and without `dry_run`; neither affects the decision.

    The name stays where it does: if the snapshot has an instance of that name, where results were posted of it, in
    commands (tools shorten names or read some differently), and with a profile of its own, by which a model may know
    it.
    """
    name, question = request.instance.id, replace(request, dry_run=False)
    posted = INSTANCE + name in snapshot.scenes.table.subjects
    if request.commands or request.profile is not None or not _PLAIN.match(name) or snapshot.where(name) or posted:
        return question
    return replace(question, instance=_nameless(request.instance, snapshot))


def _nameless(instance: Instance, snapshot: ClusterSnapshot) -> Instance:
    """The instance under the name of every new VM; where its own name tells what it is like, a label keeps that."""
    stem, labels = stem_of(instance), instance.labels
    if stem and "name" not in labels and snapshot.names.classes.knows("name", stem):
        labels = {**labels, "name": f"{stem}-0"}
    return replace(instance, id=NEW_VM, labels=labels)


def with_name(answer: Recommendation, name: str) -> Recommendation:
    """An answer to a request without a name, for an instance with this name."""
    return replace(
        answer,
        candidates=tuple(_candidate(candidate, name) for candidate in answer.candidates),
        rejected=tuple(_rejection(rejection, name) for rejection in answer.rejected),
        notes=_texts(answer.notes, name),
    )


def _candidate(candidate: Candidate, name: str) -> Candidate:
    """A candidate; neighbours and their changes keep their names."""
    return replace(
        candidate,
        new_vm=_effect(candidate.new_vm, name),
        reasons=tuple(
            replace(why, text=_text(why.text, name), neighbour=_renamed(why.neighbour, name))
            for why in candidate.reasons
        ),
        mitigation=tuple(_mitigation_step(step, name) for step in candidate.mitigation),
    )


def _rejection(rejection: Rejection, name: str) -> Rejection:
    if NEW_VM not in rejection.reason and not rejection.mitigation:
        return rejection
    return replace(
        rejection,
        reason=_text(rejection.reason, name),
        mitigation=tuple(_mitigation_step(step, name) for step in rejection.mitigation),
    )


def _mitigation_step(step: MitigationStep, name: str) -> MitigationStep:
    return replace(
        step,
        text=_text(step.text, name),
        changes=_keys(step.changes, name),
        effects=tuple(_effect(effect, name) for effect in step.effects),
        notes=_texts(step.notes, name),
    )


def _effect(effect: Effect, name: str) -> Effect:
    return replace(effect, instance=name) if effect.instance == NEW_VM else effect


def _keys(changes: Mapping[str, T], name: str) -> dict[str, T]:
    return {name if who == NEW_VM else who: what for who, what in changes.items()}


def _renamed(instance: str | None, name: str) -> str | None:
    return name if instance == NEW_VM else instance


def _texts(texts: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(_text(text, name) for text in texts)


def _text(text: str, name: str) -> str:
    return text.replace(NEW_VM, name)
