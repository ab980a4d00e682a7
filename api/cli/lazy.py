"""Groups of commands whose modules are imported when called, and how commands end: exit codes and signals."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from api import nothing_collected

# How commands end: their exit codes, and what stops those that go on.

FAILED, WRONG_USAGE, NO_HOST = 1, 2, 3  # NO_HOST: an answer that names no host


def stop_event() -> threading.Event:
    """An event that SIGINT and SIGTERM set from now on."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


class Listed(NamedTuple):
    """A command in the list: its name, `module:attribute` of a function or a Typer application, and its help text."""

    name: str
    target: str
    help: str

    def load(self) -> Any:
        """Import the module and return the command with its options."""
        module, attribute = self.target.split(":")
        with nothing_collected():
            command = getattr(import_module(module), attribute)
        root = typer.Typer(rich_markup_mode=None, add_completion=False)
        root.callback()(_nothing)  # without it a group of one command becomes that command
        if isinstance(command, typer.Typer):
            root.add_typer(command, name=self.name)
        else:
            root.command(self.name)(command)
        return typer.main.get_group(root).commands[self.name]


class LazyGroup(TyperGroup):
    """Lists its commands by their texts alone, and loads the one that is called or whose arguments are completed."""

    listed: ClassVar[Sequence[Listed]]

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        for command in self.listed:
            self.add_command(TyperCommand(command.name, help=command.help, callback=_nothing))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the loaded command and the arguments that remain for it."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.load(str(command.name)), rest

    def load(self, name: str) -> Any:
        """Return the command with its options; KeyError when none has this name."""
        return {command.name: command for command in self.listed}[name].load()


def _nothing() -> None:
    """Stand where Typer expects a function."""
