"""Decisions: each live one stands in the index, and each that code names is live or in the archive."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ROOT / "docs" / "decisions"
SOURCES = ("advisor", "api", "cotenant_client", "lab", "models", "profiler", "research", "examples")


def live() -> dict[int, str]:
    """Number and file of each decision that has a page."""
    return {int(page.name[:4]): page.name for page in DECISIONS.glob("[0-9]*.md")}


def archived() -> set[int]:
    text = (DECISIONS / "archive" / "archive.md").read_text(encoding="utf-8")
    return {int(number) for number in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)}


def test_the_index_lists_every_live_decision_once_in_order() -> None:
    text = (DECISIONS / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.+\]\((\d{4}-[\w-]+\.md)\) \| \w+ \|$", text, flags=re.MULTILINE)
    assert [(int(number), file) for number, file in rows] == sorted(live().items())


def test_no_decision_is_both_live_and_archived() -> None:
    assert live().keys() & archived() == set()


def test_every_decision_that_code_names_can_be_found() -> None:
    known = live().keys() | archived()
    lost = {
        f"{path.relative_to(ROOT)}: {number}"
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".c", ".yaml"}
        for number in re.findall(r"\b[Dd]ecisions?[ /]0*(\d{1,3})\b", path.read_text(encoding="utf-8"))
        if int(number) not in known
    }
    assert lost == set()
