"""What an instance obtained, as it was measured."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field

from advisor.domain.figures import Known


@dataclass(frozen=True, slots=True)
class Obtained:
    """One thing that says what an instance obtained, by windows of five minutes."""

    metric: Annotated[str, Field(description="`cpu_share`, of which less is worse, or a metric of which more is worse")]
    unit: Annotated[str, Field(description="unit of the values; empty = a share from 0 to 1")]
    help: Annotated[str, Field(description="what it is")]
    mean: Annotated[Known, Field(description="mean over the windows")]
    tail: Annotated[Known, Field(description="95 % of the windows were no worse")]
    worst: Annotated[Known, Field(description="the worst window")]
    windows: Annotated[int, Field(description="windows in which it was measured")]


@dataclass(frozen=True, slots=True)
class InstanceObtained:
    """What an instance obtained, the share of CPU time first; what its host does not measure is left out."""

    instance: Annotated[str, Field(description="the instance")]
    begin: Annotated[datetime, Field(description="since when it was measured")]
    end: Annotated[datetime, Field(description="until when")]
    outcomes: Annotated[tuple[Obtained, ...], Field(description="what was measured")]
    elsewhere: Annotated[bool, Field(description="true = the store of `COTENANT_PROMETHEUS_URL` was asked")] = False
