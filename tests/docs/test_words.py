"""Documents name the actor and say what it does: these words hide both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(
    r"\b(?:told|tells|whom|nobody|everybody|somebody|who\s+is\s+there|what\s+there\s+is)\b", re.IGNORECASE
)
ARCHIVE = ROOT / "docs" / "decisions" / "archive"
FOLDERS = (ROOT / "docs", ROOT / "integrations", ROOT / "research" / "results")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
    if ARCHIVE not in page.parents
)
# Names of fields in the reference, which are no prose.
CODE = re.compile(r"`[^`\n]*`")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def forbidden_in(text: str) -> list[str]:
    """Each forbidden word with its line: `line 3: told`."""
    found = FORBIDDEN.finditer(text)
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0].lower()}" for match in found]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_document_says_who_does_what(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert forbidden_in(CODE.sub("", text) if page.parent.name == "reference" else text) == []


def test_forbidden_words_are_found_whole_in_any_case_and_across_lines() -> None:
    text = "Nobody was\ntold what there\nis.\nA toldest untold body.\nIt tells who\nis there."
    assert forbidden_in(text) == [
        "line 1: nobody",
        "line 2: told",
        "line 2: what there\nis",
        "line 5: tells",
        "line 5: who\nis there",
    ]
