"""Tables and cells of the generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with a blank line before and after it; empty where there are no rows."""
    lines = list(_lines(rows))
    if not lines:
        return ""
    return "\n".join(["", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *lines, ""])


def _lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    for row in rows:
        yield f"| {' | '.join(' '.join(cell.split()) for cell in row)} |".replace("  |", " |")


def code(text: str) -> str:
    """Text as code within a cell; a pipe would end the cell."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`" if text else ""


def prose(text: str) -> str:
    """A sentence within a cell: with a full stop and without what Markdown would take for a tag or a cell."""
    text = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return text if not text or text[-1] in ".?!:" else f"{text}."


def capital(text: str) -> str:
    """The text with a capital first letter, except in words such as pCPU."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


def made_by(module: str) -> str:
    """The comment that keeps people from changing the page."""
    return f"<!-- Made by `python -m docs.site.reference` from {module}; change that, not this page. -->\n"
