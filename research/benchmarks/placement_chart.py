"""README's chart: instances below 0.9 of their speed alone under each policy, from the table of docs/results.md.

    python -m research.benchmarks.placement_chart [docs/placement.png]

The table is what `python -m research.benchmarks.placement` printed; the chart adds nothing to it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from profiler.pictures import ACCENT, BAD, FAIR, GOOD, SOFT, label, legend_below, new_figure, save

ROOT = Path(__file__).resolve().parents[2]
HEADING = "## Placement on measured hosts"
POLICIES = (  # in the order of the table's last five columns
    ("first fit", "s", SOFT),
    ("Nova's weighers", "D", FAIR),
    ("least loaded", "^", BAD),
    ("Cotenant", "o", ACCENT),
    ("oracle", "|", GOOD),
)
LOADS = {"1.5 per host": "1.5 instances per host", "full": "all seats taken"}

Row = tuple[str, str, list[float]]  # measured hosts, load, percent below 0.9 by policy


def read(text: str) -> list[Row]:
    """The rows of the first table under HEADING; ValueError where it is not there."""
    section = text.split(HEADING, 1)
    if len(section) < 2:
        raise ValueError(f"no section {HEADING!r}")
    lines = re.findall(r"^\| `.*\|$", section[1].split("\n## ", 1)[0], flags=re.MULTILINE)
    rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in lines]
    return [(row[0].replace("`", "").replace("lab-", ""), row[1], [float(cell) for cell in row[-5:]]) for row in rows]


def draw(rows: list[Row], path: Path) -> None:
    """One panel per load, one line per kind of measured hosts, one mark per policy."""
    figure, panels = new_figure(2, width=10.0, height=3.8)
    for axes, (load, title) in zip(panels, LOADS.items(), strict=True):
        _panel(axes, [row for row in rows if row[1] == load], title)
    panels[1].set_yticklabels([])
    handles, _ = panels[0].get_legend_handles_labels()
    legend_below(figure, len(handles), handles=handles, loc="outside lower center")
    save(figure, path)


def _panel(axes: Any, rows: list[Row], title: str) -> None:
    places = range(len(rows))
    for number, (policy, marker, colour) in enumerate(POLICIES):
        values = [row[2][number] for row in rows]
        axes.scatter(values, places, marker=marker, color=colour, s=70 if marker == "|" else 32, label=policy, zorder=3)
    axes.set_yticks(places, [row[0] for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(-1, 60)
    label(axes, title, "instances below 0.9 of their speed alone, %")


def main() -> None:
    """Draw it to the file that is named, or to docs/placement.png."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "placement.png"
    draw(read((ROOT / "docs" / "results.md").read_text(encoding="utf-8")), path)


if __name__ == "__main__":
    main()
