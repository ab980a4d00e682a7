"""What a measurement plan of the advisor needs to know of the lab: found by the entry point `cotenant.campaigns`."""

from __future__ import annotations

from pathlib import Path

from lab.campaign import read_campaign
from lab.errors import CampaignError
from lab.fields import Fields
from lab.workloads import KINDS


def check(path: Path) -> None:
    """ValueError, in one sentence, where a file is no campaign that the lab runs."""
    try:
        read_campaign(path)
    except CampaignError as error:
        raise ValueError(str(error)) from error


def runnable_kinds() -> tuple[str, ...]:
    """The kinds of workloads that need no parameters."""
    return tuple(kind for kind in KINDS if _runs_as_is(kind))


def _runs_as_is(kind: str) -> bool:
    try:
        KINDS[kind].of(Fields("", kind, {}))
    except CampaignError:
        return False
    return True
