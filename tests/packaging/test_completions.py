"""Shells complete the commands: the scripts are those of the commands as they are, and the wheels install them."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.programs import ROOT, load

SCRIPTS = ROOT / "packaging" / "completions"
INTO = {
    "bash": "share/bash-completion/completions",
    "zsh": "share/zsh/site-functions",
    "fish": "share/fish/vendor_completions.d",
}
# What presses the Tab key behind the last of the words: `$1` is the script, `$2` a new file, the words follow.
PRESS_TAB = {
    # COMP_WORDS and COMP_CWORD are what bash has when the key is pressed.
    "bash": """
source "$1"; offered=$2; shift 2
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
words=("$@"); set -- $(complete -p "$1"); while [ "$1" != -F ]; do shift; done
"$2" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}" > "$offered"
""",
    # zsh completes in its editor alone, which needs a terminal; compadd is what every completion ends in.
    "zsh": """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=(${(q)1:h} \\$fpath) offered=${(q)2}; autoload -Uz compinit && compinit -D -u"
zpty -w shell 'compadd() {
  local -a some; [[ $* == *-[OAD]\\ * ]] || { builtin compadd -O some "$@"; print -rl -- $some >> $offered }
  builtin compadd "$@"
}'
zpty -w shell "zle-line-init() { BUFFER=${(qq)${(j: :)argv[3,-1]}} CURSOR=1000; zle complete-word; exit }"
zpty -w shell "zle -N zle-line-init"
while zpty -r shell shown; do print -rn -- $shown; done
""",
    "fish": """
source $argv[1]; complete --do-complete "$argv[3..]" | string replace --regex '\\t.*' '' > $argv[2]
""",
}
STARTED = {"bash": ("bash", "--norc", "-c"), "zsh": ("zsh", "-f", "-c"), "fish": ("fish", "--no-config", "-c")}
FILES = {"bash": "{}", "zsh": "_{}", "fish": "{}.fish"}


completions = load("completions")


def completed(shell: str, folder: Path, *words: str, programs: Path) -> set[str]:
    """What a shell offers for the last word, by the script in `folder`; skips where there is no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}: apt-get install {shell}")
    named = () if shell == "fish" else (shell,)  # the others take the first word as their own name
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": home, "TERM": "xterm"}
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
        offered = Path(home) / "offered"
        script = folder / FILES[shell].format(words[0])
        argv = [*STARTED[shell], PRESS_TAB[shell], *named, script, offered, *words]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert offered.exists(), done.stdout + done.stderr
        return set(offered.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("shell", INTO)
def test_a_shell_completes_options_of_the_service_s_program(shell: str) -> None:
    programs = Path(sys.executable).parent
    if not (programs / "cotenant").exists():
        pytest.skip("cotenant is not installed beside this Python")
    assert completed(shell, SCRIPTS / shell, "cotenant", "where", "--li", programs=programs) == {"--like", "--limit"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("cotenant-profiler", "pro"), {"probe"}),
        (("cotenant-profiler", "probe", "cpu-"), {"cpu-share", "cpu-work"}),
        (("cotenant-profiler", "run", "--backend", "li"), {"libvirt"}),
        (("cotenant-lab", "sh"), {"show"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_a_shell_completes_the_agent_s_and_the_lab_s_without_starting_them(
    shell: str, words: tuple[str, ...], offered: set[str]
) -> None:
    assert completed(shell, SCRIPTS / shell, *words, programs=Path("/nonexistent")) == offered


def test_the_scripts_of_the_service_s_program_are_typer_s() -> None:
    for file, text in completions.asking_scripts():
        assert (SCRIPTS / file).read_text(encoding="utf-8") == text, "write it anew: make generated"


@pytest.mark.parametrize("parser", completions.parsers(), ids=lambda one: one.prog)
def test_the_scripts_of_the_agent_and_the_lab_have_every_command_and_option(parser: argparse.ArgumentParser) -> None:
    for file in (f"bash/{parser.prog}", f"zsh/_{parser.prog}"):
        text = (SCRIPTS / file).read_text(encoding="utf-8")
        missing = [word for word in _words(parser) if word not in text]
        assert missing == [], f"write {file} anew: make generated"


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield name
                yield from _words(sub)


def test_each_script_goes_into_the_wheel_of_its_program_and_where_its_shell_looks() -> None:
    installed: dict[str, str] = {}
    for project in (ROOT / "pyproject.toml", *sorted((ROOT / "packaging").glob("*/pyproject.toml"))):
        read = tomllib.loads(project.read_text(encoding="utf-8"))
        programs = set(read["project"].get("scripts", ()))
        for folder, files in read["tool"]["setuptools"].get("data-files", {}).items():
            for file in files:
                path = (project.parent / file).resolve()
                assert path.name.removeprefix("_").removesuffix(".fish") in programs
                installed[path.relative_to(SCRIPTS).as_posix()] = folder
    there = {path.relative_to(SCRIPTS).as_posix() for path in SCRIPTS.rglob("*") if path.is_file()}
    assert installed == {file: INTO[file.partition("/")[0]] for file in there}
