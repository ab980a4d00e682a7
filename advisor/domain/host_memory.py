"""The state of a host's memory beyond its size: stalls, swap, merged pages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from advisor.domain.figures import Known, Tenths

# Kernel, Documentation/accounting/psi.rst: the example of a trigger is a partial stall of 150 ms within 1 s. A host
# that stalls so much takes no new VM. systemd-oomd kills from 60 % on (oomd.conf, DefaultMemoryPressureLimit).
STALLED_PERCENT = 15.0
# Assumed: where the kernel counts no pressure (psi=0), 256 pages of 4 kB a second that are needed again count as such.
SWAPS_IN_MB_S = 1.0
MEMORY_SHORT = "memory_short"  # label of a host, while answers are made: why it takes no new VM
NOTICED_PERCENT = 1.0  # of stalls: less is not named


@dataclass(frozen=True, slots=True)
class HostMemory:
    """A host's memory over about five minutes, as its agent measured it; null = the host does not show it."""

    stalled: Annotated[
        Tenths | None, Field(description="part of the time in which some task stalled for memory (PSI), %")
    ] = None
    swap_mb: Annotated[Tenths | None, Field(description="memory that is swapped out, MB")] = None
    swap_in_mb_s: Annotated[
        Known | None, Field(description="memory that comes back from swap, MB/s: it is needed and is not there")
    ] = None
    swap_out_mb_s: Annotated[Known | None, Field(description="memory that goes to swap, MB/s")] = None
    ksm_mb: Annotated[
        Tenths | None,
        Field(description="memory saved by merged pages (KSM), which come back as demand when they change, MB"),
    ] = None
    available_mb: Annotated[Tenths | None, Field(description="memory that can be used without swapping, MB")] = None
    huge_mb: Annotated[Tenths | None, Field(description="the pool of huge pages of the default size, MB")] = None
    huge_free_mb: Annotated[Tenths | None, Field(description="of this pool what nothing uses, MB")] = None

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
