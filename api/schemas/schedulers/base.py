"""What the schedulers' schemas share: bodies of other programs may hold more fields than we read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.base import TEXT_PATTERN


class Incoming(BaseModel):
    """Base of what other schedulers send: unknown fields pass, numbers are finite, values do not change."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


HostName = Annotated[str, Field(pattern=TEXT_PATTERN, min_length=1, max_length=255)]
MOST_HOSTS = 10_000
