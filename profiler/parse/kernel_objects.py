"""What a guest holds in tables of fixed size (finding N13): grants that are in use, and its kernel's cached objects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from profiler.parse.text import ParseError, count, lines

ENTRIES_PER_FRAME = {1: 512, 2: 256}  # of a page of 4 KB: an entry of version 1 has 8 bytes, of version 2 it has 16
_LOG = re.compile(r"\(XEN\) (?:\[ *[0-9][0-9 .:-]{0,40}\] )?(.*)\Z")  # with the time where Xen's boot line asks for it
_BEGIN, _END = "gnttab_usage_print_all [", "gnttab_usage_print_all ] done"
_TABLE = re.compile(r"(?a)grant-table for remote d(\d{1,5}) \(v([12])\)\Z")
_FRAMES = re.compile(r"(?a) *(\d{1,10}) frames \((\d{1,10}) max\), (\d{1,10}) maptrack frames \((\d{1,10}) max\)\Z")
_ENTRY = re.compile(r"(?a)\[0x[0-9a-f]{1,8}\] +\d{1,5} 0x")


@dataclass(frozen=True, slots=True)
class GrantTable:
    """A domain's grant table: entries that another domain holds now, and frames (pages of entries) of those allowed."""

    version: int
    held: int
    frames: int
    most_frames: int

    @property
    def most_entries(self) -> int:
        """How many entries the table can grow to."""
        return self.most_frames * ENTRIES_PER_FRAME[self.version]


def parse_grant_tables(text: str, where: str = "") -> dict[int, GrantTable]:
    """Read the last whole list of `xl debug-keys g` in `xl dmesg`, tables by domain.

    Xen prints an entry while it is held (xen/common/grant_table.c, gnttab_usage_print); what was only offered, or was
    copied and let go, is in no list.
    """
    what = "grant tables"
    found: dict[int, GrantTable] | None = None
    tables: dict[int, GrantTable] | None = None
    domain, version = -1, 0
    for number, line in lines(text):
        log = _LOG.match(line)
        said = log[1].rstrip() if log else ""
        if said.startswith(_BEGIN):
            tables, domain = {}, -1
        elif said == _END:
            found, tables = tables, None
        elif tables is None:
            continue
        elif match := _TABLE.match(said):
            domain, version = int(match[1]), int(match[2])
        elif domain >= 0 and (match := _FRAMES.match(said)):
            tables[domain] = GrantTable(version, 0, int(match[1]), int(match[2]))
        elif _ENTRY.match(said):
            if domain not in tables:
                raise ParseError(what, where, number, "an entry of no domain")
            table = tables[domain]
            tables[domain] = GrantTable(version, table.held + 1, table.frames, table.most_frames)
    if found is None:
        raise ParseError(what, where, 1, "it holds no whole list of grant tables")
    return found


@dataclass(frozen=True, slots=True)
class SlabCache:
    """One cache of the kernel's slab allocator: objects in use, objects that there is room for, bytes of an object."""

    active: int
    objects: int
    size: int


def parse_slabinfo(text: str, where: str = "") -> dict[str, SlabCache]:
    """Read /proc/slabinfo (slabinfo(5), version 2): caches by name."""
    what = "slabinfo"
    caches: dict[str, SlabCache] = {}
    numbered = lines(text)
    if not numbered or not numbered[0][1].startswith("slabinfo - version: 2."):
        raise ParseError(what, where, 1, "it is no slabinfo of version 2")
    for number, line in numbered[1:]:
        if line.startswith("#"):
            continue
        words = line.split()
        if len(words) < 4:
            raise ParseError(what, where, number, f"{line[:60]!r} is no cache")
        active, objects, size = (count(word, what, where, number) for word in words[1:4])
        caches[words[0]] = SlabCache(active, objects, size)
    return caches
