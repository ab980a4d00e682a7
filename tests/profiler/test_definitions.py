"""The table metric × hypervisor: complete, in order, in words; and the tests that its cells name exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from advisor.render.whole import HOST_TOOLS
from profiler.backends import detection
from profiler.backends.sources import LiveSource
from profiler.definitions import DEFINITIONS, Definition, page_markdown
from profiler.host_kinds import HOST_KINDS, TRAITS
from profiler.metrics import EIGHT

ROOT = Path(__file__).parents[2]


@cache
def sources() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


CELLS = [(key, cell) for key, cells in DEFINITIONS.items() for cell in cells]


def test_every_kind_of_hypervisor_can_be_read_and_reported() -> None:
    """Definitions and what describes a host follow the table of kinds; backends and tools have entries of their own."""
    assert {kind.backend for kind in TRAITS.values()} == detection._makers(LiveSource(), None, "off").keys()
    assert HOST_TOOLS.keys() == set(HOST_KINDS)
    assert tuple(TRAITS) == HOST_KINDS


@pytest.mark.parametrize("hypervisor", DEFINITIONS)
def test_each_hypervisor_defines_the_eight_in_their_order(hypervisor: str) -> None:
    assert [cell.metric for cell in DEFINITIONS[hypervisor]] == [metric.name for metric in EIGHT]


@pytest.mark.parametrize(("hypervisor", "cell"), CELLS, ids=lambda part: getattr(part, "metric", part))
def test_a_cell_says_source_formula_distance_and_by_which_tests_it_was_verified(
    hypervisor: str, cell: Definition
) -> None:
    for name, words in (("source", 3), ("formula", 1), ("distance", 3), ("verified", 1)):
        text = getattr(cell, name)
        assert len(text.split()) >= words, f"{hypervisor} {cell.metric} {name}: {text!r}"
        assert not re.search(r"\b(TODO|TBD|FIXME)\b", text)
    assert re.search(r"\btests/", cell.verified), f"{hypervisor} {cell.metric} names no test"
    for path in re.findall(r"\b(?:tests|research/benchmarks)/[\w/.-]*\w", cell.verified):
        assert (ROOT / path).exists(), f"{hypervisor} {cell.metric} names {path}"
    tests = sources()
    for name in re.findall(r"\btest_[a-z0-9_]{20,}\b(?!\.py)", cell.verified):
        assert f"def {name}(" in tests, f"{hypervisor} {cell.metric} names {name}"


def test_the_page_holds_every_cell() -> None:
    page = " ".join(page_markdown().split())
    for _, cell in CELLS:
        for text in (cell.source, cell.formula, cell.distance, cell.verified):
            assert " ".join(text.split()).replace("|", "\\|") in page
