"""Runs are the same wherever they run: here, in processes, and on a real Dask cluster, even if a worker is killed."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator

import pytest

from advisor.domain import ReplayRequest
from advisor.errors import ClusterFailed, InvalidInput
from advisor.replay.parallel import spread
from models.scale import cluster
from tests.advisor.replay.replay_cases import made_trace, replayed, timeless
from tests.servers.dask import scheduler, workers

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Dask's own sockets at its end
REQUEST = ReplayRequest(("cotenant", "random"), hosts=4, history_s=1200, seeds=(1, 2), shards=2)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with scheduler() as found:
        yield found


def test_where_no_cluster_is_and_one_without_workers_are_said_in_one_sentence(address: str) -> None:
    with pytest.raises(ClusterFailed, match=r"has no workers; start one with `dask worker"):
        spread(math.sqrt, [1.0], scheduler=address)
    with pytest.raises(InvalidInput, match="is not an address such as tcp://host:8786"):
        spread(math.sqrt, [1.0], scheduler="localhost")


def test_a_replay_is_the_same_here_on_two_workers_and_on_one_which_fails_as_is_said_in_one_sentence(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "WATCH_S", 0.2)
    here = replayed(made_trace(), REQUEST)
    with workers(address) as both:
        there = replayed(made_trace(), REQUEST, scheduler=address)
        assert timeless(there.policies) == timeless(here.policies)
        said: list[float] = []

        def kill_one(_what: str, share: float) -> None:
            said.append(share)
            if 0 < share < 1 and both[0].poll() is None:
                os.kill(both[0].pid, signal.SIGKILL)
                both[0].wait(10)

        killed = replayed(made_trace(), REQUEST, scheduler=address, progress=kill_one)
        assert both[0].poll() == -signal.SIGKILL
        assert timeless(killed.policies) == timeless(here.policies)
        assert said[-1] == 1.0
        with pytest.raises(ValueError, match="math domain"):  # what a task raises is what is raised
            spread(math.sqrt, [4.0, -1.0], scheduler=address)

        with monkeypatch.context() as other_version:
            other_version.setattr(cluster, "_own_version", lambda: "0.0.other")
            with pytest.raises(ClusterFailed, match=r"runs Cotenant \S+, and this is 0\.0\.other; install the same"):
                spread(math.sqrt, [1.0], scheduler=address)

        def kill_the_last(_what: str, share: float) -> None:
            if share:
                both[1].kill()

        with pytest.raises(ClusterFailed, match=r"every worker of the cluster at \S+ went away; start it again"):
            spread(time.sleep, [0.0, 60.0, 61.0], scheduler=address, progress=kill_the_last)


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
    with pytest.raises(ClusterFailed, match="ended before it was done; it may have run out of memory"):
        spread(os._exit, [3, 3], processes=2)
