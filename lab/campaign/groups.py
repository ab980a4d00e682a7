"""Reads the groups of a campaign: pairs, listed groups and combinations, crossed with factors and pinning forms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from lab.campaign.combinations import choose
from lab.campaign.factors import MOST_GROUPS, read_cross
from lab.campaign.members import check_names, read_members
from lab.campaign.model import Member, MemberGroup, PinningForm
from lab.fields import Fields

_MOST_CHOSEN = 2000  # combinations of one entry


def read_groups(
    top: Fields, members: Mapping[str, Member], forms: Mapping[str, PinningForm], seed: int
) -> tuple[MemberGroup, ...]:
    """All groups of a campaign, each once."""
    groups = [MemberGroup(pair, form) for form in forms.values() for pair in _pairs(top, members)]
    for index, entry in enumerate(top.sequence("groups") if top.has("groups") else []):
        groups += _entry(Fields(top.file, f"groups[{index}]", entry), members, forms, seed)
    if not groups:
        top.wrong("groups", "names no members that share a host (pairs is none, too)")
    return tuple(dict.fromkeys(groups))


def _pairs(top: Fields, members: Mapping[str, Member]) -> list[tuple[Member, ...]]:
    pairs = top.raw("pairs", "none" if top.has("groups") else "all")
    if pairs == "all":
        return list(itertools.combinations_with_replacement(members.values(), 2))
    if pairs == "none":
        return []
    return [read_members(top, f"pairs[{i}]", entry, members, {}) for i, entry in enumerate(top.sequence("pairs"))]


def _entry(
    fields: Fields, members: Mapping[str, Member], forms: Mapping[str, PinningForm], seed: int
) -> list[MemberGroup]:
    listings, place = _listings(fields, members, seed)
    names = check_names(fields, "pinnings", fields.sequence("pinnings", list(forms)), forms, "pinnings")
    groups = [
        MemberGroup(read_members(fields, place, listing, members, changes, least=1), forms[name])
        for listing in listings
        for changes in read_cross(fields, len(listing))
        for name in names
    ]
    fields.done()
    if len(groups) > MOST_GROUPS:
        fields.wrong(fields.place, f"makes more than {MOST_GROUPS} groups")
    return groups


def _listings(fields: Fields, members: Mapping[str, Member], seed: int) -> tuple[list[list[Any]], str]:
    """Member lists of this entry, and where in the file they stand."""
    if fields.has("members") == fields.has("combinations"):
        fields.wrong(fields.place, "must have either members or combinations")
    if fields.has("members"):
        return [fields.sequence("members")], fields.at("members")
    inner = fields.fields("combinations")
    of = inner.raw("of", "all")
    names = list(members) if of == "all" else check_names(inner, "of", inner.sequence("of"), members, "workloads")
    size = inner.whole("size", least=2, most=64)
    count = inner.whole("count", most=_MOST_CHOSEN) if inner.has("count") else None
    seed = inner.whole("seed", seed, least=0, most=2**31)
    inner.done()
    try:
        chosen = choose(list(dict.fromkeys(names)), size, count, seed)
    except ValueError as error:
        inner.wrong(inner.place, str(error))
    return [list(entry) for entry in chosen], inner.place
