"""A service that is read into, and asked."""

from __future__ import annotations

from tests.servers.services import advisor, settings

__all__ = ["advisor", "settings"]
