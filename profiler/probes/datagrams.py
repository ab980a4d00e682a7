"""Receives datagrams with the kernel's arrival times and drops; paces a sender and detects its interruptions."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass, field

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
