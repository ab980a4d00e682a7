"""Huge pages as labels: a host has so many of a size, an instance needs so many, and other memory is not made of them.

The pool is set at boot or by hand (kernel: hugetlbpage.rst); memory in it serves nothing else, used or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

NEEDS, HAS = "needs.", "has."  # before the name of something that is counted: of an instance, of a host
# Sizes of the architectures on which the kernel has them (hugetlb_add_hstate of x86, arm64, powerpc, s390, riscv).
_SIZES_KIB = (64, 1024, 2048, 16384, 32768, 65536, 524288, 1048576, 2097152, 16777216)
DEFAULT_KIB = 2048  # of x86 and arm64 with pages of 4 KiB, where no default_hugepagesz= says another


def name_of(kib: int) -> str:
    """What pages of this size are called, such as hugepages_2mib."""
    for unit, size in (("gib", 1 << 20), ("mib", 1 << 10)):
        if kib >= size and kib % size == 0:
            return f"hugepages_{kib // size}{unit}"
    return f"hugepages_{kib}kib"


PAGES_MB: Mapping[str, float] = {name_of(kib): kib / 1024 for kib in _SIZES_KIB}
_NEEDS_MB = {f"{NEEDS}{name}": mb for name, mb in PAGES_MB.items()}
_HAS_MB = {f"{HAS}{name}": mb for name, mb in PAGES_MB.items()}
LABELS = frozenset({*_NEEDS_MB, *_HAS_MB})


def pages_in_words(name: str) -> str:
    """The size of pages by what they are called: 2 MiB of hugepages_2mib."""
    size = name.rpartition("_")[2]
    return f"{size[:-3]} {size[-3].upper()}iB"


def pools(pages: Mapping[int, int]) -> dict[str, str]:
    """Labels of a host with so many pages of each size in KiB."""
    return {f"{HAS}{name_of(kib)}": str(count) for kib, count in sorted(pages.items()) if count > 0}


def needs(memory_mb: float, kib: int) -> dict[str, str]:
    """The label of an instance whose memory is of pages of this size; none for a size that no kernel has."""
    label = f"{NEEDS}{name_of(kib)}"
    return {label: str(math.ceil(round(memory_mb * 1024 / kib, 6)))} if label in _NEEDS_MB else {}


def needed_mb(labels: Mapping[str, str]) -> float:
    """MB of an instance that are of huge pages."""
    return _mb(labels, _NEEDS_MB)


def pooled_mb(labels: Mapping[str, str]) -> float:
    """MB of a host that are huge pages."""
    return _mb(labels, _HAS_MB)


def _mb(labels: Mapping[str, str], sizes: Mapping[str, float]) -> float:
    return 0.0 if sizes.keys().isdisjoint(labels) else sum(_parts(labels, sizes))


def _parts(labels: Mapping[str, str], sizes: Mapping[str, float]) -> Iterable[float]:
    for name, mb in sizes.items():
        text = labels.get(name, "0")
        yield mb * float(text) if text.isascii() and text.replace(".", "", 1).isdecimal() and len(text) < 16 else 0.0
