"""A service that is read into, and asked."""

from __future__ import annotations

from tests.servers.services import advisor, client, equal, settings

__all__ = ["advisor", "client", "equal", "settings"]
