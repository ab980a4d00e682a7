"""Results that are computed when first asked for, and kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Once:
    """`once(name, work)` calls `work` for a name the first time only; for a field of a value that never changes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        if name not in self._known:
            self._known[name] = work()
        found: T = self._known[name]
        return found
