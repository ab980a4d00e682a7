"""CHANGELOG.md: versions with dates, changes by kind, one line each."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]
MOST_CHARACTERS = 400  # of a change: the documentation has the rest


def versions() -> list[tuple[str, str]]:
    """Heading and text of each version, newest first."""
    _, *parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_each_version_stands_once_with_its_date() -> None:
    headings = [heading for heading, _ in versions()]
    assert headings[0] == "[Unreleased]"
    assert [one for one in headings[1:] if not re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", one)] == []
    assert len(set(headings)) == len(headings)


def test_changes_are_sorted_by_kind_and_each_kind_stands_once() -> None:
    for _, text in versions():
        kinds = re.findall(r"^### (.+)$", text, flags=re.MULTILINE)
        assert set(kinds) <= set(KINDS)
        assert len(set(kinds)) == len(kinds)
        assert not re.search(r"^- ", text.partition("\n### ")[0], flags=re.MULTILINE)


def test_each_change_is_one_line_of_bounded_length() -> None:
    for _, text in versions():
        for _, changes in re.findall(r"^### (.+)\n\n((?:.+\n)+)", text, flags=re.MULTILINE):
            assert [line for line in changes.splitlines() if not line.startswith("- ")] == []
            assert [line for line in changes.splitlines() if len(line) > MOST_CHARACTERS] == []
