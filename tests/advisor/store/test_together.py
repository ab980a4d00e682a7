"""Work of many threads in few transactions: each gets its own result or its own error, and none waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from advisor.store.transactions import MOST_TOGETHER, Together


def test_those_that_come_while_one_is_at_it_go_together() -> None:
    begun, may_end = threading.Event(), threading.Event()
    parts: list[Sequence[int]] = []

    def work(items: Sequence[int]) -> list[int]:
        parts.append(list(items))
        begun.set()
        assert may_end.wait(30)
        return [10 * item for item in items]

    together = Together(work)
    with ThreadPoolExecutor(100) as pool:
        first = pool.submit(together, 0)
        assert begun.wait(30)
        others = [pool.submit(together, item) for item in range(1, 80)]
        while len(together._waiting) < 79:
            threading.Event().wait(0.001)
        may_end.set()
        assert first.result(30) == 0
        assert [other.result(30) for other in others] == [10 * item for item in range(1, 80)]
    assert [len(part) for part in parts] == [1, MOST_TOGETHER, MOST_TOGETHER, 79 - 2 * MOST_TOGETHER]
    assert together(5) == 50, "the next one waits for no other"


@pytest.mark.parametrize("threads", [1, 8])
def test_an_error_is_that_of_the_one_that_it_is_about(threads: int) -> None:
    def work(items: Sequence[int]) -> list[int]:
        if any(item % 3 == 0 for item in items):
            raise ValueError(f"not {items[0]}")
        return list(items)

    together = Together(work)
    with ThreadPoolExecutor(threads) as pool:
        found = [pool.submit(together, item) for item in range(200)]
        for item, one in enumerate(found):
            if item % 3:
                assert one.result(30) == item
            else:
                assert str(one.exception(30)) == f"not {item}"
