"""Heavy work gives the same results here, in processes, and on a real Dask cluster, even where a worker is killed."""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Iterator

import pytest

from models import executor as executors
from models.executor import WorkersLostError, each, executor
from tests.servers.dask import process_id, scheduler, slowly, workers

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="Dask is not installed: make test-cluster installs it"
)
of_dask = pytest.mark.filterwarnings("ignore::ResourceWarning")  # its own sockets at its end


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with scheduler() as found:
        yield found


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_tasks(processes: int) -> None:
    counts: list[int] = []
    with executor(processes) as run:
        found = each(run, math.factorial, [2000, 3, 1, *range(20)], counts.append)
        assert each(run, math.sqrt, []) == []
        with pytest.raises(ValueError, match="math domain"):
            each(run, math.sqrt, [1.0, -1.0])
    assert found == [math.factorial(2000), 6, 1, *map(math.factorial, range(20))]
    assert counts == list(range(1, 24))


def test_tasks_are_taken_only_as_there_is_room_for_them() -> None:
    taken: list[int] = []
    left: list[int] = []

    def made() -> Iterator[int]:
        for task in range(10):
            taken.append(task)
            yield task

    with executor(1) as run:
        found = each(run, math.factorial, made(), lambda count: left.append(len(taken) - count))
    assert found == [math.factorial(task) for task in range(10)]
    assert max(left) <= 1


def test_one_process_is_this_one() -> None:
    with executor(1) as run:
        assert each(run, process_id, [0]) == [os.getpid()]


def test_a_process_that_dies_is_an_error() -> None:
    with executor(2) as run, pytest.raises(WorkersLostError, match="may have run out of memory"):
        each(run, os._exit, [3, 3])


@pytest.mark.parametrize("address", ["localhost", "http://host:80", "tcp://host", "tcp://host:8786 x", ""])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as tcp://host:8786"), executor(cluster=address):
        pass


def test_without_dask_the_operator_reads_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'cotenant\[cluster\]'"), executor(cluster="tcp://127.0.0.1:1"):
        pass


@needs_dask
@of_dask
def test_where_no_cluster_is_or_one_without_workers_is_an_error(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 0.5)
    with pytest.raises(WorkersLostError, match="no Dask scheduler answers"), executor(cluster="tcp://127.0.0.1:9"):
        pass
    with (
        pytest.raises(WorkersLostError, match="has no workers; start one with `dask worker"),
        executor(cluster=address),
    ):
        pass


@needs_dask
@of_dask
def test_two_workers_give_what_one_process_gives_and_one_killed_is_replaced(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "WATCH_S", 0.2)
    tasks = [2000, 3, 1, *range(20)]
    with workers(address) as both:
        with executor(cluster=address) as run:
            assert executors.at_once(run) == 2
            assert each(run, math.factorial, tasks) == [math.factorial(task) for task in tasks]
            with pytest.raises(ValueError, match="math domain"):
                each(run, math.sqrt, [4.0, -1.0])
            processes = set(each(run, process_id, list(range(20))))
            assert processes <= {one.pid for one in both}

            def kill_one(_count: int) -> None:
                if both[0].poll() is None:
                    both[0].kill()
                    both[0].wait(10)

            assert each(run, slowly, list(range(6)), kill_one) == list(range(6))
        with monkeypatch.context() as other_version:
            other_version.setattr(executors, "version", lambda _name: "0.0.other")
            expected = pytest.raises(WorkersLostError, match=r"runs Cotenant \S+, and this is 0\.0\.other")
            with expected, executor(cluster=address):
                pass

        def kill_the_last(_count: int) -> None:
            both[1].kill()
            both[1].wait(10)

        with executor(cluster=address) as run, pytest.raises(WorkersLostError, match="has no workers"):
            each(run, time.sleep, [0.0, 60.0, 61.0], kill_the_last)
