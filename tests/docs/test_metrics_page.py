"""Fails when docs/metrics.md or the README's table is not what the definitions in the code say."""

from __future__ import annotations

from pathlib import Path

from profiler.definitions import page_markdown, table_markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page_markdown(), "write it anew: python -m profiler.definitions > docs/metrics.md"


def test_the_readme_holds_the_table_of_metrics_and_points_to_the_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert table_markdown() in readme, "put in the README what profiler.definitions.table_markdown() gives"
    assert "docs/metrics.md" in readme
