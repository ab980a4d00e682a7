"""Work on a Dask cluster: trains boosters by lightgbm.dask and maps tasks. Only this module uses Dask."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any, TypeVar

import lightgbm
import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats
from models.features.repeats import GroupedExamples
from models.learning.boosting import booster_options

Task = TypeVar("Task")
Result = TypeVar("Result")

CONNECT_S = 10.0  # until a scheduler has answered
WATCH_S = 1.0  # between two looks at whether everybody is still there
SOCKET_MINUTES = 10  # until a LightGBM worker gives up waiting for another one to connect
BLOCK_ROWS = 50_000  # rows are dealt out in blocks of at most so many, so that every worker gets some of everything
BLOCKS_PER_WORKER = 8
LEAST_PER_WORKER = 500  # rows; fewer are not worth another worker
_SET_BY_DASK = ("seed", "num_threads", "num_boost_round")


class ClusterError(RuntimeError):
    """A cluster cannot be reached, has no workers, or lost one; the message says which and what to do."""


class _LostError(Exception):
    """A worker with a result was lost; the task runs again."""


class Cluster:
    """A connection to a scheduler and the workers that it had at the beginning."""

    def __init__(self, client: Any, address: str, workers: Sequence[str]) -> None:
        self._client, self._address, self.workers = client, address, tuple(workers)

    def boost(self, rows: GroupedExamples) -> lightgbm.Booster:
        """A booster of the residual, as `models.learning.boosting` trains them here; ClusterError as `train`."""
        options, rounds = booster_options(len(rows.residual), seed=0, monotone=rows.examples.monotone)
        return self.train(rows.examples.x, rows.residual, rows.weight, options, rounds)

    def train(
        self, x: Floats, residual: Floats, weight: Floats, options: Mapping[str, Any], rounds: int
    ) -> lightgbm.Booster:
        """Fit `residual` (R,), each row counting by its `weight` (R,), to features `x` (R, F) with the rows spread over
        the workers; ClusterError when one of them goes away.

        `options` are those of `lightgbm.train`. Histograms are summed over the workers (tree_learner=data), so that the
        trees are those of all rows; bins are found and bags drawn on each worker's own rows.
        """
        used = self.workers[: max(1, len(x) // LEAST_PER_WORKER)]
        with self._watched(used) as run:
            dealt = run(lambda: self._deal([one.astype(np.float32) for one in (x, residual, weight)], used))
            model = lightgbm.DaskLGBMRegressor(
                client=self._client,
                n_estimators=rounds,
                random_state=options.get("seed", 0),
                tree_learner="data",
                time_out=SOCKET_MINUTES,
                **{name: value for name, value in options.items() if name not in _SET_BY_DASK},
            )
            run(lambda: self._fit(model, dealt))
            text = model.booster_.model_to_string()
        return lightgbm.Booster(model_str=text)

    def map(
        self, function: Callable[[Task], Result], tasks: Sequence[Task], done: Callable[[int], None] = lambda _: None
    ) -> list[Result]:
        """The function of every task, in their order; `done` is told how many are done.

        What a task raises is raised here. Tasks of a worker that goes away are given to another one; ClusterError when
        nobody is left, and when the workers run another version of Cotenant or none.
        """
        import distributed

        self._same_version()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # a task brings what it needs
            futures = [self._client.submit(function, task, pure=False) for task in tasks]
        results: dict[int, Result] = {}
        number = {future.key: at for at, future in enumerate(futures)}
        try:
            while left := [one for at, one in enumerate(futures) if at not in results]:
                try:
                    with self._client.as_current():  # wait knows no other
                        ended = distributed.wait(left, timeout=WATCH_S, return_when="FIRST_COMPLETED").done
                except TimeoutError:
                    self._check_anybody()
                    continue
                for future in ended:
                    # a result that is lost on its way is made again, and waited for again
                    with suppress(_LostError):
                        results[number[future.key]] = self._result(future)
                        done(len(results))
            return [results[at] for at in range(len(futures))]
        finally:
            with suppress(Exception):  # of a scheduler that went away
                self._client.cancel([one for one in futures if not one.done()])

    def _result(self, future: Any) -> Any:
        from distributed.scheduler import KilledWorker

        if future.status == "finished":
            try:
                return future.result(timeout=CONNECT_S)
            except TimeoutError as late:
                raise _LostError from late
        if future.status in {"pending", "lost"}:
            raise _LostError
        error = future.exception(timeout=CONNECT_S) if future.status == "error" else None
        if error is not None and not isinstance(error, KilledWorker):
            raise error
        self._check_anybody()
        raise ClusterError(
            f"workers of the cluster at {self._address} were lost again and again over one task; look at their memory, "
            "start them again, and run it again"
        ) from error

    def _same_version(self) -> None:
        """Raise ClusterError where a worker runs another version: results would depend on the worker."""
        mine = _own_version()
        try:
            found = self._client.run(version, "cotenant", on_error="return")
        except Exception as error:
            raise ClusterError(f"the workers at {self._address} do not answer ({_reason(error)})") from error
        for worker, theirs in sorted(found.items()):
            if theirs != mine:
                has = f"Cotenant {theirs}" if isinstance(theirs, str) else "no Cotenant"
                raise ClusterError(f"worker {worker} runs {has}, and this is {mine}; install the same version there")

    def _check_anybody(self) -> None:
        """Raise ClusterError when the scheduler or all workers are gone: waiting for them would never end."""
        there = _workers(self._client) if self._client.status == "running" else None
        if not there:
            what = "the scheduler" if there is None else "every worker of the cluster"
            raise ClusterError(f"{what} at {self._address} went away; start it again, and run it again")

    def _fit(self, model: Any, dealt: Sequence[Any]) -> None:
        x, y, weight = dealt
        with self._client.as_current():  # lightgbm.dask waits through the current client, whatever it was given
            model.fit(x, y, sample_weight=weight)

    def _deal(self, arrays: Sequence[NDArray[np.float32]], used: Sequence[str]) -> Sequence[Any]:
        """Send arrays of R rows block by block and join them on each worker: one part each, in the same order every
        time."""
        import dask.array

        rows = len(arrays[0])
        size = max(1, min(BLOCK_ROWS, -(-rows // (BLOCKS_PER_WORKER * len(used)))))
        parts: dict[str, list[Any]] = {worker: [] for worker in used}
        held = dict.fromkeys(used, 0)
        for number, first in enumerate(range(0, rows, size)):
            last, worker = min(first + size, rows), used[number % len(used)]
            block = [array[first:last] for array in arrays]
            parts[worker].append(self._client.scatter(block, workers=[worker], hash=False))
            held[worker] += last - first
        joined: list[list[Any]] = [[] for _ in arrays]
        for worker in used:
            pinned = {"workers": [worker], "allow_other_workers": False, "pure": False}
            for at, blocks in enumerate(zip(*parts[worker], strict=True)):
                # numpy's own function: workers need no Cotenant
                part = self._client.submit(np.concatenate, list(blocks), **pinned)
                shape = (held[worker], *arrays[at].shape[1:])
                joined[at].append(dask.array.from_delayed(part, shape, np.float32))
        return [dask.array.concatenate(some) for some in joined]

    @contextmanager
    def _watched(self, used: Sequence[str]) -> Iterator[Any]:
        """Gives `run`, which runs something in a thread and raises as soon as a worker or the scheduler is gone.

        lightgbm.dask itself waits for ever: the tasks of a lost worker can run nowhere else.
        """
        pool = ThreadPoolExecutor(1, "cluster")
        try:
            yield lambda work: self._wait(pool.submit(work), used)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _wait(self, running: Future[Any], used: Sequence[str]) -> Any:
        while True:
            try:
                return running.result(timeout=WATCH_S)
            except NotYetError:
                if not running.done():
                    self._check(used)
            except Exception as error:
                self._check(used)
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise ClusterError(f"training on the cluster at {self._address} failed: {reason}") from error

    def _check(self, used: Sequence[str]) -> None:
        """Raise ClusterError when the scheduler or a worker is gone, and restart workers that wait for it."""
        there = _workers(self._client) if self._client.status == "running" else None
        if there is None:
            raise ClusterError(
                f"the scheduler at {self._address} went away during training; start it and its workers, and train again"
            )
        lost = [worker for worker in used if worker not in there]
        if lost:
            left = [worker for worker in used if worker in there]
            with suppress(Exception):  # workers without a nanny cannot be restarted, and stop when their owner does so
                self._client.restart_workers(left, timeout=CONNECT_S)
            raise ClusterError(
                f"worker {lost[0]} left the cluster at {self._address} during training; start it again, and train again"
            )


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """Connect to a cluster by its scheduler's address, `tcp://host:port`; the workers keep no data afterwards.

    ClusterError when nobody answers there within CONNECT_S or when it has no workers.
    """
    from distributed import Client

    # lightgbm.dask prints what it does to standard output, where an answer in JSON may be expected
    quiet = logging.getLogger("models.scale.lightgbm")
    quiet.setLevel(logging.ERROR)
    lightgbm.register_logger(quiet)
    with _silent("distributed"):
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"no Dask scheduler answers at {address} ({_reason(error)}); start one with `dask scheduler`, or name "
                "the one that runs as tcp://host:port"
            ) from error
        try:
            workers = sorted(_workers(client) or ())
            if not workers:
                raise ClusterError(
                    f"the Dask cluster at {address} has no workers; start one with `dask worker {address}`"
                )
            yield Cluster(client, address, workers)
        finally:
            with suppress(Exception):  # what is lost already needs no goodbye
                client.close(timeout=CONNECT_S)


def _own_version() -> str:
    return version("cotenant")


def _workers(client: Any) -> set[str] | None:
    """The addresses of the workers now; None when the scheduler does not answer."""
    answers: list[set[str]] = []

    def ask() -> None:
        with suppress(Exception):
            answers.append(set(client.nthreads()))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(CONNECT_S)
    return answers[0] if answers else None


def _reason(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else "no answer in time"


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Context manager that suppresses a library's log lines; errors are raised instead."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
