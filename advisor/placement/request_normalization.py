"""Answers without the newcomer's name: what was decided holds for whoever asks the same, whatever it is called."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from advisor.domain import Candidate, Effect, MitigationStep, PlacementRequest, Recommendation, Rejection
from advisor.snapshot import ClusterSnapshot

T = TypeVar("T")

# The name that stands for every newcomer's. Nobody can guess it, so no other text holds it, by chance or by intent.
NEWCOMER = f"newcomer-{secrets.token_hex(16)}"

# What every tool takes for the name of an instance and nothing else: `advisor.render.names` says which names are not.
_PLAIN = re.compile(r"(?!Domain-0\Z)(?=.*[A-Za-z])[A-Za-z0-9][A-Za-z0-9._:-]{0,59}\Z")


def nameless(request: PlacementRequest, snapshot: ClusterSnapshot) -> PlacementRequest:
    """The question with NEWCOMER in the place of the name and without `dry_run`, neither of which decides anything.

    The name stays where it does: where the snapshot has an instance of that name, in commands, which may shorten names,
    where tools would read the name otherwise, and as the name of a profile of its own, by which a model may know it.
    """
    name, asked = request.instance.id, replace(request, dry_run=False)
    if request.commands or request.profile is not None or not _PLAIN.match(name) or snapshot.where(name):
        return asked
    return replace(asked, instance=replace(request.instance, id=NEWCOMER))


def named(answer: Recommendation, name: str) -> Recommendation:
    """What was decided of a nameless question as it is said of an instance of this name."""
    return replace(
        answer,
        candidates=tuple(_candidate(one, name) for one in answer.candidates),
        rejected=tuple(_rejection(one, name) for one in answer.rejected),
        notes=_texts(answer.notes, name),
    )


def _candidate(one: Candidate, name: str) -> Candidate:
    """Neighbours and their changes are told under their own names."""
    return replace(
        one,
        newcomer=_effect(one.newcomer, name),
        reasons=tuple(
            replace(why, text=_text(why.text, name), neighbour=_who(why.neighbour, name)) for why in one.reasons
        ),
        rungs=tuple(_rung(rung, name) for rung in one.rungs),
    )


def _rejection(one: Rejection, name: str) -> Rejection:
    if NEWCOMER not in one.reason and not one.rungs:
        return one
    return replace(one, reason=_text(one.reason, name), rungs=tuple(_rung(rung, name) for rung in one.rungs))


def _rung(one: MitigationStep, name: str) -> MitigationStep:
    return replace(
        one,
        text=_text(one.text, name),
        changes=_keys(one.changes, name),
        effects=tuple(_effect(effect, name) for effect in one.effects),
        notes=_texts(one.notes, name),
    )


def _effect(one: Effect, name: str) -> Effect:
    return replace(one, instance=name) if one.instance == NEWCOMER else one


def _keys(changes: Mapping[str, T], name: str) -> dict[str, T]:
    return {name if who == NEWCOMER else who: what for who, what in changes.items()}


def _who(one: str | None, name: str) -> str | None:
    return name if one == NEWCOMER else one


def _texts(some: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(_text(one, name) for one in some)


def _text(one: str, name: str) -> str:
    return one.replace(NEWCOMER, name)
