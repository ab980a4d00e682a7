"""The registry of models: judged by the gate, activated one at a time, rolled back; never a broken one.

Artifacts are read outside of transactions. What was judged against a model that no longer answers when it is to be
written is refused, so that of two changes at once one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.access.audit import Audit
from advisor.domain import Activation, ModelCard
from advisor.errors import BrokenArtifact, Conflict, NotFound, RefusedByGate
from advisor.lifecycle import training
from advisor.prediction import active as predictors
from advisor.store import counters, models
from advisor.store.models import ANALYTIC
from advisor.store.transactions import Transaction
from models.physics.prior import PriorPredictor

if TYPE_CHECKING:
    from models.evaluation.gate import GateVerdict
    from models.learning.held_out import HeldOutPredictions

_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class ModelRegistry:
    """The registered models: at most one active and one in shadow, the analytic model ("analytic") where none is.

    `read` and `write` open a transaction, artifacts lie below `model_dir`.
    """

    model_dir: Path
    read: Transaction
    write: Transaction
    clock: Callable[[], datetime]
    audit: Audit

    def listing(self) -> tuple[ModelCard, ...]:
        """Every registered model, newest first, and last the analytic model."""
        with self.read() as connection:
            cards = models.load_all(connection)
        return (*cards, _prior_card(is_active=all(card.status != "active" for card in cards)))

    def get(self, version: str) -> ModelCard:
        """NotFound when it is not registered."""
        with self.read() as connection:
            if version == ANALYTIC:
                return _prior_card(is_active=models.active(connection) is None)
            card = models.get(connection, version)
        if card is None:
            raise NotFound(f"there is no model {version}")
        return card

    def history(self, version: str | None = None) -> tuple[Activation, ...]:
        """Every change of the model that answers, oldest first; with a version those to and from it."""
        with self.read() as connection:
            activations = models.history(connection)
        return tuple(activation for activation in activations if version in {None, activation.before, activation.after})

    def register(self, artifact: Path) -> ModelCard:
        """Take an artifact in as a candidate, with the gate's verdict; one that is listed already keeps its status."""
        card = training.adopt(artifact, self.model_dir, self.clock())
        with self.read() as connection:
            registered, active = models.get(connection, card.version), _version(models.active(connection))
        if registered is not None:
            return registered
        verdict = self._judge(card.version, active)
        with self.write() as connection:
            models.add(connection, replace(card, verdict=verdict.to_json()))
            self.audit.record(connection, "model.register", [card.version], passed=verdict.passed)
        return self.get(card.version)

    def register_named(self, version: str) -> ModelCard:
        """The same of an artifact in the model directory, by the name of its folder; NotFound where there is none."""
        artifact = self.model_dir / version
        if not artifact.is_dir():
            raise NotFound(f"there is no model {version}, and no such artifact in the model directory", field="version")
        return self.register(artifact)

    def judge(self, version: str) -> ModelCard:
        """Put a model before the gate again, against the model that answers now, and store the verdict; the prior needs
        none."""
        card = self.get(version)
        if version == ANALYTIC:
            return card
        with self.read() as connection:
            active = _version(models.active(connection))
        verdict = self._judge(version, active)
        with self.write() as connection:
            models.set_verdict(connection, version, verdict.to_json())
            self.audit.record(connection, "model.judge", [version], passed=verdict.passed)
        return self.get(version)

    def activate(self, version: str, *, force: bool = False) -> ModelCard:
        """Let a model answer and retire the former one; "analytic" lets the analytic model answer alone.

        It is judged against the model that answers now, whatever its training said. BrokenArtifact when it cannot be
        read, RefusedByGate unless forced, Conflict when another model was activated meanwhile: nothing changes then.
        """
        if self.get(version).status == "active":
            return self.get(version)
        with self.read() as connection:
            active = _version(models.active(connection))
        if version == ANALYTIC:  # the way out of every trouble: neither judged nor refused
            self._switch(active, None, "activate")
            return self.get(version)
        predictors.load_tried(self.model_dir / version)
        verdict = self._judge(version, active)
        if not verdict.passed and not force:
            with self.write() as connection:
                models.set_verdict(connection, version, verdict.to_json())
                self.audit.record(connection, "model.refuse", [version])
            why = " ".join(verdict.refusals).rstrip(".")
            raise RefusedByGate(f"model {version} is refused by the gate ({why}); train on more, or activate by force")
        self._switch(active, version, "activate" if verdict.passed else "force", verdict.to_json())
        return self.get(version)

    def roll_back(self, of: str | None = None) -> ModelCard:
        """Let the model answer that did before the one that answers now; Conflict when there was none.

        `of` is the one that is to answer no more: Conflict when another one answers meanwhile. Not judged.
        BrokenArtifact, and no change, when the artifact cannot be read any more.
        """
        with self.read() as connection:
            active = _version(models.active(connection))
            target = way_back(models.history(connection))
        if of is not None and (active or ANALYTIC) != of:
            raise Conflict(f"{of} does not answer any more; look at the list, then decide anew")
        if target is None:
            raise Conflict(f"nothing answered before {active or ANALYTIC}, so there is no way back; activate a model")
        if target != ANALYTIC:
            predictors.load_tried(self.model_dir / target)
        self._switch(active, None if target == ANALYTIC else target, "rollback")
        return self.get(target)

    def shadow(self, version: str) -> ModelCard:
        """Let a model be scored beside the active one, instead of a former one; "analytic" ends that for all.

        Conflict when it is the active one, BrokenArtifact when it cannot be read.
        """
        if version != ANALYTIC:
            self.get(version)
            predictors.load_tried(self.model_dir / version)
        with self.write() as connection:
            counters.bump(connection, "models")
            if version == _version(models.active(connection)):
                raise Conflict(f"model {version} answers already: choose another one to be scored beside it")
            models.shadow(connection, None if version == ANALYTIC else version)
            self.audit.record(connection, "model.shadow", [version])
        return self.get(version)

    def _switch(
        self, expected: str | None, version: str | None, cause: str, verdict: Mapping[str, Any] | None = None
    ) -> None:
        """Change which answers, in one transaction, if that is still `expected`."""
        with self.write() as connection:
            counters.bump(connection, "models")  # first: it makes other writers wait
            active = _version(models.active(connection))
            if active != expected:
                raise Conflict(f"{active or ANALYTIC} was activated meanwhile; look at the list, then decide anew")
            models.activate(connection, version)
            if version is not None and verdict is not None:
                models.set_verdict(connection, version, verdict)
            models.record(connection, Activation(self.clock(), active or ANALYTIC, version or ANALYTIC, cause))
            self.audit.record(
                connection, "model.activate", [version or ANALYTIC], before=active or ANALYTIC, cause=cause
            )

    def _judge(self, version: str, active: str | None) -> GateVerdict:
        from models.evaluation.gate import gate

        candidate = self._held_out(version)
        if active is None:
            return gate(candidate, None)
        try:
            others = self._held_out(active)
        except BrokenArtifact as error:  # a broken model keeps no other from taking its place
            verdict = gate(candidate, (), against=active)
            return replace(verdict, reasons=(*verdict.reasons, f"The active {error.message}."))
        return gate(candidate, others, against=active)

    def _held_out(self, version: str) -> Sequence[HeldOutPredictions]:
        from models.learning.artifact import read_card
        from models.learning.held_out import held_out_of

        path = self.model_dir / version
        try:
            read_card(path)  # checks the checksums
            return held_out_of(path)
        except ValueError as error:
            raise BrokenArtifact(f"model {version} cannot be used: {error}") from error


def way_back(history: Sequence[Activation]) -> str | None:
    """The model that answered before the one that answers now, None when there was none.

    A rollback undoes the activation before it, so that two of them in a row go back two steps.
    """
    answered = [history[0].before] if history else []
    for activation in history:
        if activation.cause == "rollback":
            answered.pop()
        else:
            answered.append(activation.after)
    return answered[-2] if len(answered) > 1 else None


def _version(card: ModelCard | None) -> str | None:
    return None if card is None else card.version


def _prior_card(*, is_active: bool) -> ModelCard:
    prior = PriorPredictor()
    card = {"kind": "analytic model", "trained": False}
    return ModelCard(ANALYTIC, "active" if is_active else "candidate", _LONG_AGO, prior.origin, card)
