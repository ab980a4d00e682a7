"""What documents show below a command is what it prints: every block that needs only files of the repository."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.docs.test_links_and_commands import PAGES, RECORD, ROOT, name_of

TRAINED = "COTENANT_TEST_TRAINED"  # a state folder with the model that `make run` trains, which takes minutes
PROGRAMS = {"cotenant", "cotenant-lab", "cotenant-profiler"}
FILES = ("examples/", "demo/", "datasets/", "tests/recordings/")


def blocks(text: str) -> Iterator[list[tuple[str, list[str]]]]:
    """Each block of a console as commands with the lines below them."""
    for block in re.findall(r"^```console\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        found: list[tuple[str, list[str]]] = []
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        yield found


def is_of_files(command: str) -> bool:
    """Whether it is a program of ours and names no file, database or machine but what the repository has."""
    words = shlex.split(command)
    if words[0] not in PROGRAMS or (words[1] == "run" and "--dry-run" not in words):
        return False
    return words[:3] == ["cotenant", "demo", "--out"] or any(word.startswith(FILES) for word in words)


def takes_minutes(command: str, printed: Sequence[str]) -> bool:
    """Whether it needs the trained model, or searches for a plan of 150 VMs."""
    return "consolidate" in command or any("trained on measured data" in line for line in printed)


def shown(*, slow: bool) -> list[tuple[str, str]]:
    """(page, command) of every one that has lines below it, by whether it takes minutes."""
    return [
        (name_of(page), command)
        for page in PAGES
        if page.parent != RECORD
        for block in blocks(page.read_text(encoding="utf-8"))
        for command, lines in block
        if lines and is_of_files(command) and takes_minutes(command, lines) == slow
    ]


def run(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What it prints to standard output; a search has the time that it needs on a busy machine."""
    program, *words = shlex.split(command)
    more = ["--time-limit", "3600"] if words[0] == "plan" else []
    if program == "cotenant":
        found = CliRunner().invoke(importlib.import_module("api.cli").app, [*words, *more])
        assert found.exit_code in {0, 3}, found.stderr
        return found.stdout.splitlines()
    capsys.readouterr()
    main = importlib.import_module(f"{program.removeprefix('cotenant-')}.cli").main  # slow to import: not at collection
    assert not main(words)
    return [line for line in capsys.readouterr().out.splitlines() if not line.startswith("not installed here: ")]


def alike(expected: Sequence[str], actual: Sequence[str]) -> bool:
    """Whether these are the lines but for dates and versions of models; `...` stands for any number of lines."""
    of_a_day = re.compile(r"\b\d{4}-\d\d-\d\d\b|\bm-[0-9a-f]{12}\b")
    undated = [[of_a_day.sub("OF A DAY", line).rstrip() for line in lines] for lines in (expected, actual)]
    pattern = "".join("(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in undated[0])
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in undated[1])) is not None


def compare(page: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run what the page shows up to this command, in a folder with the files of the repository."""
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        if command not in dict(block):
            continue
        for each, lines in block:
            printed = run(each, capsys)
            if each == command:
                assert alike(lines, printed), f"{page} shows other lines than\n" + "\n".join(printed)
                return


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("examples", "datasets", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTENANT_STATE_DIR", str(tmp_path / "state"))


@pytest.mark.parametrize(("page", "command"), shown(slow=False))
def test_what_a_document_shows_is_what_its_command_prints(
    page: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(page, command, capsys)


@pytest.mark.skipif(TRAINED not in os.environ, reason="takes minutes: make test-shown")
@pytest.mark.parametrize(("page", "command"), shown(slow=True))
def test_what_a_document_shows_is_what_its_command_prints_in_minutes(
    page: str, command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if "consolidate" not in command:
        monkeypatch.setenv("COTENANT_STATE_DIR", os.environ[TRAINED])
    compare(page, command, capsys)


def test_another_figure_and_a_line_more_or_less_are_seen() -> None:
    assert alike(["a 1", "...", "b 2026-11-29"], ["a 1", "x", "y", "b 2027-01-02"])
    assert alike(["a 1", "...", "b"], ["a 1", "b"])
    for other in (["a 2", "b"], ["a 1"], ["a 1", "b", "c"], ["a 1x", "b"]):
        assert not alike(["a 1", "...", "b"], other)


def test_documents_show_commands_of_all_kinds() -> None:
    found = {" ".join(command.split()[:2]) for slow in (False, True) for _, command in shown(slow=slow)}
    assert found > {"cotenant where", "cotenant plan", "cotenant predict", "cotenant-profiler once"}
