"""Receives datagrams with the kernel's arrival times and drops; paces a sender and detects its interruptions."""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import struct
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from profiler.collectors.windows import percentile
from profiler.observed import Quantity
from profiler.pictures import Figure, cumulative, distribution, line_at, new_figure, over_time
from profiler.probes.base import ProbeError, RawSeries
from profiler.probes.sessions import FramingError, number

_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32  # asm-generic/socket.h; root may go beyond net.core.rmem_max with them
_SO_TIMESTAMPNS = 35
_SO_RXQ_OVFL = 40
_UDP_GRO = 104  # linux/udp.h
_ANCILLARY = 128  # bytes: a timespec, a count and a segment size with their headers take 72
_TIMESPEC = struct.Struct("@ll")
_WAIT = struct.pack("@ll", 0, 20_000)  # 20 ms by SO_RCVTIMEO; Python's timeout would cost a poll() per datagram
_QUIET_S = 0.2  # packets still on their way when the sender has ended arrive within this time
_SPIN_NS = 100_000  # a sleep ends up to this much late
CREDIT = 0.1  # of a burst's time: so much may a late sender catch up


def set_buffer(end: socket.socket, option: int, size: int) -> int:
    """Ask for `size` bytes of SO_RCVBUF or SO_SNDBUF, as root beyond the limit; returns what the kernel granted."""
    force = _SO_RCVBUFFORCE if option == socket.SO_RCVBUF else _SO_SNDBUFFORCE
    end.setsockopt(socket.SOL_SOCKET, option, size)
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, force, size)
    return end.getsockopt(socket.SOL_SOCKET, option) // 2  # the kernel doubles what was asked, for its own book-keeping


def prepare_receiver(end: socket.socket, buffer_bytes: int) -> None:
    """Set the receive buffer, and enable the kernel's arrival times and drop counts for datagrams."""
    set_buffer(end, socket.SO_RCVBUF, buffer_bytes)
    for level, option in (
        (socket.SOL_SOCKET, _SO_TIMESTAMPNS),
        (socket.SOL_SOCKET, _SO_RXQ_OVFL),
        (socket.IPPROTO_UDP, _UDP_GRO),
    ):
        with contextlib.suppress(OSError):
            end.setsockopt(level, option, 1)


def path_mtu(end: socket.socket) -> str:
    """The path MTU of a connected socket in bytes, as text; empty when the kernel does not know it."""
    level, option = (socket.IPPROTO_IPV6, 24) if end.family == socket.AF_INET6 else (socket.IPPROTO_IP, 14)
    try:
        return str(end.getsockopt(level, option))  # IPV6_MTU, IP_MTU
    except OSError:
        return ""


@dataclass(slots=True)
class Inbox:
    """Reads datagrams from a blocking socket; `dropped` counts those for which its buffer had no room so far."""

    end: socket.socket
    dropped: int = 0
    kernel_times: bool = True
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(1 << 16)))

    def __post_init__(self) -> None:
        self.end.settimeout(None)
        self.end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _WAIT)

    def take(self) -> tuple[memoryview, int, int] | None:
        """The bytes (several datagrams of a sender may come joined), when they were read, and when they arrived.

        Times are ns on the real-time clock, which the kernel uses; without a kernel time both are the same. None =
        nothing came for 20 ms.
        """
        try:
            length, ancillary, _, _ = self.end.recvmsg_into([self.buffer], _ANCILLARY)
        except (BlockingIOError, InterruptedError):
            return None
        read_ns = time.time_ns()
        arrived_ns = 0
        for level, kind, data in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == _SO_TIMESTAMPNS and len(data) == _TIMESPEC.size:
                seconds, nanoseconds = _TIMESPEC.unpack(data)
                arrived_ns = seconds * 1_000_000_000 + nanoseconds
            elif kind == _SO_RXQ_OVFL and len(data) == 4:
                self.dropped = int.from_bytes(data, sys.byteorder)
        if not arrived_ns:
            self.kernel_times = False
        return self.buffer[:length], read_ns, arrived_ns or read_ns

    def finished(self, control: socket.socket) -> bool:
        """Whether there is data at `control` (or it was closed), and nothing more came for 0.2 s."""
        return _readable(control, 0) and not _readable(self.end, _QUIET_S)


def _readable(end: socket.socket, wait_s: float) -> bool:
    return bool(select.select([end], [], [], wait_s)[0])


def next_start(planned_ns: int, began_ns: int, interval_ns: int) -> int:
    """When the next burst may go, by when the last one was planned and began: at most CREDIT intervals too early.

    A sender that was scheduled off must not catch up: the receiver would take that for data buffered on the way.
    """
    return max(planned_ns + interval_ns, began_ns + int((1 - CREDIT) * interval_ns))


def wait_until(moment_ns: int) -> None:
    """Sleep until `moment_ns` on the monotonic clock; the last tenth of a millisecond is spent awake."""
    left = moment_ns - time.monotonic_ns()
    if left > _SPIN_NS:
        time.sleep((left - _SPIN_NS) / 1e9)
    while time.monotonic_ns() < moment_ns:
        pass


class GapWatch:
    """Notes, in a thread, when this process was scheduled off: sleeps of 1 ms that took over 1 ms longer (as E1)."""

    STEP_S = 0.001

    def __init__(self) -> None:
        self._gaps = 0
        self._gaps_s = self._longest_s = 0.0
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> GapWatch:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = time.monotonic()
        while not self._over.is_set():
            time.sleep(self.STEP_S)
            now = time.monotonic()
            gap_s = now - before - self.STEP_S
            if gap_s > self.STEP_S:
                self._gaps += 1
                self._gaps_s += gap_s
                self._longest_s = max(self._longest_s, gap_s)
            before = now

    def summary(self) -> dict[str, float]:
        """Share of the time in %, number of gaps, and the longest in ms."""
        seconds = time.monotonic() - self._began
        return {
            "gap_percent": min(100.0, 100 * self._gaps_s / seconds) if seconds > 0 else 0.0,
            "gaps": self._gaps,
            "longest_gap_ms": 1e3 * self._longest_s,
        }


# Evaluates recorded arrivals for tcp and udp: values, marks, raw series, and the chart of throughput over time.

# CPU use of an endpoint of a transfer, and the time it waited for a CPU although it was runnable.

BUSY_PERCENT = 90.0  # of a CPU: above, a single-threaded end cannot go much faster
WAITED_PERCENT = 2.0  # of the time: above, pauses may be this system's scheduler and not the hypervisor's
_SCHEDSTAT = Path("/proc/self/schedstat")  # ns on CPU, ns waiting, timeslices (Documentation/scheduler/sched-stats.rst)


@dataclass(frozen=True, slots=True)
class EndpointCpu:
    """Seconds of CPU, and seconds of waiting for it (None = this kernel does not tell), of the main thread."""

    cpu_s: float
    waited_s: float | None

    @classmethod
    def now(cls) -> EndpointCpu:
        """So far, since this process began."""
        try:
            waited: float | None = int(_SCHEDSTAT.read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            waited = None
        return cls(time.thread_time(), waited)

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> EndpointCpu:
        """From the far end's answer; FramingError when that makes no sense."""
        waited = None if answer.get("waited_s") is None else number(answer, "waited_s", None, 0.0, 1e6)
        return cls(number(answer, "cpu_s", None, 0.0, 1e6), waited)

    def since(self, before: EndpointCpu) -> EndpointCpu:
        """The difference between two readings of one process."""
        known = self.waited_s is not None and before.waited_s is not None
        return EndpointCpu(self.cpu_s - before.cpu_s, self.waited_s - before.waited_s if known else None)  # type: ignore[operator]

    def document(self) -> dict[str, float | None]:
        """As it goes over the wire."""
        return {"cpu_s": max(0.0, self.cpu_s), "waited_s": self.waited_s}

    def values(self, end: str, seconds: float) -> dict[str, Quantity]:
        """Percent of `seconds` for the `sender` or the `receiver`."""
        used_s = {f"{end}_cpu": self.cpu_s, f"{end}_waited": self.waited_s}
        return {name: Quantity(100 * s / max(seconds, 1e-9), "%") for name, s in used_s.items() if s is not None}


def marks(values: Mapping[str, Quantity]) -> list[str]:
    """Marks for an end that used its CPU nearly all the time, or that waited for a CPU of its own system."""
    texts = []
    for end in ("sender", "receiver"):
        cpu, waited = values.get(f"{end}_cpu"), values.get(f"{end}_waited")
        if cpu is not None and cpu.value > BUSY_PERCENT:
            texts.append(f"the {end} used {cpu.value:.0f} % of a CPU: it may have been the limit, not the path")
        if waited is not None and waited.value > WAITED_PERCENT:
            texts.append(
                f"the {end} waited {waited.value:.1f} % of the time for a CPU of its own system (processes beside it,"
                " a cap): pauses may be that, and not the hypervisor below"
            )
    return texts


# Throughput at fine grain, as EC2NET §V-A measures it: one rate per 256 KB received, quiet spells, buffer bursts.

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


_FEW_BUCKETS = 20  # under which a 5th percentile is hardly more than the minimum


def unpacked(block: bytes) -> Arrivals:
    """Arrivals from the far end; ProbeError when it reports nonsense, or that less than one bucket came."""
    try:
        arrivals = Arrivals.unpack(block)
    except ValueError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None
    if not arrivals.sizes:
        raise ProbeError(f"only {arrivals.received} bytes arrived, less than one bucket of 256 KB")
    return arrivals


def values(arrivals: Arrivals, usual_bucket_ns: float | None = None, *, prefix: str = "") -> dict[str, Quantity]:
    """Throughput over all and per bucket, and quiet spells."""
    ordered = sorted(arrivals.rates_mbit())
    mean = arrivals.mean_mbit()
    quiet = quiet_spells(arrivals, usual_bucket_ns)
    numbers = {
        "throughput": Quantity(mean if mean is not None else 0.0, "Mb/s"),
        "median": Quantity(percentile(ordered, 0.5), "Mb/s"),
        "p5": Quantity(percentile(ordered, 0.05), "Mb/s"),
        "p95": Quantity(percentile(ordered, 0.95), "Mb/s"),
        "quiet_share": Quantity(quiet.share_percent, "%"),
        "quiet_spells": Quantity(quiet.count, "1"),
        "quiet_longest": Quantity(quiet.longest_ms, "ms"),
        "quiet_threshold": Quantity(quiet.threshold_ms, "ms"),
    }
    return {f"{prefix}{name}": value for name, value in numbers.items()}


def far_effort(answer: Mapping[str, Any]) -> EndpointCpu:
    """CPU use of the receiving end; ProbeError when its report makes no sense."""
    try:
        return EndpointCpu.read(answer)
    except FramingError as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None


def few_marks(arrivals: Arrivals) -> list[str]:
    """Marks about how much was recorded."""
    marks = []
    if len(arrivals.sizes) < _FEW_BUCKETS:
        marks.append(f"only {len(arrivals.sizes)} buckets of 256 KB: the percentiles rest on little")
    if arrivals.gaps_left_out:
        marks.append(f"{arrivals.gaps_left_out} further gaps were not recorded")
    return marks


def series(arrivals: Arrivals) -> RawSeries:
    """One row per bucket."""
    return RawSeries({
        "end_s": arrivals.times_s(), "throughput_mbit_s": arrivals.rates_mbit(), "bytes": list(arrivals.sizes),
    })  # fmt: skip


def draw(run_series: RawSeries, title: str, link_mbit: float | None = None) -> Figure:
    """Throughput of each bucket over time, and their distribution (EC2NET Fig. 5)."""
    figure, (left, right) = new_figure(2)
    times = [float(at) for at in run_series.columns["end_s"] if isinstance(at, int | float)]
    rates = [float(rate) for rate in run_series.columns["throughput_mbit_s"] if isinstance(rate, int | float)]
    over_time(left, times, rates, "Mb/s per 256 KB", title)
    distribution(right, [("buckets", cumulative(rates))], "Mb/s", "Distribution")
    if link_mbit is not None:
        line_at(left, link_mbit, "paced rate")
    left.set_ylim(bottom=0)
    return figure
