"""A slice of a listing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A slice of a listing; `next_cursor` None = the end."""

    items: tuple[T, ...]
    next_cursor: str | None = None
