"""Puts pages that stand at the root of the repository into the site, and turns links to them both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"SECURITY.md": "security.md", "ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md"}


def on_files(files: Any, config: Any) -> Any:
    """Add the root's pages; their links to docs/ become links beside them."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, target, content=_turned(text.replace("](docs/", "]("))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn a page's links to the root's pages."""
    return _turned(markdown)


def _turned(text: str) -> str:
    for source, target in PAGES.items():
        text = re.sub(rf"\]\(((?:\.\./)*){re.escape(source)}", lambda m, t=target: f"]({_up(m[1])}{t}", text)
    return text


def _up(dots: str) -> str:
    """One folder less than in the repository: docs/ is the root of the site."""
    return dots.removeprefix("../")
