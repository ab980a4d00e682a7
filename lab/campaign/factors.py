"""Factors that a group crosses: every combination of its members' loads, caps, weights, network modes, disk limits.

`cross: {load: [0.3, 1.0], cap_percent: [25, 50, none], of: 0}` varies member 0, the default `of: all` all members
together, `of: each` every member by itself, `of: [0, 2]` these two together. A list of such entries is crossed, too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from lab.campaign.members import NONE
from lab.fields import Fields

FACTORS = ("load", "cap_percent", "weight", "network", "disk_limit_mb_s")
MOST_GROUPS = 20_000  # of one entry; more is a mistake rather than a campaign

Changes = Mapping[int, Mapping[str, Any]]
"""Fields to override, by position of the member."""
_Axis = list[tuple[tuple[int, ...], str, Any]]


def read_cross(fields: Fields, size: int) -> list[Changes]:
    """Every combination of what `cross` lists, for a group of `size` members; one empty change without it."""
    if not fields.has("cross"):
        return [{}]
    cross = fields.raw("cross")
    blocks = cross if isinstance(cross, list) else [cross]
    axes: list[_Axis] = []
    for number, block in enumerate(blocks):
        place = fields.at("cross") + (f"[{number}]" if isinstance(cross, list) else "")
        axes += _axes(Fields(fields.file, place, block), size)
    varied = [(position, name) for targets, name, _ in (axis[0] for axis in axes) for position in targets]
    if len(set(varied)) < len(varied):
        fields.wrong(fields.at("cross"), "varies the same factor of a member twice")
    if math.prod(len(axis) for axis in axes) > MOST_GROUPS:
        fields.wrong(fields.at("cross"), f"makes more than {MOST_GROUPS} groups")
    return [_changes(choice) for choice in itertools.product(*axes)]


def _axes(fields: Fields, size: int) -> list[_Axis]:
    targets = _targets(fields, size)
    axes: list[_Axis] = []
    for name in FACTORS:
        if fields.has(name):
            values = [NONE if value is None else value for value in fields.sequence(name)]
            if any(value in values[:place] for place, value in enumerate(values)):
                fields.wrong(fields.at(name), "lists a value twice")
            axes += [[(target, name, value) for value in values] for target in targets]
    fields.done()
    if not axes:
        fields.wrong(fields.place, f"names no factor (one of {', '.join(FACTORS)})")
    return axes


def _targets(fields: Fields, size: int) -> list[tuple[int, ...]]:
    """Positions that vary together."""
    of = fields.raw("of", "all")
    if of == "all":
        return [tuple(range(size))]
    if of == "each":
        return [(position,) for position in range(size)]
    positions = of if isinstance(of, list) and of else [of]
    for position in positions:
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < size:
            fields.wrong(fields.at("of"), f"must be all, each, or positions of members from 0 to {size - 1}")
    return [tuple(positions)]


def _changes(choice: tuple[tuple[tuple[int, ...], str, Any], ...]) -> Changes:
    changes: dict[int, dict[str, Any]] = {}
    for target, name, value in choice:
        for position in target:
            changes.setdefault(position, {})[name] = value
    return changes
