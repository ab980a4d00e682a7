"""Documents name the actor and say what it does: these words hide both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = re.compile(r"\b(?:told|whom|nobody|everybody|somebody|what\s+there\s+is)\b", re.IGNORECASE)
ARCHIVE = ROOT / "docs" / "decisions" / "archive"
FOLDERS = (ROOT / "docs", ROOT / "integrations")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in folder.rglob("*.md"))]
    if ARCHIVE not in page.parents
)
# Pages that still wait to be rewritten.
WAITING: frozenset[str] = frozenset(
    {
        "CHANGELOG.md",
        "README.md",
        "docs/decisions/0008-scores-compare-with-before.md",
        "docs/decisions/0049-requests-run-in-lanes.md",
        "docs/decisions/0070-contention-over-moments.md",
        "docs/decisions/0073-many-hosts-are-screened.md",
        "docs/decisions/0078-agents-announce.md",
        "docs/decisions/0079-classes-of-the-own-cloud.md",
        "docs/decisions/0085-hours-are-in-the-moments.md",
        "docs/decisions/0087-windows-are-outcomes.md",
        "docs/decisions/0088-shares-are-learned-from-windows.md",
        "docs/decisions/0089-contradictions-are-alarms.md",
        "docs/decisions/0098-last-places-have-a-price.md",
        "docs/decisions/0118-the-same-doubt-before-and-after.md",
        "docs/decisions/0138-victims-are-counted-with-total.md",
        "docs/decisions/0165-alone-means-on-the-whole-host.md",
        "docs/decisions/0170-a-disk-serves-requests.md",
        "docs/decisions/0188-a-tuning-is-a-plan.md",
        "docs/decisions/index.md",
        "docs/reference/commands.md",
        "docs/reference/errors.md",
        "docs/reference/rest.md",
        "docs/tour.md",
    }
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def forbidden_in(text: str) -> list[str]:
    """Each forbidden word with its line: `line 3: told`."""
    found = FORBIDDEN.finditer(text)
    return [f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0].lower()}" for match in found]


@pytest.mark.parametrize("page", [page for page in PAGES if name_of(page) not in WAITING], ids=name_of)
def test_a_document_says_who_does_what(page: Path) -> None:
    assert forbidden_in(page.read_text(encoding="utf-8")) == []


def test_forbidden_words_are_found_whole_in_any_case_and_across_lines() -> None:
    text = "Nobody was\ntold what there\nis.\nA toldest untold body."
    assert forbidden_in(text) == ["line 1: nobody", "line 2: told", "line 2: what there\nis"]
