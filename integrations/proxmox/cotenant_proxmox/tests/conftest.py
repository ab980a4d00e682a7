"""A service that what is read is followed into."""

from __future__ import annotations

from tests.advisor.inventories.conftest import advisor

__all__ = ["advisor"]
