"""Tasks of a replay: their results in order wherever they run, and what the operator reads when that fails."""

from __future__ import annotations

import importlib.util
import math
import os

import pytest

from advisor.background import spread
from advisor.domain import ReplayRequest
from advisor.errors import InvalidInput, ProcessLost
from tests.advisor.replay.replay_cases import made_trace, replayed, timeless
from tests.servers.dask import scheduler, workers

REQUEST = ReplayRequest(("cotenant", "random"), hosts=4, history_s=1200, seeds=(1, 2), shards=2)


def test_processes_give_results_in_the_order_of_the_tasks_and_raise_what_a_task_raises() -> None:
    reported: list[float] = []
    found = spread(math.factorial, [2000, 3, 1], processes=2, progress=lambda _, share: reported.append(share))
    assert found == [math.factorial(2000), 6, 1]
    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    assert spread(math.sqrt, []) == []
    with pytest.raises(ValueError, match="math domain"):
        spread(math.sqrt, [1.0, -1.0], processes=2)


def test_a_process_that_dies_is_said_in_one_sentence() -> None:
    with pytest.raises(ProcessLost, match="ended before it was done; it may have run out of memory"):
        spread(os._exit, [3, 3], processes=2)


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not an address such as tcp://host:8786"):
        spread(math.sqrt, [1.0], cluster="localhost")


@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="Dask is not installed: make test-cluster installs it"
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Dask's own sockets at its end
def test_a_replay_on_two_workers_is_that_of_this_process() -> None:
    here = replayed(made_trace(), REQUEST, processes=1)
    with scheduler() as address, workers(address):
        there = replayed(made_trace(), REQUEST, cluster=address)
    assert timeless(there.policies) == timeless(here.policies)
