"""Commands run in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from api.cli import app


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)
