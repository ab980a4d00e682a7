"""Throughput at fine grain, as EC2NET §V-A measures it: one rate per 256 KB received, quiet spells, buffer bursts."""

from __future__ import annotations

import statistics
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BUCKET_BYTES = 256 * 1024  # "every time when the receiver receives 256KB of data, it computes a throughput"
QUIET_FLOOR_NS = 5_000_000  # shorter gaps are ordinary wake-ups; the paper's quiet spells last tens of ms
MAX_GAPS = 20_000  # kept per transfer, so that a report stays small
MAX_BUCKETS = 200_000  # 50 GB
_RESOLUTION_NS = 1_000  # two reads of a clock are never trusted to differ by less


@dataclass(slots=True)
class Recorder:
    """Turns arrivals into buckets and gaps as they come; the first one only starts the clock."""

    gap_floor_ns: int = QUIET_FLOOR_NS
    start_ns: int = 0
    last_ns: int = 0
    received: int = 0
    ends_ns: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    gaps_left_out: int = 0
    _pending: int = 0

    def add(self, now_ns: int, size: int) -> None:
        """Note `size` bytes that arrived at `now_ns`; times that run backwards count as the latest one seen."""
        now_ns = max(now_ns, self.last_ns)
        if not self.received:
            self.start_ns = self.last_ns = now_ns
            self.received = size
            return
        if now_ns - self.last_ns >= self.gap_floor_ns:
            self._note_gap(self.last_ns, now_ns)
        self.last_ns = now_ns
        self.received += size
        self._pending += size
        if self._pending >= BUCKET_BYTES and len(self.ends_ns) < MAX_BUCKETS:
            self.ends_ns.append(now_ns)
            self.sizes.append(self._pending)
            self._pending = 0

    def _note_gap(self, start_ns: int, end_ns: int) -> None:
        if len(self.gaps) < MAX_GAPS:
            self.gaps.append((start_ns, end_ns - start_ns))
        else:
            self.gaps_left_out += 1

    def packed(self) -> bytes:
        """What was recorded, times in ns since the first arrival, as `Arrivals.unpack` reads it."""
        zero = self.start_ns
        gaps = [number for start, length in self.gaps for number in (start - zero, length)]
        head = (self.received, self.last_ns - zero, self.gaps_left_out, len(self.sizes), len(self.gaps))
        return pack((*head, *(end - zero for end in self.ends_ns), *self.sizes, *gaps))


def pack(numbers: Sequence[int]) -> bytes:
    """Whole numbers under 2^63 as bytes, 8 each."""
    return struct.pack(f"<{len(numbers)}q", *numbers)


def unpack(block: bytes) -> tuple[int, ...]:
    """The inverse of `pack`; ValueError for a block of another length, or with a negative number."""
    if len(block) % 8:
        raise ValueError(f"a block of {len(block)} bytes does not hold whole numbers")
    numbers = struct.unpack(f"<{len(block) // 8}q", block)
    if min(numbers, default=0) < 0:
        raise ValueError("a count or a time in it is negative")
    return numbers


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a receiver recorded, checked: `ends_ns[k]` is when bucket k of `sizes[k]` bytes was full."""

    received: int
    duration_ns: int
    ends_ns: tuple[int, ...]
    sizes: tuple[int, ...]
    gaps: tuple[tuple[int, int], ...]
    gaps_left_out: int = 0

    @classmethod
    def unpack(cls, block: bytes) -> Arrivals:
        """Read what a Recorder packed at the far end; ValueError says what is inconsistent."""
        numbers = unpack(block)
        if len(numbers) < 5 or len(numbers) != 5 + 2 * (numbers[3] + numbers[4]):
            raise ValueError(f"{len(numbers)} numbers do not make up the buckets and gaps that it announces")
        received, duration, left_out, buckets, _ = numbers[:5]
        ends, sizes = numbers[5 : 5 + buckets], numbers[5 + buckets : 5 + 2 * buckets]
        spans = numbers[5 + 2 * buckets :]
        if any(later < earlier for earlier, later in pairwise((0, *ends, duration))) or sum(sizes) > received:
            raise ValueError("its buckets are not in order, or hold more than was received")
        return cls(received, duration, ends, sizes, tuple(zip(spans[::2], spans[1::2], strict=True)), left_out)

    def times_s(self) -> list[float]:
        """Seconds from the first arrival to the end of each bucket."""
        return [end / 1e9 for end in self.ends_ns]

    def rates_mbit(self) -> list[float]:
        """Mb/s of each bucket: its bytes over the time since the bucket before."""
        return [
            size * 8e3 / max(end - start, _RESOLUTION_NS)
            for (start, end), size in zip(pairwise((0, *self.ends_ns)), self.sizes, strict=True)
        ]

    def mean_mbit(self) -> float | None:
        """Mb/s over all full buckets; None when there is none."""
        return sum(self.sizes) * 8e3 / max(self.ends_ns[-1], _RESOLUTION_NS) if self.sizes else None


@dataclass(frozen=True, slots=True)
class QuietSpells:
    """Gaps without data longer than `threshold_ms`, as a share of the whole time, and the longest one."""

    threshold_ms: float
    count: int
    share_percent: float
    longest_ms: float


def quiet_spells(arrivals: Arrivals, usual_bucket_ns: float | None = None) -> QuietSpells:
    """Find gaps longer than QUIET_FLOOR_NS in which a whole bucket should have come.

    `usual_bucket_ns` is the time that a bucket should take (the paced rate's); None = the median of this transfer.
    """
    if usual_bucket_ns is None:
        spans = [end - start for start, end in pairwise((0, *arrivals.ends_ns))]
        usual_bucket_ns = statistics.median(spans) if spans else 0.0
    threshold = max(QUIET_FLOOR_NS, usual_bucket_ns)
    lengths = [length for _, length in arrivals.gaps if length > threshold]
    share = 100.0 * sum(lengths) / arrivals.duration_ns if arrivals.duration_ns else 0.0
    return QuietSpells(threshold / 1e6, len(lengths), min(share, 100.0), max(lengths, default=0) / 1e6)


@dataclass(frozen=True, slots=True)
class BufferBurst:
    """The buffer burst period with the most data beyond the link rate: `excess_bytes` were buffered on the way."""

    excess_bytes: int
    start_s: float
    length_s: float


def buffer_burst(arrivals: Arrivals, link_mbit: float) -> BufferBurst:
    """The paper's lower bound of the driver domain's buffer (EC2NET §V-A, E3).

    A buffer burst period is a stretch "during which the receiver continuously receive data at rates higher than the
    full link rate": consecutive buckets that are all faster than `link_mbit`. Since no more than the link rate was
    sent, what goes beyond it (bytes - link rate x time) was buffered. The largest excess of all periods is returned.
    """
    best = BufferBurst(0, 0.0, 0.0)
    start, excess = 0, 0.0
    for begin, end, size in _spans(arrivals):
        beyond = size - link_mbit * (end - begin) / 8e3  # Mb/s x ns / 8e3 = bytes
        if beyond <= 0:
            excess = 0.0
            continue
        start = start if excess else begin
        excess += beyond
        if excess > best.excess_bytes:
            best = BufferBurst(int(excess), start / 1e9, (end - start) / 1e9)
    return best


def _spans(arrivals: Arrivals) -> Iterable[tuple[int, int, int]]:
    edges: Sequence[int] = (0, *arrivals.ends_ns)
    return zip(edges, edges[1:], arrivals.sizes, strict=False)
