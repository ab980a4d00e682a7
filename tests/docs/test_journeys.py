"""The four journeys of docs/index.md can be walked by links: each page links to the next one."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
JOURNEYS = {
    "an administrator places a VM": (
        "index.md",
        "your-cloud.md",
        "tour.md",
        "answers.md",
        "settings.md",
        "operations.md",
    ),
    "a scheduler engineer connects a scheduler": (
        "index.md",
        "schedulers.md",
        "access.md",
        "reference/rest.md",
        "monitoring.md",
    ),
    "a scheduler engineer connects Nova": ("index.md", "openstack.md", "access.md"),
    "a scheduler engineer connects Kubernetes": ("index.md", "kubernetes.md", "access.md"),
    "a planner makes a consolidation plan": ("index.md", "planning.md", "reports.md", "settings.md"),
    "an operator adds a host's metrics": ("index.md", "profiler.md", "inventory.md", "tour.md"),
}
STEPS = sorted({step for pages in JOURNEYS.values() for step in pairwise(pages)})


def linked_from(page: str) -> set[Path]:
    """The pages that this one links to."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return {(DOCS / page).parent.joinpath(target).resolve() for target in re.findall(r"\]\(([^)#:\s]+)[^)]*\)", text)}


@pytest.mark.parametrize(("page", "following"), STEPS)
def test_each_page_of_a_journey_links_to_the_next(page: str, following: str) -> None:
    assert (DOCS / following).resolve() in linked_from(page)


@pytest.mark.parametrize("pages", JOURNEYS.values(), ids=JOURNEYS)
def test_the_start_page_tells_every_journey_in_its_order(pages: tuple[str, ...]) -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if "→" in line and f"]({pages[1]})" in line]
    order = [row.find(f"]({page})") for page in pages[1:] if f"]({page})" in row]
    assert order == sorted(order)


def test_all_journeys_fit_the_first_screen_of_a_phone() -> None:
    """390 x 844 points show about 600 letters beside headings; table rows of one link each end at 713 of 844."""
    above, _, table = (DOCS / "index.md").read_text(encoding="utf-8").partition("## Four journeys")
    rows = [line for line in table.partition("\n## ")[0].splitlines() if line.startswith("|")]
    letters = re.sub(r"\]\([^)]*\)|[|*\[-]", "", "".join([above, *rows]))
    assert len(rows) == 2 + 4
    assert len(letters) < 500
