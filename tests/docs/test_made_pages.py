"""Pages that the code makes are what it says now: metrics, the inventory file, and the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from advisor.inventories import static
from docs.site import inventory, reference
from profiler.definitions import page_markdown

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_metrics_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert written == page_markdown(), "write it anew: make generated"


@pytest.mark.parametrize(("name", "page"), reference.PAGES.items(), ids=reference.PAGES)
def test_a_page_is_what_the_code_says(name: str, page: Callable[[], str]) -> None:
    written = (reference.FOLDER / name).read_text(encoding="utf-8")
    assert written == page(), "write it anew: make generated"


@pytest.mark.parametrize(
    ("reported", "read"),
    [(inventory.HOST, static.HOST), (inventory.INSTANCE, static.INSTANCE)],
    ids=["host", "instance"],
)
def test_the_page_of_the_inventory_file_tells_the_fields_that_are_read(
    reported: Mapping[str, object], read: Mapping[str, object]
) -> None:
    assert list(reported) == list(read)


def test_the_example_of_the_inventory_file_is_read(tmp_path: Path) -> None:
    example = tmp_path / "cloud.yaml"
    example.write_text(inventory.EXAMPLE, encoding="utf-8")
    assert [host.id for host in static.load_inventory(example).hosts] == ["kvm01", "kvm02"]
