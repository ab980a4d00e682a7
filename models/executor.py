"""Where heavy work runs: here, in processes of this machine, or on the workers of a Dask cluster.

All three are a `concurrent.futures.Executor`, and `each` gives them tasks. Only this module knows Dask, which is an
extra: `pip install cotenant[cluster]`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

ADDRESS = re.compile(r"(tcp|tls)://[^\s/:]+:\d{1,5}")
CONNECT_S = 10.0  # until a scheduler has answered
WATCH_S = 1.0  # between two looks at whether the workers of a cluster are still there
WAITING = 1  # tasks that are handed over before there is a process or worker for them: their rows are held twice


class WorkersLostError(RuntimeError):
    """Processes or workers cannot be had, or ended before their work was done; the message says which."""


class NoClusterError(ValueError):
    """What should be the address of a cluster is none, or Dask is not installed; the message says which."""


class Here(Executor):
    """Runs a task in this process, when it is submitted."""

    at_once = 1

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        done: Future[Result] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised where the result is asked for
            done.set_exception(error)
        return done


class Processes(ProcessPoolExecutor):
    """Processes of this machine, each started anew: a fork of one that has threads, such as LightGBM's, may hang."""

    def __init__(self, count: int) -> None:
        super().__init__(count, mp_context=get_context("spawn"))
        self.at_once = count


class OnCluster(Executor):
    """The workers that a Dask scheduler has."""

    def __init__(self, address: str) -> None:
        import distributed

        self._address = address
        try:
            self._client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise WorkersLostError(f"no Dask scheduler answers at {address}: {error}") from error
        try:
            self.check()
            self._check_versions()
        except BaseException:
            self._client.close()
            raise
        self._inner = self._client.get_executor(pure=False)

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # a task brings its rows
            found: Future[Result] = self._inner.submit(fn, *args, **kwargs)
        return found

    def check(self) -> None:
        """WorkersLostError where no worker is there."""
        with suppress(OSError, TimeoutError):
            if self._client.scheduler_info(-1)["workers"] and self._client.status == "running":
                return
        raise WorkersLostError(f"the Dask cluster at {self._address} has no workers; start one with `dask worker`")

    @property
    def at_once(self) -> int:
        """How many tasks run at a time."""
        return max(int(sum(self._client.nthreads().values())), 1)

    def _check_versions(self) -> None:
        """Workers with another version may fit another model from the same rows."""
        try:
            found = set(self._client.run(own_version).values())
        except Exception as error:
            raise WorkersLostError(f"a worker at {self._address} cannot run Cotenant: {error}") from error
        if found != {own_version()}:
            raise WorkersLostError(
                f"a worker at {self._address} runs Cotenant {', '.join(sorted(found))}, and this is {own_version()}; "
                "install the same on all"
            )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with suppress(Exception):  # of a scheduler that went away
            self._inner.shutdown(wait=wait and not cancel_futures)
        with suppress(Exception):
            self._client.close()


def own_version() -> str:
    """Of Cotenant, as it is installed where this is called."""
    return version("cotenant")


@contextmanager
def executor(processes: int | None = None, cluster: str | None = None) -> Iterator[Executor]:
    """What runs tasks: `processes` of this machine, None = one for each CPU that may be used, 1 = this one; or the
    workers of the Dask `cluster` with this scheduler's address, tcp://host:port.

    NoClusterError for an address that is none, or where Dask is not installed; WorkersLostError where nothing answers
    there or workers have another version.
    """
    running = _on_cluster(cluster) if cluster is not None else _in_processes(processes or usable_cpus())
    try:
        yield running
    finally:
        running.shutdown(cancel_futures=True)


def _in_processes(count: int) -> Executor:
    return Here() if count == 1 else Processes(count)


def _on_cluster(address: str) -> Executor:
    if not ADDRESS.fullmatch(address):
        raise NoClusterError(f"cluster {address[:60]!r} is not an address such as tcp://host:8786")
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError as error:
        raise NoClusterError("Dask is not installed: pip install 'cotenant[cluster]'") from error
    return OnCluster(address)


def usable_cpus() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


def at_once(run: Executor) -> int:
    """How many tasks an executor runs at a time."""
    return int(getattr(run, "at_once", 1))


def each(
    run: Executor,
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    done: Callable[[int], None] = lambda _count: None,
) -> list[Result]:
    """The function's results in the order of the tasks, the same wherever they run; `done` hears how many are there.

    A task is taken when there is room for it, so that those that carry rows may be made one by one. Function and tasks
    must be picklable and belong to a module. What a task raises is raised, WorkersLostError where a process is lost, or
    every worker of a cluster; what a lost worker had to do another one does.
    """
    results: dict[int, Result] = {}
    running: dict[Future[Result], int] = {}
    waiting, most = enumerate(tasks), at_once(run) + WAITING
    try:
        while True:
            for number, task in islice(waiting, most - len(running)):
                running[run.submit(function, task)] = number
            if not running:
                return [results[number] for number in range(len(results))]
            for future in wait(running, timeout=WATCH_S, return_when=FIRST_COMPLETED).done:
                results[running.pop(future)] = future.result()
                done(len(results))
            if isinstance(run, OnCluster) and running:
                run.check()
    except (BrokenProcessPool, CancelledError) as error:
        raise WorkersLostError(
            "a process that did a part of the work ended before it was done; it may have run out of memory: use "
            "fewer processes or smaller parts"
        ) from error
    except Exception as error:
        if type(error).__module__.startswith("distributed"):  # KilledWorker, CommClosedError and others
            raise WorkersLostError(f"a worker of the cluster was lost: {type(error).__name__}: {error}") from error
        raise
    finally:
        for future in running:
            future.cancel()
