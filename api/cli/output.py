"""What commands print: tables (rich on a terminal, plain columns elsewhere), JSON, and progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import typer
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from profiler import rich_console

Advance = Callable[[str, float], None]


def clean(value: object) -> str:
    """A value as printable text: names come from files and networks, and a terminal obeys control characters."""
    return "".join(char if char.isprintable() else "�" for char in str(value).replace("\u00a0", " "))


def say(text: str = "") -> None:
    """Print one line."""
    typer.echo(clean(text))


def figure(value: object) -> str:
    """A value as a cell of a table: four digits are enough, nothing is empty, and true is yes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else clean(value)


def print_json(value: Any, *, in_one_line: bool = False) -> None:
    """Print plain values, schemas and dataclasses as JSON; `cotenant schema` says in which shape each command does."""
    typer.echo(json.dumps(value, indent=None if in_one_line else 2, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """What json does not know: an answer as REST writes it, a schema without unset fields."""
    from pydantic import BaseModel  # the list of commands is printed without it
    from pydantic_core import to_jsonable_python

    from advisor.domain import codec

    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return codec.answer_values(value) if is_dataclass(value) else to_jsonable_python(value)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[int] = ()) -> None:
    """Print rows under headers; `right` are the columns aligned to the right, where numbers belong."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(headers, cells, right)
    else:
        _print_plain(headers, cells, right)


def _print_rich(headers: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, header in enumerate(headers):
        table.add_column(header, justify="right" if number in right else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    rich_console.console().print(table)


def _print_plain(headers: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[int]) -> None:
    table = [list(headers), *cells]
    widths = [max(len(row[column]) for row in table) for column in range(len(headers))]
    for row in table:
        shown = [
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(shown).rstrip())


@contextmanager
def progress() -> Iterator[Advance]:
    """Give a callback that shows what is being done: a bar on a terminal, else a plain line for every tenth."""
    if sys.stderr.isatty():
        columns = (
            rich_console.text_column("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=rich_console.console(sys.stderr), transient=True) as bar:
            task = bar.add_task("starting", total=1.0)
            yield lambda what, fraction: bar.update(task, description=clean(what), completed=fraction)
    else:
        yield _LogProgress()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what is being waited for until it is done; nothing in logs, where the result is enough."""
    if sys.stderr.isatty():
        with rich_console.console(sys.stderr).status(Text(clean(what))):
            yield
    else:
        yield


class _LogProgress:
    """Progress as lines in a log."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None

    def __call__(self, what: str, fraction: float) -> None:
        step = (what, int(fraction * 10))
        if step != self._last:
            self._last = step
            typer.echo(f"{clean(what)}: {step[1] * 10} %", err=True)
