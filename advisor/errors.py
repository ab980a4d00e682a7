"""Errors of the advisor, each with one sentence that says what to do."""

from __future__ import annotations


class AdvisorError(Exception):
    """Root. `code` is stable and documented; `field` names the part of the input that is wrong, where there is one."""

    code = "internal"

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class InvalidInput(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """Something from outside breaks a rule; nothing was written."""

    code = "input.invalid"


class NotFound(AdvisorError):  # noqa: N818
    """What was named does not exist."""

    code = "not_found"


class Conflict(AdvisorError):  # noqa: N818
    """The state moved on since the caller looked, or the change contradicts it."""

    code = "conflict"


class StaleGeneration(Conflict):
    """An inventory was sent for a generation that is no longer the current one."""

    code = "conflict.generation"


class PreconditionFailed(Conflict):
    """What was to be changed is not what the caller said it was; nothing was written."""

    code = "precondition.failed"


class KeyReused(InvalidInput):
    """A caller's idempotency key was used for another request; nothing was done."""

    code = "idempotency.reused"


class KeyInUse(Conflict):
    """A request with the same idempotency key is being worked on."""

    code = "idempotency.in_use"


class BrokenArtifact(AdvisorError):  # noqa: N818
    """A model artifact is missing, truncated, foreign or fails its checksum; the active model stays."""

    code = "model.broken"


class RefusedByGate(Conflict):
    """A model is worse on held-out data than the prior or the active model, or its intervals hold too little."""

    code = "model.refused"


class ProcessLost(AdvisorError):  # noqa: N818
    """A process or cluster that was to do a part of the work ended early, or is not there; nothing was written."""

    code = "process.lost"


class SeriesUnavailable(AdvisorError):  # noqa: N818
    """The store that measured series are read from does not answer, or not as one."""

    code = "series.unavailable"


class CellsUnavailable(AdvisorError):  # noqa: N818
    """None of the services of the cells answers."""

    code = "cells.unavailable"


class StorageUnavailable(AdvisorError):  # noqa: N818
    """The database does not answer or cannot write."""

    code = "storage.unavailable"


class StorageLocked(StorageUnavailable):
    """Another writer holds what this one waits for."""


class OutOfSpace(StorageUnavailable):
    """The disk is full: reads go on, writes are refused."""

    code = "storage.full"


class StorageDamaged(StorageUnavailable):
    """What is stored cannot be read any more: a disk, memory or a copy has damaged it."""

    code = "storage.damaged"


class SchemaMismatch(StorageUnavailable):
    """The database was written by another version of Cotenant, or by another program."""

    code = "storage.schema"


class IdentityUnavailable(AdvisorError):  # noqa: N818
    """Keystone cannot say whose token it is; no access is granted by it meanwhile."""

    code = "auth.unavailable"


class DeadlinePassed(AdvisorError):  # noqa: N818
    """The time that was given for an answer is over; what was asked is not worked on any further."""

    code = "deadline.passed"


# Messages of libraries about wrong input, as Cotenant shows them.


def own_words(message: str) -> str:
    """A message without the words that pydantic puts before a validator's; Typer checks options by pydantic, too."""
    return message.removeprefix("Value error, ")
