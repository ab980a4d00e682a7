"""The picture of a run: what every policy loses to the oracle, and how many instances it leaves below the SLO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from profiler.pictures import ACCENT, BAD, SOFT, interval, label, named_rows, new_figure, save
from research.benchmarks.clouds import runs

_ROW_INCHES = 0.19


def draw(results: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the largest full cloud of every world, a row each; PictureError where it cannot be written."""
    shown = largest(results)
    policies = max((len(_policies(one)) for one in shown), default=1)
    figure, panels = new_figure(
        2 * len(shown) or 2, columns=2, width=11.0, height=max(len(shown), 1) * (_ROW_INCHES * policies + 0.7)
    )
    for row, result in enumerate(shown):
        title = f"{result['dataset']}, {result['world']}, {result['hosts']} hosts"
        _bars(panels[2 * row], result, "regret_percent", title, "loss to the oracle's mean T/B, percent")
        _bars(panels[2 * row + 1], result, "below_slo_percent", "", f"instances below {runs.SLO} of alone, percent")
    save(figure, path)


def largest(results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of every world the full cloud with most hosts."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for result in results:
        key = (result["dataset"], result["world"])
        if result.get("load") == runs.FULL.name and (key not in found or result["hosts"] > found[key]["hosts"]):
            found[key] = result
    return list(found.values())


def _policies(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: row for name, row in result["policies"].items() if "below_slo_percent" in row}


def _bars(axes: Any, result: Mapping[str, Any], figure: str, title: str, what: str) -> None:
    rows = _policies(result)
    names = list(rows)
    colours = [ACCENT if name.startswith("cotenant") else SOFT for name in names]
    values = [rows[name][figure] for name in names]
    axes.barh(range(len(names)), values, color=colours, height=0.7)
    if figure == "regret_percent":
        for at, name in enumerate(names):
            if rows[name]["regret_interval"]:
                interval(axes, rows[name]["regret_interval"], at, BAD)
    named_rows(axes, names)
    label(axes, title, what)
