"""Several who work at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(*works: Callable[[], T]) -> list[T]:
    """What each returned in a thread of its own, all begun together; raises what one of them raised."""
    begun = threading.Barrier(len(works))

    def run(work: Callable[[], T]) -> T:
        begun.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as threads:
        return [each.result() for each in [threads.submit(run, work) for work in works]]
