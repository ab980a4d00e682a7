"""Makes the consoles of rich. All output is literal text; markup in it is not interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn


def console(stream: TextIO | None = None, *, width: int | None = None, soft_wrap: bool = False) -> Console:
    """A console on `stream` (None: standard output). `[bold]` and `:a:` in a name from outside stay as they are.

    Raises ImportError without rich, which hosts may lack.
    """
    from rich.console import Console

    return Console(file=stream, width=width, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False)


def text_column(template: str) -> TextColumn:
    """A progress bar column of literal text; rich's own would interpret markup on any console."""
    from rich.progress import TextColumn

    return TextColumn(template, markup=False)
