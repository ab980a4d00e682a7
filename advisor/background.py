"""Work beside requests: passes that are repeated, and tasks over several processes."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from advisor.deadline import Progress
from advisor.errors import AdvisorError, InvalidInput, ProcessLost
from models.executor import NoClusterError, WorkersLostError, each, executor, usable_cpus

# A pass over what is stored, again and again in a thread of its own, so that no request waits for it.


class BackgroundPass(ABC):
    """One per process: a pass begins when a caller nudges it and it is time, and only one runs at a time.

    `name` is that of the thread, `failed` says in the log what was not done when a pass fails. The first one begins
    after `first_s` seconds, the next `every_s` after the last began.
    """

    def __init__(self, name: str, failed: str, *, first_s: float, every_s: float) -> None:
        self._name, self._failed, self._every_s = name, failed, every_s
        self._due_s = time.monotonic() + first_s
        self._starting = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def nudge(self) -> None:
        """Begin in the background when it is time."""
        if time.monotonic() < self._due_s:
            return
        with self._starting:
            running = self._thread is not None and self._thread.is_alive()
            if time.monotonic() < self._due_s or running or self._stopping.is_set():
                return
            self._due_s = time.monotonic() + self._every_s
            self._thread = threading.Thread(target=self._in_background, name=self._name, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop after the step under way."""
        with self._starting:
            self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @abstractmethod
    def _pass(self) -> None:
        """Go over everything once, with pauses."""

    def _rest(self, began: float, *, pausing: bool) -> bool:
        """Rest for as long as the step took that began at `began` (monotonic s); True = stop."""
        return self._stopping.wait(time.monotonic() - began if pausing else 0.0)

    def _in_background(self) -> None:
        log = logging.getLogger(type(self).__module__)
        try:
            self._pass()
        except AdvisorError as error:  # the next one may find the database in better health
            log.warning("%s: %s", self._failed, error)
        except Exception:
            log.exception("%s", self._failed)


# Runs independent tasks in parallel: in processes of this machine, or on the workers of a Dask cluster.

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    processes: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """The function's results in the order of the tasks; the same wherever they run.

    Tasks run on the Dask `cluster` with this address, else in at most `processes`, None = one per usable CPU; a single
    task or process runs here. Function and tasks must be picklable and belong to a module. Errors of tasks are raised,
    and those of `of_workers`.
    """

    def done(count: int) -> None:
        if progress:
            progress(f"{count} of {len(tasks)} runs done", count / max(len(tasks), 1))

    done(0)
    with of_workers(), executor(min(processes or usable_cpus(), max(len(tasks), 1)), cluster) as run:
        return each(run, function, tasks, done)


@contextmanager
def of_workers() -> Iterator[None]:
    """Errors of `models.executor` in the advisor's words: InvalidInput for a wrong address, ProcessLost where a process
    or every worker of the cluster is lost, or none can be reached."""
    try:
        yield
    except NoClusterError as error:
        raise InvalidInput(str(error), field="cluster") from error
    except WorkersLostError as error:
        raise ProcessLost(str(error)) from error


def one_thread_for_products() -> None:
    """Let this process multiply matrices in the thread that asks for it, from now on.

    Those of a question are small, and several questions are answered at a time: BLAS with a thread for each CPU took
    five times the CPU time for them, most of it to wait.
    """
    from threadpoolctl import threadpool_limits  # which commands that ask no model do without

    threadpool_limits(1, "blas")
