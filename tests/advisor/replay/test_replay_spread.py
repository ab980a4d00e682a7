"""Tasks in processes: their results in order, and what is said when one dies."""

from __future__ import annotations

import math
import os

import pytest

from advisor.errors import ProcessLost
from advisor.replay.parallel import spread


def test_processes_give_results_in_the_order_of_the_tasks_and_raise_what_a_task_raises() -> None:
    told: list[float] = []
    found = spread(math.factorial, [2000, 3, 1], processes=2, progress=lambda _, share: told.append(share))
    assert found == [math.factorial(2000), 6, 1]
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert spread(math.sqrt, []) == []
    with pytest.raises(ValueError, match="math domain"):
        spread(math.sqrt, [1.0, -1.0], processes=2)


def test_a_process_that_dies_is_said_in_one_sentence() -> None:
    with pytest.raises(ProcessLost, match="ended before it was done; it may have run out of memory"):
        spread(os._exit, [3, 3], processes=2)
