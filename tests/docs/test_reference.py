"""Fails when a command, setting, metric, route, error code or rejection code is not in the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from advisor.errors import AdvisorError
from advisor.scheduling import filters
from advisor.service import Advisor
from advisor.settings import Settings
from api import problems
from api.app import create_app
from api.cli import app as cotenant
from api.cli.lazy import LazyGroup
from lab import cli as lab_cli
from profiler import cli as profiler_cli
from profiler.metrics import EIGHT
from tests.servers.fixtures import sqlite_with_tables

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _commands(group: Any, prefix: str) -> Iterator[str]:
    for name in group.commands:
        command = group.load(name) if isinstance(group, LazyGroup) else group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


def _profiler_commands(parser: argparse.ArgumentParser, prefix: str) -> Iterator[str]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield prefix
    for group in groups:
        for name, child in group.choices.items():
            yield from _profiler_commands(child, f"{prefix} {name}")


def _subclasses(kind: type[AdvisorError]) -> Iterator[type[AdvisorError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)


@pytest.mark.parametrize("command", sorted(_commands(typer.main.get_command(cotenant), "cotenant ")))
def test_every_command_of_the_server_side_is_documented(command: str) -> None:
    assert f"`{command}`" in REFERENCE


@pytest.mark.parametrize(
    "command",
    sorted(
        [
            *_profiler_commands(profiler_cli._parser(), "cotenant-profiler"),
            *_profiler_commands(lab_cli._parser(), "cotenant-lab"),
        ]
    ),
)
def test_every_command_of_the_profiler_and_the_lab_is_documented(command: str) -> None:
    assert f"`{command}`" in REFERENCE


@pytest.mark.parametrize("setting", sorted(Settings.model_fields))
def test_every_setting_is_documented_with_its_default(setting: str) -> None:
    assert f"| `COTENANT_{setting.upper()}` | `{Settings.model_fields[setting].default}` |" in REFERENCE


@pytest.mark.parametrize("metric", [metric.name for metric in EIGHT])
def test_every_metric_is_documented(metric: str) -> None:
    assert f"| `{metric}` |" in REFERENCE


@pytest.mark.parametrize("code", sorted({kind.code for kind in _subclasses(AdvisorError)}))
def test_every_error_code_of_the_advisor_is_documented(code: str) -> None:
    assert f"| `{code}` |" in REFERENCE


@pytest.mark.parametrize("kind", problems.KINDS, ids=lambda kind: str(kind.code))
def test_every_problem_is_documented_with_its_status(kind: problems.Kind) -> None:
    assert f"| `{kind.code}` | {kind.status} |" in REFERENCE


@pytest.mark.parametrize("code", filters.CODES)
def test_every_rejection_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in REFERENCE


def test_every_route_is_documented(tmp_path: Path) -> None:
    settings = Settings(database=sqlite_with_tables(tmp_path / "docs.sqlite3"), state_dir=tmp_path)
    with Advisor(settings) as advisor:
        paths = create_app(advisor, settings).openapi()["paths"]
    routes = [f"`{method.upper()} {path}`" for path, methods in paths.items() for method in methods]
    assert len(routes) > 20
    assert [route for route in routes if route not in REFERENCE] == []


def test_the_readme_names_the_two_commands_and_the_reference() -> None:
    for words in ("make run", "make test", "docs/reference.md"):
        assert words in README


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 10 * 1024
