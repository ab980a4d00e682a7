"""Text of resctrl's files into numbers (kernel: Documentation/filesystems/resctrl.rst); no I/O."""

from __future__ import annotations

from profiler.parse.text import ParseError, count, lines

# What a counter says in place of a number (fs/resctrl/ctrlmondata.c, rdtgroup_mondata_show).
_NO_VALUE = {
    "Unavailable": "the hardware had no value",
    "Error": "the hardware refused to say",
    "Unassigned": "no hardware counter is assigned to this group",
}


def parse_monitor(text: str, where: str = "") -> int:
    """Read `llc_occupancy`, `mbm_total_bytes` or `mbm_local_bytes` of a group and domain, in bytes."""
    word = text.strip()
    if word in _NO_VALUE:
        raise ParseError("resctrl counter", where, 1, _NO_VALUE[word])
    return count(word, "resctrl counter", where)


def parse_tasks(text: str, where: str = "") -> frozenset[int]:
    """Read `tasks` of a group: numbers of threads."""
    return frozenset(count(line, "resctrl tasks", where, number) for number, line in lines(text))
