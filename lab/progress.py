"""Shows the progress of a campaign and the time left: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress

from profiler import rich_console

_EVERY_S = 10.0  # at least, between plain lines but the first and the last
OVERHEAD_S = 1.5  # set-up and clean-up of a run beside its window and warm-up, until runs have been timed
_RECENT = 50


class CampaignProgress:
    """Context manager; `step` after each run, `expect` when the number of runs changes.

    `total` counts the runs that are sure to come; further rounds add theirs when they begin.
    """

    def __init__(self, total: int, done: int, run_s: float, stream: TextIO, *, quiet: bool = False) -> None:
        self._console = rich_console.console(stream, soft_wrap=True)
        self._total = total
        self._done = done
        self._first_guess_s = run_s
        self._took: list[float] = []
        self._quiet = quiet
        self._last_line = 0.0
        self._why = ""
        self._end: float | None = None
        self._bar: Progress | None = None
        if self._console.is_terminal and not quiet:
            self._bar = Progress(
                rich_console.text_column("{task.description}"), BarColumn(), MofNCompleteColumn(),
                rich_console.text_column("{task.fields[left]}"), console=self._console,
            )  # fmt: skip
            self._task = self._bar.add_task("starting", total=total, completed=done, left=self._left())

    def __enter__(self) -> CampaignProgress:
        if self._bar is not None:
            self._bar.start()
        elif not self._quiet:
            self._console.print(f"{self._done} of {self._total} runs are done, {self._left()}")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, more: int, done: int = 0, why: str = "") -> None:
        """Change the number of expected runs by `more`; `done` of them are finished. `why` is shown."""
        self._total += more
        self._done += done
        self._why = why
        if self._bar is not None:
            self._bar.update(self._task, total=self._total, completed=self._done, left=self._left())

    def ends_at(self, end: float) -> None:
        """The campaign lasts until then (epoch time), however fast its runs are."""
        self._end = end

    def begin(self, name: str, number: int) -> None:
        """A run begins."""
        if self._bar is not None:
            self._bar.update(self._task, description=f"round {number} {name}")

    def step(self, name: str, number: int, took_s: float, result: str) -> None:
        """A run ended; `result` is shown."""
        self._done += 1
        self._took.append(took_s)
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, left=self._left())
            return
        now = time.monotonic()
        if not self._quiet and (now - self._last_line >= _EVERY_S or self._done == self._total):
            self._last_line = now
            line = f"{self._done}/{self._total} round {number} {name}: {result}; {self._left()}"
            self._console.print(line)

    def say(self, text: str) -> None:
        """Show a line that must not be missed."""
        if not self._quiet:
            self._console.print(text)

    def _left(self) -> str:
        recent = self._took[-_RECENT:] or [self._first_guess_s]
        seconds = (self._total - self._done) * sum(recent) / len(recent)
        if self._end is not None:
            seconds = max(0.0, self._end - time.time())
        return f"{in_words(seconds)} left{self._why}"


def in_words(seconds: float) -> str:
    """`4:05` or `2:04:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
