"""Fails when a code, metric, agent option or page that no generated page covers is not documented."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer.main
from fastapi.responses import HTMLResponse

from advisor.domain import MitigationAction
from advisor.errors import AdvisorError
from advisor.scheduling import filters
from advisor.settings import Settings
from api.app import ROUTES
from api.cli import app as cotenant
from api.cli.lazy import LazyGroup
from lab import cli as lab_cli
from profiler import cli as profiler_cli
from profiler.metrics import ADDITIONAL, EIGHT
from profiler.probes import PROBES
from research.cli import app as research

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _commands(group: Any, prefix: str) -> Iterator[str]:
    for name in group.commands:
        command = group.load(name) if isinstance(group, LazyGroup) else group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}"


def _argparse_commands(parser: argparse.ArgumentParser, prefix: str) -> Iterator[str]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield prefix
    for group in groups:
        for name, child in group.choices.items():
            yield from _argparse_commands(child, f"{prefix} {name}")


def _subclasses(kind: type[AdvisorError]) -> Iterator[type[AdvisorError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _subclasses(child)


def test_the_generator_of_the_page_of_commands_leaves_none_out() -> None:
    names = [
        *_commands(typer.main.get_command(cotenant), "cotenant"),
        *_argparse_commands(profiler_cli._parser(), "cotenant-profiler"),
        *_argparse_commands(lab_cli._parser(), "cotenant-lab"),
        *_commands(typer.main.get_command(research), "cotenant-research"),
    ]
    assert len(names) > 40
    assert [name for name in names if f"### {name}\n" not in page("reference/commands.md")] == []


def test_every_option_of_a_probe_is_on_the_page_of_commands() -> None:
    assert "`--threshold-ms MS`" in page("reference/commands.md")


def test_every_setting_is_on_the_page_of_settings() -> None:
    text = page("reference/settings.md")
    assert [name for name in Settings.model_fields if f"| `COTENANT_{name.upper()}` |" not in text] == []


def test_every_route_is_on_the_page_of_rest() -> None:
    text = page("reference/rest.md")
    shown = {"pages": "| `{} {}` |"}
    lines = [shown.get(route.tag, "### {} {}\n").format(route.method, route.path) for route in ROUTES if route.is_own]
    assert [line for line in lines if line not in text] == []


def test_the_table_of_pages_has_every_page_and_no_other() -> None:
    section = page("operations.md").partition("\n## The pages\n")[2].partition("\n\nHeadings ")[0]
    named = re.findall(r"`(/[^`]*)`", section)
    pages = [route.path for route in ROUTES if route.method == "GET" and route.answers is HTMLResponse]
    assert sorted(named) == sorted(pages)


def test_every_error_code_of_the_advisor_is_on_the_page_of_errors() -> None:
    codes = {kind.code for kind in _subclasses(AdvisorError)}
    assert [code for code in sorted(codes) if f"| `{code}` |" not in page("reference/errors.md")] == []


@pytest.mark.parametrize("metric", [metric.name for metric in EIGHT])
def test_every_metric_is_documented(metric: str) -> None:
    assert f"`{metric}`" in page("metrics.md")


@pytest.mark.parametrize("metric", [metric.name for metric in ADDITIONAL])
def test_every_metric_beside_the_eight_is_on_the_page_of_the_agent(metric: str) -> None:
    assert f"`{metric}`" in page("profiler.md")


@pytest.mark.parametrize("action", get_args(MitigationAction))
def test_every_mitigation_is_on_the_page_of_answers(action: str) -> None:
    (row,) = [line for line in page("answers.md").splitlines() if line.startswith("| `action` |")]
    assert f"`{action}`" in row


@pytest.mark.parametrize("code", filters.CODES)
def test_every_rejection_code_is_documented(code: str) -> None:
    assert f"| `{code}` |" in page("answers.md")


def test_every_module_that_holds_a_probe_is_in_the_list_of_probes() -> None:
    modules = sorted((ROOT / "profiler" / "probes").glob("*.py"))
    held = [module.stem for module in modules if "\nPROBE = " in module.read_text(encoding="utf-8")]
    assert held == sorted(name.replace("-", "_") for name in PROBES)


@pytest.mark.parametrize("probe", PROBES)
def test_every_probe_is_documented(probe: str) -> None:
    assert f"| `{probe}` |" in page("probes.md")


def test_the_readme_names_the_two_commands_and_the_reference() -> None:
    for words in ("make run", "make test", "docs/reference/index.md"):
        assert words in README


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 10 * 1024
