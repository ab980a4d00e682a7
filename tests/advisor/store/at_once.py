"""Several who do the same at the same time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(number: int, work: Callable[[], T]) -> list[T]:
    """What `work` returned in each of so many threads; raises what one of them raised."""
    with ThreadPoolExecutor(number) as pool:
        return [each.result() for each in [pool.submit(work) for _ in range(number)]]
