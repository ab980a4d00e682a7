"""A command imports what it needs and nothing else: the list of commands and their texts need no heavy library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from api.cli import COMMANDS
from api.cli.lazy import Listed

ROOT = Path(__file__).parents[2]
HEAVY = (
    "numpy",
    "pydantic",
    "sqlalchemy",
    "fastapi",
    "lightgbm",
    "sklearn",
    "pandas",
    "pyarrow",
    "matplotlib",
    "scipy",
)
SERVER = (
    "sqlalchemy",
    "alembic",
    "fastapi",
    "uvicorn",
    "lightgbm",
    "sklearn",
    "pandas",
    "pyarrow",
    "matplotlib",
    "lab",
)


def _loaded(module: str, *arguments: str) -> set[str]:
    """The top-level modules that a command has imported when it ends."""
    code = (
        "import sys\n"
        f"from {module} import main\n"
        f"sys.argv = ['program', *{list(arguments)!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('|' + '|'.join({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].strip("|").split("|"))


@pytest.mark.parametrize("module", ["api.cli", "profiler.cli", "lab.cli"])
def test_help_imports_no_heavy_library(module: str) -> None:
    assert _loaded(module, "--help") & set(HEAVY) == set()


def test_a_question_on_a_file_imports_neither_database_nor_server_nor_learning() -> None:
    question = ("where", "examples/cloud.yaml", "--instance", "examples/shop-7.yaml")
    assert _loaded("api.cli", *question) & set(SERVER) == set()


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda listed: str(listed.name))
def test_the_list_says_of_a_command_what_its_own_help_says_first(listed: Listed) -> None:
    command = listed.load()
    own = " ".join((command.help or "").split("\n\n")[0].split())
    assert own == listed.help
