"""Asks a running Cotenant service: `Client`, and `AsyncClient` for asyncio. docs/client.md shows how."""

from cotenant_client.calls import path_of
from cotenant_client.client import AsyncClient, Client
from cotenant_client.errors import (
    BadAnswer,
    Conflict,
    CotenantError,
    InvalidInput,
    NotFound,
    Refused,
    Unauthorised,
    Unavailable,
)

__all__ = [
    "AsyncClient",
    "BadAnswer",
    "Client",
    "Conflict",
    "CotenantError",
    "InvalidInput",
    "NotFound",
    "Refused",
    "Unauthorised",
    "Unavailable",
    "path_of",
]
