"""The binary stream of xentrace(8) into records, fed in pieces that may be cut anywhere; no I/O.

Format: tools/xentrace/xentrace.c and xen/include/public/trace.h of Xen. A stream is a row of windows, one per pCPU and
poll. Each begins with a CPU-change record that says how many bytes follow. A record is one little-endian word (bits
0-27 event, 28-30 number of extra words, 31 set if a time stamp follows), the time stamp counter (8 bytes), the words.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from profiler.observed import MAX_CPUS
from profiler.parse.text import ParseError

LOST_RECORDS = 0x0001F001
CPU_CHANGE = 0x0001F003
RUNSTATE = 0x00021001  # | from << 8 | to << 4
CONTINUE_RUNNING = 0x00021002
HYPERCALL = 0x0020100D  # TRC_PV_HYPERCALL_V2: first word is the number, in bits 0-19, then some of its arguments

IDLE_DOMAIN = 0x7FFF
UNKNOWN_DOMAIN = -1  # what runs on a pCPU before its first recorded change of run state
RUNNING, RUNNABLE, BLOCKED, OFFLINE = range(4)
EVENT_CHANNEL_OP, GRANT_TABLE_OP = 32, 20  # xen/include/public/xen.h
GRANT_EXCHANGES = (0, 4, 5)  # GNTTABOP_map_grant_ref, _transfer, _copy (xen/include/public/grant_table.h)

_WHAT = "xentrace"
_WINDOW = struct.Struct("<III")
_WINDOW_HEADER = CPU_CHANGE | 2 << 28
_LARGEST_WINDOW = 1 << 30
_RECORD = struct.Struct("<IQI")  # the shape of nearly all records: header, time stamp, first word
_HEADER = struct.Struct("<I")
_EXTRA = [struct.Struct(f"<{words}I") for words in range(8)]
_TIMED, _ONE_WORD = 1 << 31, 1 << 31 | 1 << 28
_RUNSTATE_MASK, _RUNSTATE_HEADER = 0xFFFFF00F, RUNSTATE | _ONE_WORD
_CONTINUE_HEADER = CONTINUE_RUNNING | _ONE_WORD


@dataclass(slots=True)
class TraceBatch:
    """The content of some pieces of a stream.

    `changes` are (time stamp, vCPU, from, to) with vCPU = domain << 16 | number, without the idle domain's; where Xen
    let a vCPU run on, both states are running. `first` and `newest` are time stamps. `switches` counts how often
    a pCPU went from one domain to another, the idle domain included. `event_ops` and `grant_pages` are hypercalls by
    domain, where they are traced: event_channel_op, and pages that grant_table_op mapped, copied or transferred. `lost`
    are records that Xen dropped because its buffer was full.
    """

    changes: list[tuple[int, int, int, int]] = field(default_factory=list)
    switches: int = 0
    event_ops: dict[int, int] = field(default_factory=dict)
    grant_pages: dict[int, int] = field(default_factory=dict)
    records: int = 0
    lost: int = 0
    first: int | None = None
    newest: int | None = None


class TraceStream:
    """Cuts one stream into records; remembers an unfinished window and what runs on each pCPU."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0  # bytes of the current window that are not read yet
        self._cpu = 0
        self._running: dict[int, int] = {}

    def feed(self, piece: bytes) -> TraceBatch:
        """Read a piece; ParseError when it cannot be the continuation of this stream, which then is useless."""
        batch = TraceBatch()
        data = self._rest + piece
        position = 0
        while True:
            if self._left == 0:
                if len(data) - position < _WINDOW.size:
                    break
                self._begin(data, position)
                position += _WINDOW.size
            end = min(len(data), position + self._left)
            read = self._records(data, position, end, batch)
            if end - position == self._left:
                read = self._last_records(data, read, end, batch)
            self._left -= read - position
            position = read
            if self._left:
                break
        self._rest = data[position:]
        return batch

    def _begin(self, data: bytes, position: int) -> None:
        header, cpu, size = _WINDOW.unpack_from(data, position)
        if header != _WINDOW_HEADER or cpu >= MAX_CPUS or size > _LARGEST_WINDOW or size % 4:
            raise ParseError(_WHAT, "", 1, f"a window should begin where {header:#x} stands: the stream is out of step")
        self._cpu, self._left = cpu, size

    def _records(self, data: bytes, position: int, end: int, batch: TraceBatch) -> int:
        """Read records while 16 bytes are left before `end`; return where the first unread one begins."""
        changes, unpack = batch.changes, _RECORD.unpack_from
        running = self._running.get(self._cpu)
        first = last = None
        count = 0
        while position + 16 <= end:
            header, stamp, word = unpack(data, position)
            if header & _RUNSTATE_MASK == _RUNSTATE_HEADER:
                domain, to = word >> 16, header >> 4 & 3  # Xen keeps two bits of either state
                if domain != IDLE_DOMAIN:
                    changes.append((stamp, word, header >> 8 & 3, to))
                if to == RUNNING and domain != running:
                    batch.switches += running is not None
                    running = domain
                position += 16
            elif header == _CONTINUE_HEADER:
                running = word >> 16
                if running != IDLE_DOMAIN:
                    changes.append((stamp, word, RUNNING, RUNNING))
                position += 16
            else:
                size = self._other(data, position, end, batch, running)
                if size == 0:
                    break
                position += size
                if not header & _TIMED:
                    count += 1
                    continue
            if first is None:
                first = stamp
            last = stamp
            count += 1
        if running is not None:
            self._running[self._cpu] = running
        if first is not None and last is not None:
            batch.first = first if batch.first is None else min(first, batch.first)
            batch.newest = last if batch.newest is None else max(last, batch.newest)
        batch.records += count
        return position

    def _last_records(self, data: bytes, position: int, end: int, batch: TraceBatch) -> int:
        """Read what is left of a window, less than 16 bytes, up to its end."""
        while position < end:
            size = self._other(data, position, end, batch, self._running.get(self._cpu))
            if size == 0:
                raise ParseError(_WHAT, "", 1, "a record goes beyond its window: the stream is out of step")
            position += size
            batch.records += 1
        return position

    @staticmethod
    def _other(data: bytes, position: int, end: int, batch: TraceBatch, running: int | None) -> int:
        """Take a record of any shape; return its size, 0 when it is not complete before `end`."""
        header: int = _HEADER.unpack_from(data, position)[0]
        words, event = header >> 28 & 7, header & 0x0FFFFFFF
        begin = position + (12 if header & _TIMED else 4)
        size = begin - position + 4 * words
        if position + size > end:
            return 0
        if event == HYPERCALL and words:
            domain = UNKNOWN_DOMAIN if running is None else running
            extra = _EXTRA[words].unpack_from(data, begin)
            operation = extra[0] & 0xFFFFF
            if operation == EVENT_CHANNEL_OP:
                batch.event_ops[domain] = batch.event_ops.get(domain, 0) + 1
            elif operation == GRANT_TABLE_OP and words >= 3 and extra[1] in GRANT_EXCHANGES:
                batch.grant_pages[domain] = batch.grant_pages.get(domain, 0) + extra[2]
        elif event == LOST_RECORDS and words:
            batch.lost += _EXTRA[words].unpack_from(data, begin)[0]
        elif event == CPU_CHANGE:
            raise ParseError(_WHAT, "", 1, "a window begins inside another: the stream is out of step")
        return size
