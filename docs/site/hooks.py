"""Puts pages that stand outside of docs/ into the site, and turns links to and from them."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
RECORD = "research/results"
PAGES = {"SECURITY.md": "security.md", "ARCHITECTURE.md": "architecture.md", "CONTRIBUTING.md": "contributing.md"}
PAGES |= {"integrations/README.md": "integrations/index.md"}
PAGES |= {
    f"integrations/{path.parent.name}/README.md": f"integrations/{path.parent.name}.md"
    for path in (ROOT / "integrations").glob("*/pyproject.toml")
    if 'entry-points."cotenant' in path.read_text(encoding="utf-8")
}
PAGES |= {f"{RECORD}/{path.name}": f"results/{path.name}" for path in (ROOT / RECORD).glob("*.md")}
SOURCES = {target: source for source, target in PAGES.items()}
LINK = re.compile(r"\]\(([^)#\s:]+)((?:#[^)\s]*)?)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside of docs/."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    target = page.file.src_uri
    source = SOURCES.get(target, f"docs/{target}")
    return LINK.sub(lambda link: f"]({_turned(link[1], source, target)}{link[2]})", markdown)


def _turned(path: str, source: str, target: str) -> str:
    """The address, seen from the page `target`, of the file that `source` calls `path`."""
    file = normpath(join(dirname(source), path))
    there = PAGES.get(file) or file.removeprefix("docs/")
    return path if there == file else relpath(there, dirname(target) or ".")
