"""The list of commands is printed without loading any of them, and says what each says of itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from api.cli import COMMANDS
from api.cli.lazy import Listed
from tests.api import cli_runs

HEAVY = (
    "alembic", "fastapi", "httpx", "lightgbm", "matplotlib", "numpy", "openstack", "pyarrow", "pydantic", "scipy",
    "sklearn", "sqlalchemy",
)  # fmt: skip
COMMAND = "from api.cli import main; main()"
PROFILER = "from profiler.cli import main; main()"
LAB = "from lab.cli import main; main()"
RESEARCH = "from research.cli import main; main()"
OF_A_QUESTION = (
    "alembic", "fastapi", "httpx", "lightgbm", "matplotlib", "openstack", "pyarrow", "sklearn", "sqlalchemy",
)  # fmt: skip


def imported(program: str, *arguments: str) -> set[str]:
    """The top-level modules that a program has imported at its end."""
    watched = f"import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{program}"
    done = subprocess.run([sys.executable, "-c", watched, *arguments], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize("program", [COMMAND, PROFILER, LAB, RESEARCH], ids=lambda one: one.split()[1])
def test_help_imports_no_heavy_library(program: str) -> None:
    assert imported(program, "--help").isdisjoint(HEAVY)


def test_a_question_on_files_imports_no_database_or_web_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_STATE_DIR", str(tmp_path))  # where no trained model answers, as `make run` leaves one
    question = ("where", "examples/cloud.yaml", "--instance", "examples/shop-7.yaml", "--explain")
    assert imported(COMMAND, *question).isdisjoint(OF_A_QUESTION)


@pytest.mark.parametrize("listed", COMMANDS, ids=lambda one: one.name)
def test_the_list_says_of_a_command_what_its_own_help_says_first(listed: Listed) -> None:
    first = listed.load().help.split("\n\n")[0]
    assert " ".join(first.split()) == listed.help


def test_the_help_lists_every_command_in_order() -> None:
    shown = cli_runs.run("--help").output.split("Commands:")[1].splitlines()
    assert [line.split()[0] for line in shown if line.startswith("  ") and line[2] != " "] == [
        one.name for one in COMMANDS
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_finds_no_space_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        argv = [sys.executable, "-c", COMMAND, "demo"]
        done = subprocess.run(argv, check=False, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "cotenant: cannot write the output: no space is left where it goes\n"
