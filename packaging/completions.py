"""Writes packaging/completions: what bash, zsh and fish complete of the commands, which the wheels install.

`python packaging/completions.py` writes it anew. Of `cotenant` and `cotenant-research` they are Typer's own scripts,
which ask the command itself, so that they never are old. The agent and the lab, which have only the standard library,
are written out by shtab from their parsers (bash and zsh; shtab knows no fish), so that no Python starts at each press
of the key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "packaging" / "completions"


def asking_scripts() -> Iterator[tuple[str, str]]:
    """File and text of each shell's script for `cotenant` and `cotenant-research`."""
    from typer._completion_shared import get_completion_script

    for program, (shell, form) in product(
        ("cotenant", "cotenant-research"), (("bash", "{}"), ("zsh", "_{}"), ("fish", "{}.fish"))
    ):
        name, file = program.replace("-", "_"), form.format(program)
        text = get_completion_script(prog_name=program, complete_var=f"_{name.upper()}_COMPLETE", shell=shell)
        if shell == "zsh":  # a file that zsh loads by itself is the first call, too
            text += f'\n\n_{name}_completion "$@"'
        yield f"{shell}/{file}", text + "\n"


def written_out() -> Iterator[tuple[str, str]]:
    """File and text of each shell's script for the agent and the lab; needs shtab, which `make generated` installs."""
    import shtab

    for parser in parsers():
        for shell, file in (("bash", parser.prog), ("zsh", f"_{parser.prog}")):
            yield f"{shell}/{file}", shtab.complete(parser, shell=shell).rstrip() + "\n"


def parsers() -> tuple[argparse.ArgumentParser, ...]:
    """Of the commands that have argparse."""
    from lab.cli import _parser as lab
    from profiler.cli import _parser as profiler

    return profiler(), lab()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for made in (asking_scripts, written_out):
        for file, text in made():
            (TARGET / file).parent.mkdir(parents=True, exist_ok=True)
            (TARGET / file).write_text(text, encoding="utf-8")
