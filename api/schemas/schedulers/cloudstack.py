"""Schemas of a plan that is handed over to CloudStack's own DRS."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import AnswerBody, Figure


class DrsMove(AnswerBody):
    """One migration, and why."""

    virtualmachine: str = Field(description="UUID of the virtual machine")
    source: str = Field(description="UUID of the host that it is on")
    destination: str = Field(description="UUID of the host that it should move to")
    gain: Figure = Field(description="harm that it takes away, see `gain` of a plan's steps")
    reason: str = Field(description="why, as a sentence")


class DrsPlan(AnswerBody):
    """Migrations within a cluster that pay beyond uncertainty."""

    cluster: str = Field(description="UUID of the cluster")
    moves: list[DrsMove] = Field(description="migrations, in the order in which they should be made")
    parameters: dict[str, str] = Field(
        description="of the API call executeClusterDrsPlan, to be signed and sent as they are; empty = nothing to move"
    )
