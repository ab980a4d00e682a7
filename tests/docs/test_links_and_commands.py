"""What the documents point to is there: files, headings, commands and their options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from docs.site.commands import Command, commands
from tests.docs.shown_commands import NOT_RUN

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "research" / "results"
FOLDERS = (ROOT / "docs", ROOT / "integrations", RECORD)
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))])
LINK = re.compile(r"\]\(([^)\s]+)\)")
every_command = cache(commands)  # which imports all of them: not at collection, which each worker of pytest does


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose(page: Path) -> str:
    """The text without blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Headings as the site and the forges make addresses of them."""
    found = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in found)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def shown() -> Iterator[tuple[str, str]]:
    """(page, command line) of our programs in blocks of code, continued lines joined."""
    for page in PAGES:
        if page.name == "CHANGELOG.md" or page.parent == RECORD:
            continue
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"^ *```(?:console|sh|bash)?\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                match = re.match(r"\s*(?:\$ )?(?:sudo )?(cotenant(?:-profiler|-lab|-research)? [a-z].*)", line)
                if match:
                    yield name_of(page), re.split(r"\s[|>&]|\s#\s", match[1])[0]


def command_of(words: list[str]) -> tuple[set[str], list[str]]:
    """The options that the command of these words takes, and the words after its name."""
    named = [command for command in every_command() if words[: len(command.name.split())] == command.name.split()]
    assert named, f"there is no command {' '.join(words)}"
    command = max(named, key=lambda command: len(command.name))
    return options_of([command]) | {"--help", "--version"}, words[len(command.name.split()) :]


def options_of(some: Iterable[Command]) -> set[str]:
    return {name for command in some for parameter in command.parameters for name in parameter.name.split(", ")}


@pytest.mark.parametrize(("page", "line"), sorted(set(shown())), ids=lambda text: str(text)[:60])
def test_every_command_that_is_shown_exists_with_its_options(page: str, line: str) -> None:
    options, rest = command_of(shlex.split(line))
    used = {word.partition("=")[0] for word in rest if word.startswith("--") and word != "--"}
    assert used - options == set(), f"{page}: {line}"


@pytest.mark.parametrize("start", NOT_RUN)
def test_a_command_that_no_test_of_wheels_runs_is_still_shown(start: str) -> None:
    assert any(line.startswith(start) for _, line in shown())


# Options of other programs that prose names, and the pages that are about past runs or programs of the repository.
OTHERS = {"--build-arg", "--secret", "--time", "--outbound", "--platforms", "--affinity", "--cpulimit", "--cpuunits"}
OTHER_PROGRAMS = (
    "virsh ",
    "openstack ",
    "python -m ",
    "docker ",
    "qm ",
    "systemctl ",
    "virtctl ",
    "promtool ",
    "prometheus ",
    "thanos ",
)
GUIDES = [page for page in PAGES if page.parent.name == "docs" and page.name != "results.md"]


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_every_option_that_prose_names_is_an_option_of_some_command(page: Path) -> None:
    spans = [span for span in re.findall(r"`([^`]+)`", prose(page)) if not span.startswith(OTHER_PROGRAMS)]
    named = {option for span in spans for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", span)}
    assert named - options_of(every_command()) - OTHERS - {"--config", "--version"} == set()
