"""Schemas of a plan that is handed over to CloudStack's own DRS."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import AnswerBody, Figure


class DrsMove(AnswerBody):
    """One migration, and why."""

    virtualmachine: str
    source: str
    destination: str
    gain: Figure = Field(description="harm that it takes away, see `gain` of a plan's steps")
    reason: str


class DrsPlan(AnswerBody):
    """Migrations within a cluster that pay beyond uncertainty."""

    cluster: str
    moves: list[DrsMove]
    parameters: dict[str, str] = Field(
        description="of the API call executeClusterDrsPlan, to be signed and sent as they are; empty = nothing to move"
    )
