"""Grant tables and slab caches: what counts as held, of which domain, and answers that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.parse.proc import GrantTable, SlabCache, parse_grant_tables, parse_slabinfo
from profiler.parse.text import ParseError
from tests.profiler.test_xen_recordings import RECORDINGS

SLAB = """slabinfo - version: 2.1
# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount>
skbuff_head_cache    148    160    256   16    1 : tunables    0    0    0 : slabdata     10     10      0
kmalloc-8k             0      4   8192    4    8 : tunables    0    0    0 : slabdata      1      1      0
"""


def _list(tables: dict[int, list[int]], version: int = 1, stamp: str = "") -> str:
    """What `xl debug-keys g` prints of domains with these entries held."""
    out = ["gnttab_usage_print_all [ key 'g' pressed"]
    for domain, entries in tables.items():
        out += [
            "      -------- active --------       -------- shared --------",
            "[ref] localdom mfn      pin          localdom gmfn     flags",
            f"grant-table for remote d{domain} (v{version})",
            "  2 frames (64 max), 0 maptrack frames (1024 max)",
            *(f"[0x{ref:03x}]      0 0x79a02 0x00000002          0 0x079a02 0x19" for ref in entries),
            *([] if entries else ["no active grant table entries"]),
        ]
    return "".join(f"(XEN) {stamp}{line}\n" for line in [*out, "gnttab_usage_print_all ] done"])


@given(
    st.dictionaries(st.integers(0, 32751), st.lists(st.integers(0, 4095), max_size=9), max_size=4),
    st.sampled_from([1, 2]),
    st.sampled_from(["", "[2026-11-28 12:00:00.123] ", "[   12.345678] "]),
)
def test_entries_count_for_the_domain_whose_table_holds_them(
    tables: dict[int, list[int]], version: int, stamp: str
) -> None:
    found = parse_grant_tables(f"(XEN) booted\n{_list(tables, version, stamp)}(XEN) later\n")
    assert {domain: table.held for domain, table in found.items()} == {
        domain: len(entries) for domain, entries in tables.items()
    }
    assert all(table.most_entries == {1: 32768, 2: 16384}[version] for table in found.values())


def test_of_several_lists_the_last_whole_one_counts() -> None:
    text = _list({1: [0]}) + _list({1: [0, 1]}) + _list({1: [0, 1, 2]}).rpartition("(XEN) gnttab")[0]
    assert parse_grant_tables(text) == {1: GrantTable(1, 2, 2, 64)}


@pytest.mark.parametrize("text", ["", "(XEN) booted\n", _list({1: [0]}).rpartition("(XEN) gnttab")[0]])
def test_a_log_without_a_whole_list_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="no whole list of grant tables"):
        parse_grant_tables(text)


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings of a real Xen are not beside the repository")
def test_what_a_real_xen_printed() -> None:
    found = parse_grant_tables((RECORDINGS / "xl-dmesg-g.txt").read_text(encoding="utf-8"))
    assert {domain: (table.held, table.frames) for domain, table in found.items()} == {0: (0, 1), 1: (4, 2), 2: (4, 2)}


def test_caches_are_read_by_name() -> None:
    caches = parse_slabinfo(SLAB)
    assert caches == {"skbuff_head_cache": SlabCache(148, 160, 256), "kmalloc-8k": SlabCache(0, 4, 8192)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no slabinfo of version 2"), ("slabinfo - version: 1.1\n", "no slabinfo of version 2"),
        ("slabinfo - version: 2.1\na 1 2\n", "no cache"), ("slabinfo - version: 2.1\na 1 x 3\n", "not a counter"),
    ],
)  # fmt: skip
def test_what_is_no_slabinfo_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        parse_slabinfo(text)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse, begin in ((parse_grant_tables, "(XEN) gnttab_usage_print_all [\n"), (parse_slabinfo, SLAB)):
        try:
            parse(begin + text)
        except ParseError as error:
            assert error.line >= 1
