"""The common design of all reports: style sheet, base template, and charts in the page's colours."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from profiler.names import visible
from profiler.pictures import ACCENT, INK, LINE, PAPER, SERIES, SOFT, inline_svg

FOLDER = Path(__file__).parent
LONGEST = 44  # characters of a name in a picture
# Drawn in these and shown in the page's own colours, so that one picture fits light, dark and paper.
BEFORE, AFTER, NEW, BAD = (f"#0a000{number}" for number in range(1, 5))
SHADES = tuple(f"#0a001{number}" for number in range(6))
"""Shades of table cells, from the best to the worst: fine, then w1 to w5."""
_VARIABLES = (
    {INK: "ink", SOFT: "soft", LINE: "line", PAPER: "sheet", ACCENT: "accent"}
    | {colour: f"s{number}" for number, colour in enumerate(SERIES)}
    | {BEFORE: "before", AFTER: "after", NEW: "new", BAD: "bad"}
    | {colour: ("fine", "w1", "w2", "w3", "w4", "w5")[number] for number, colour in enumerate(SHADES)}
)


def environment(templates: Path | None = None) -> jinja2.Environment:
    """Templates of a folder, which may extend `report.html.j2`; everything that is put in is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder for folder in (templates, FOLDER) if folder]),
        finalize=visible,
        autoescape=True,  # names come from outside
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def inline(figure: Any, salt: str, says: str) -> Markup:
    """A matplotlib figure for the middle of a page with its text alternative `says`; `salt` keeps its ids apart.

    Its colours are the page's variables, and it has no ids that could meet those of others. The same figure gives the
    same text. Names in it must have passed `short`.
    """
    svg = inline_svg(figure, salt)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(style="[^"]*); font-family: [^;"]*', r"\1", svg)  # in styles only: a name may read like one
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(says)}" ', 1))  # noqa: S704


def short(text: str, longest: int = LONGEST) -> str:
    """A name cut to length, without what could be markup: matplotlib reads formulas between dollar signs."""
    clean = re.sub(r"[^A-Za-z0-9_ .:;,+%/()=@\n'-]|^_", "?", text)  # a name with _ first gets no legend
    return clean if len(clean) <= longest else f"{clean[: longest - 3]}..."
