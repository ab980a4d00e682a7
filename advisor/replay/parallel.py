"""Runs independent tasks in parallel, in processes of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from advisor.errors import ProcessLost
from advisor.progress import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")


def spread(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """The function's results in the order of the tasks; the same in however many processes.

    Tasks run in at most `processes`, None = one per usable CPU; a single task or process runs here. Function and tasks
    must be picklable and belong to a module. Errors of tasks are raised; ProcessLost when a process is lost.
    """

    def done(count: int) -> None:
        if progress:
            progress(f"{count} of {len(tasks)} runs done", count / max(len(tasks), 1))

    done(0)
    count = min(processes or len(os.sched_getaffinity(0)), len(tasks))
    if count > 1:
        return _in_processes(function, tasks, count, done)
    results = []
    for number, task in enumerate(tasks):
        results.append(function(task))
        done(number + 1)
    return results


def _in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], count: int, done: Callable[[int], None]
) -> list[Result]:
    # Started anew, not forked: a fork of a process that has threads may hang.
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(function, task): number for number, task in enumerate(tasks)}
        results: dict[int, Result] = {}
        try:
            for number, future in enumerate(as_completed(running), 1):
                results[running[future]] = future.result()
                done(number)
        except BrokenProcessPool as error:
            raise ProcessLost(
                "a process that did a part of the work ended before it was done; it may have run out of memory: use "
                "fewer processes or smaller parts"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
    return [results[number] for number in range(len(tasks))]
