"""`python -m docs.site.reference` writes the pages of docs/ that the code makes anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.site import commands, datasets, errors, inventory, rest, settings

FOLDER = Path(__file__).resolve().parents[1] / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands.page,
    "settings.md": settings.page,
    "rest.md": rest.page,
    "errors.md": errors.page,
    "../inventory.md": inventory.page,
    "../datasets.md": datasets.page,
}


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
