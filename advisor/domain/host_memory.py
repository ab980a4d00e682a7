"""The state of a host's memory beyond its size: stalls, swap, merged pages."""

from __future__ import annotations

import math
from dataclasses import dataclass

# Kernel, Documentation/accounting/psi.rst: the example of a trigger is a partial stall of 150 ms within 1 s. A host
# that stalls so much takes no new VM. systemd-oomd kills from 60 % on (oomd.conf, DefaultMemoryPressureLimit).
STALLED_PERCENT = 15.0
# Assumed: where the kernel counts no pressure (psi=0), 256 pages of 4 kB a second that are needed again count as such.
SWAPS_IN_MB_S = 1.0
MEMORY_SHORT = "memory_short"  # label of a host, while answers are made: why it takes no new VM
NOTICED_PERCENT = 1.0  # of stalls: less is not named


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Means over about five minutes as the host's agent measured them; None = the host does not show it.

    `stalled` is the part of the time in %, in which some task waited for memory (PSI memory, `some`). `swap_mb` are
    swapped out, and `swap_in_mb_s` come back: memory that is needed and is not there. `ksm_mb` are saved by merged
    pages, which come back as demand when they change. `available_mb` can be used without swapping. The pool of huge
    pages of the default size is `huge_mb`, of which `huge_free_mb` are free.
    """

    stalled: float | None = None
    swap_mb: float | None = None
    swap_in_mb_s: float | None = None
    swap_out_mb_s: float | None = None
    ksm_mb: float | None = None
    available_mb: float | None = None
    huge_mb: float | None = None
    huge_free_mb: float | None = None

    @property
    def swaps(self) -> bool:
        """Whether memory that is needed was swapped out, and comes back."""
        return (self.swap_in_mb_s or 0.0) >= SWAPS_IN_MB_S

    def is_short(self, stalled_percent: float = STALLED_PERCENT) -> bool:
        """Whether the host takes no new VM: its tasks stall for memory, or it swaps and does not show stalls."""
        if self.stalled is not None:
            return self.stalled >= stalled_percent
        return self.swaps

    @property
    def short_words(self) -> str:
        """Why it is short of memory, as a part of a sentence, in steps of 5 % and of powers of two."""
        parts = []
        if self.stalled is not None and self.stalled >= NOTICED_PERCENT:
            parts.append(f"stalls for memory about {max(5 * round(self.stalled / 5), 1)} % of the time")
        if self.swaps:
            parts.append(f"swaps in about {2 ** round(math.log2(self.swap_in_mb_s or 1.0))} MB/s")
        return " and ".join(parts)

    @property
    def words(self) -> str:
        """What is wrong with it, as a part of a sentence; empty = nothing is."""
        parts = []
        if self.stalled is not None and self.stalled >= NOTICED_PERCENT:
            parts.append(f"stalls for memory {self.stalled:.0f} % of the time")
        if self.swaps:
            parts.append(f"swaps in {self.swap_in_mb_s:.1f} MB/s")
        if parts and self.swap_mb:
            parts.append(f"has {self.swap_mb:,.0f} MB in swap")
        return ", ".join(parts)
