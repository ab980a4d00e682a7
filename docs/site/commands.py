"""The page of commands: every command of the programs with its arguments and options, from their parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer.main

from api.cli import app as cotenant
from api.cli.lazy import LazyGroup
from docs.site.tables import capital, code, made_by, prose, table
from lab import cli as lab_cli
from profiler import cli as profiler_cli
from profiler.probes import load
from research.cli import app as research

PROGRAMS = {
    "cotenant": "The server side: questions, plans, models, the service and its database.",
    "cotenant-profiler": "The host side: reads and measures what runs on a host.",
    "cotenant-lab": "Campaigns that measure workloads alone and together: `pip install cotenant-lab`.",
    "cotenant-research": "Papers beside measurements, and Cotenant beside baselines: `pip install cotenant-research`.",
}

# A default within a help text: `(default: ...)`, a number, an address, a path, or a word that stands for a choice.
_TELLS_DEFAULT = re.compile(r" \((?:default: |[0-9/]|runstate)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument or option: `name` as it is typed, `value` what follows it."""

    name: str
    value: str
    default: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its whole name."""

    name: str
    help: str
    parameters: Sequence[Parameter]


def commands() -> list[Command]:
    """Every command of all programs, in the order of their help."""
    return [
        *_of_click(typer.main.get_command(cotenant), "cotenant"),
        *_of_argparse(profiler_cli._parser(), "cotenant-profiler", ""),
        *_of_argparse(lab_cli._parser(), "cotenant-lab", ""),
        *_of_click(typer.main.get_command(research), "cotenant-research"),
    ]


def page() -> str:
    """The whole page."""
    found = commands()
    parts = [
        "# Commands\n",
        made_by("the commands' own help"),
        "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 no host for it (`where`, `plan`).\n"
        "Every command has `--help`; options win over "
        "[settings](settings.md). Each error is one sentence on standard error. "
        "`cotenant --install-completion` has the shell complete commands and options.\n",
    ]
    for program, text in PROGRAMS.items():
        mine = [one for one in found if one.name.split()[0] == program]
        parts.append(f"## {program}\n\n{text}\n{_overview(mine)}")
        parts += [_section(one) for one in mine]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _overview(found: Sequence[Command]) -> str:
    rows = [(f"[`{one.name}`](#{one.name.replace(' ', '-')})", prose(_first(one.help))) for one in found]
    return table(("command", "does"), rows)


def _section(command: Command) -> str:
    rows = [(code(f"{one.name} {one.value}".strip()), one.default, prose(one.help)) for one in command.parameters]
    return f"### {command.name}\n\n{command.help.strip()}\n{table(('argument or option', 'default', 'is'), rows)}"


def _first(text: str) -> str:
    """The first paragraph, without the paper that a probe is after."""
    return text.strip().partition("\n\n")[0].partition(" (after ")[0]


def _of_click(group: Any, prefix: str) -> Iterator[Command]:
    for name in group.commands:
        command = group.load(name) if isinstance(group, LazyGroup) else group.commands[name]
        if hasattr(command, "commands"):
            yield from _of_click(command, f"{prefix} {name}")
        else:
            shown = [one for one in command.params if not getattr(one, "hidden", False)]
            context = typer.Context(command)
            help_text = (command.help or "").replace("\b\n", "")
            yield Command(f"{prefix} {name}", help_text, [_click_parameter(one, context) for one in shown])


def _click_parameter(one: Any, context: Any) -> Parameter:
    default = "**required**" if one.required else _default(one)
    if one.param_type_name == "argument":
        return Parameter(one.metavar or one.name.upper(), "", default, one.help or "")
    name = ", ".join((*one.opts, *one.secondary_opts))
    return Parameter(name, "" if one.is_flag else _value(one, context), default, f"{one.help or ''}{_range(one)}")


def _value(one: Any, context: Any) -> str:
    if one.metavar or one.min is not None or one.max is not None:
        return one.metavar or "N"
    return str(one.display_type_rich(ctx=context)).strip("[]<>")


def _range(one: Any) -> str:
    if one.min is None and one.max is None:
        return ""
    low, high = (None if bound is None else f"{bound:,g}" for bound in (one.min, one.max))
    return f" From {low} to {high}." if low and high else f" At least {low}." if low else f" At most {high}."


def _default(one: Any) -> str:
    if isinstance(one.show_default, str):
        return one.show_default
    if one.default in (None, False, "", ()) or not one.show_default or callable(one.default):
        return ""
    if one.default is True:
        return "yes"
    return code(f"{one.default:g}" if isinstance(one.default, float) else str(one.default))


def _of_argparse(parser: argparse.ArgumentParser, name: str, text: str) -> Iterator[Command]:
    if getattr(parser, "probe", ""):  # a probe declares its options when it is called
        load(parser.probe).add_options(parser)  # type: ignore[attr-defined]
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        shown = [one for one in parser._actions if one.dest != "help"]
        yield Command(name, _sentence(parser.description or text), [_argparse_parameter(one) for one in shown])
    for group in groups:
        helps = {one.dest: one.help or "" for one in group._choices_actions}
        for child, inner in group.choices.items():
            yield from _of_argparse(inner, f"{name} {child}", helps.get(child, ""))


def _argparse_parameter(one: argparse.Action) -> Parameter:
    metavar = one.metavar if isinstance(one.metavar, str) else None
    value = metavar or ("|".join(map(str, one.choices)) if one.choices else one.dest.upper())
    text, default = _apart((one.help or "") % {"default": one.default})
    if not one.option_strings:
        return Parameter(value, "", "**required**", capital(text))
    if one.required:
        default = "**required**"
    elif not default and isinstance(one.default, str | int | float) and one.default not in ("", False):
        default = code(str(one.default))
    return Parameter(", ".join(one.option_strings), "" if one.nargs == 0 else value, default, capital(text))


def _apart(text: str) -> tuple[str, str]:
    """The help without the default that stands in brackets, and that default."""
    match = re.search(r" \((?:default: )?([^()]*)\)(?=$|;)", text) if _TELLS_DEFAULT.search(text) else None
    return (text[: match.start()] + text[match.end() :], match[1]) if match else (text, "")


def _sentence(text: str) -> str:
    return prose(capital(text.strip()))
