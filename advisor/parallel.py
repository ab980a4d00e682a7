"""Runs independent tasks in parallel: in processes of this machine, or on the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from advisor.errors import InvalidInput, ProcessLost
from advisor.progress import Progress
from models.executor import NoClusterError, WorkersLostError, each, executor, usable_cpus

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
