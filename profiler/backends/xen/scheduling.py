"""CPU times of Xen domains: a monotonic clock of two sources, run states as cumulative times, and xentrace(8)."""

from __future__ import annotations

import base64
import binascii
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.backends.commands import StreamChild
from profiler.backends.sources import HostSource
from profiler.backends.xen import Mode
from profiler.parse.text import ParseError
from profiler.parse.xen import ListedDomain
from profiler.parse.xentrace import BLOCKED, OFFLINE, RUNNABLE, RUNNING, TraceStream

# A monotonic CPU time of Xen domains, combined from two sources. No I/O.


@dataclass(slots=True)
class _DomainClock:
    total_ns: int
    listed_ns: int  # what xl list showed …
    base_ns: int  # … when the total was this
    traced_ns: int | None = None


class CpuClock:
    """Cumulative run time by domain: from the trace for each interval that it covers, else from `xl list`.

    The trace is exact; xl resolves 0.1 s. Each interval has one source, so that a change of source makes no jump.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, _DomainClock] = {}
        self.busy_ns = 0  # run time of all domains, ended ones included
        self.traced = False  # the trace knew all domains at the last reading, so it can know the next interval

    def count(self, domains: Mapping[int, ListedDomain], trace: SchedulerTrace) -> None:
        """Go on to the present reading. Rows of `domains` may be older than it while the trace covers the interval."""
        traced: dict[int, int] = {}
        if not trace.problem:
            by_domain = trace.states.times()
            traced = {domid: sum(vcpu.run_ns for vcpu in vcpus.values()) for domid, vcpus in by_domain.items()}
        for domid, row in domains.items():
            clock = self._clocks.get(domid)
            if clock is None:
                clock = self._clocks[domid] = _DomainClock(row.cpu_ns, row.cpu_ns, row.cpu_ns, traced.get(domid))
                self.busy_ns += row.cpu_ns
                continue
            self.busy_ns += self._advance(clock, row.cpu_ns, traced.get(domid))
        for domid in set(self._clocks) - set(domains):
            del self._clocks[domid]
        self.traced = traced.keys() >= domains.keys()

    @staticmethod
    def _advance(clock: _DomainClock, listed_ns: int, traced_ns: int | None) -> int:
        before = clock.total_ns
        if traced_ns is not None and clock.traced_ns is not None and traced_ns >= clock.traced_ns:
            clock.total_ns += traced_ns - clock.traced_ns
        else:
            clock.total_ns = max(before, clock.base_ns + listed_ns - clock.listed_ns)
        if listed_ns != clock.listed_ns:
            clock.listed_ns, clock.base_ns = listed_ns, clock.total_ns
        clock.traced_ns = traced_ns
        return clock.total_ns - before

    def total_ns(self, domid: int) -> int:
        """Run time of a domain that the last `count` was given."""
        return self._clocks[domid].total_ns


# Turns run state changes into cumulative vCPU times: running, runnable, blocked, and execution periods. No I/O.

# How far the counted times lie behind now: xentrace polls every 0.1 s, later where Dom0 must wait for a pCPU.
LAG_S = 0.3
_CLOCK_READINGS = 60  # over which the two clocks are compared; over longer times NTP may have slewed one
_JUMP_S = 60.0  # a time stamp so far ahead of the host's clock is garbage


@dataclass(frozen=True, slots=True)
class VcpuTimes:
    """Cumulative times of one vCPU since the trace began, and how often it was put on a pCPU."""

    run_ns: int
    wait_ns: int
    blocked_ns: int
    executions: int


@dataclass(slots=True)
class _Vcpu:
    state: int
    since: int  # everything before this time stamp is in `cycles`
    cycles: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    executions: int = 0


class RunStates:
    """Counters of one xentrace stream. `mhz` is that of the time stamp counter (`cpu_mhz` of `xl info`).

    Records of different pCPUs come window by window, and a vCPU's changes may stand in windows of several pCPUs (a
    wake-up is recorded where it was caused). So changes are sorted, and only those older than a horizon are counted.
    The horizon lies `LAG_S` behind now, which is the newest time stamp seen, moved on by the host's monotonic clock.
    A vCPU that stays in one state is counted up to the horizon although no record says so. A record that comes later
    than that changes no time that was counted already, so nothing ever runs backwards.
    """

    def __init__(self, mhz: float) -> None:
        self._mhz = mhz
        self._stream = TraceStream()
        self._waiting: list[tuple[int, int, int, int]] = []
        self._vcpus: dict[int, _Vcpu] = {}
        self._times: dict[int, dict[int, VcpuTimes]] | None = (
            None  # the last result of `times`, until something changes
        )
        self._first: int | None = None
        self._newest = 0
        self._horizon: int | None = None
        self._offsets_us: deque[float] = deque(maxlen=_CLOCK_READINGS)
        self._aligned = 0
        self.switches = 0
        self.lost = 0
        self.records = 0
        self.event_ops = 0  # of all domains, those that ended too
        self.grant_pages: dict[int, int] = {}  # only Dom0 maps and copies

    def feed(self, piece: bytes) -> None:
        """Read a piece of the stream; ParseError when it is out of step, after which this object is useless."""
        batch = self._stream.feed(piece)
        self._waiting += batch.changes
        self.switches += batch.switches
        self.lost += batch.lost
        self.records += batch.records
        self.event_ops += sum(batch.event_ops.values())
        for domain, number in batch.grant_pages.items():
            self.grant_pages[domain] = self.grant_pages.get(domain, 0) + number
        if batch.first is not None and batch.newest is not None:
            self._first = batch.first if self._first is None else min(self._first, batch.first)
            self._newest = max(self._newest, batch.newest)

    def advance(self, monotonic_s: float) -> None:
        """Count up to the horizon of a reading that was made at this time, at once after `feed`.

        ParseError when the stream's time stamps run ahead of the host's clock.
        """
        if self._first is None:
            return
        if self._newest > self._aligned:
            self._align(monotonic_s)
        now_us = monotonic_s * 1e6 + max(self._offsets_us)
        self._count(int((now_us - LAG_S * 1e6) * self._mhz))

    def _align(self, monotonic_s: float) -> None:
        """Note how far the time stamps are ahead of the host's clock: at least so much, for records come late."""
        offset_us = self._newest / self._mhz - monotonic_s * 1e6
        if self._offsets_us and offset_us - max(self._offsets_us) > _JUMP_S * 1e6:
            raise ParseError("xentrace", "", 1, "time stamps ran ahead of the host's clock: the stream is out of step")
        self._offsets_us.append(offset_us)
        self._aligned = self._newest

    def finish(self, stamp: int | None = None) -> None:
        """Count up to this time stamp, or the newest one: for a stream that has ended."""
        self._count(self._newest if stamp is None else stamp)

    def _count(self, horizon: int) -> None:
        if self._horizon is None:
            self._horizon = self._begin = self._first or 0
        if horizon <= self._horizon:
            return
        self._waiting.sort()
        vcpus, used = self._vcpus, 0
        for stamp, key, before, after in self._waiting:
            if stamp > horizon:
                break
            used += 1
            vcpu = vcpus.get(key)
            if vcpu is None:
                vcpu = vcpus[key] = _Vcpu(before, self._horizon)
            if stamp > vcpu.since:
                vcpu.cycles[before] += stamp - vcpu.since
                vcpu.since = stamp
            vcpu.state = after
            if after == RUNNING != before:
                vcpu.executions += 1
        del self._waiting[:used]
        for vcpu in vcpus.values():
            if horizon > vcpu.since:
                vcpu.cycles[vcpu.state] += horizon - vcpu.since
                vcpu.since = horizon
        self._horizon = horizon
        self._times = None

    def settle(self, domain: int, number: int, state: str) -> None:
        """Set the state (of `xl vcpu-list`) of a vCPU that no record before the horizon has named.

        It counts from the horizon on. Where a later record is known already, its state before that record is taken.
        """
        key = domain << 16 | number
        if self._horizon is None or key in self._vcpus:
            return
        known = {"r": RUNNING, "b": BLOCKED, "p": OFFLINE}
        letters = [letter for letter in state if letter in known]
        begun = known[letters[0]] if letters else RUNNABLE
        _, _, begun, _ = min((change for change in self._waiting if change[1] == key), default=(0, key, begun, begun))
        self._vcpus[key] = _Vcpu(begun, self._horizon)
        self._times = None

    @property
    def domains(self) -> set[int]:
        """Domains that have a vCPU whose times are counted."""
        return {key >> 16 for key in self._vcpus}

    def keep(self, domains: Collection[int]) -> None:
        """Forget all other domains."""
        for key in [key for key in self._vcpus if key >> 16 not in domains]:
            del self._vcpus[key]
        self._times = None

    def times(self) -> dict[int, dict[int, VcpuTimes]]:
        """Times by domain and number of the vCPU."""
        if self._times is None:
            self._times = self._make_times()
        return self._times

    def _make_times(self) -> dict[int, dict[int, VcpuTimes]]:
        per_ns = 1000 / self._mhz
        times: dict[int, dict[int, VcpuTimes]] = {}
        for key, vcpu in self._vcpus.items():
            run, wait, blocked, _ = vcpu.cycles  # in the order of the states' numbers
            times.setdefault(key >> 16, {})[key & 0xFFFF] = VcpuTimes(
                round(run * per_ns), round(wait * per_ns), round(blocked * per_ns), vcpu.executions
            )
        return times

    @property
    def seconds(self) -> float:
        """From the first record to the horizon; 0 before anything was counted."""
        return 0.0 if self._horizon is None else (self._horizon - self._begin) / self._mhz / 1e6


# Runs xentrace(8) as a child process and makes run states of the trace that it prints.

# Classes of records (xen/include/public/trace.h): changes of run state; with them hypercalls of PV guests.
_MASKS = {"runstate": "0x00021000", "full": "0x00221000"}
_OUTPUT = "/proc/self/fd/1"  # xentrace needs a file's name; /dev/stdout is missing where udev did not make it
_FIRST_S = 2.0  # until the first records come; the tool polls every 0.1 s
_OLD_ENOUGH_S = 3 * LAG_S  # the first reading counts up to LAG_S behind the newest record: more must be there


def xentrace_argv(mode: Mode) -> tuple[str, ...]:
    """How xentrace is started: -D drops what older tracing left in Xen's buffers."""
    return ("xentrace", "-D", "-e", _MASKS[mode], _OUTPUT)


def trace_child(mode: Mode) -> StreamChild:
    """xentrace, not started yet.

    It dies with this process: its next write finds no reader. Tracing then stays switched on in Xen until some xentrace
    ends in order; `close` makes it switch tracing off.
    """
    return StreamChild(xentrace_argv(mode), "it comes with Xen's tools", _FIRST_S, _OLD_ENOUGH_S)


class SchedulerTrace:
    """The trace, reading after reading: call `drain` before the clock is read, `advance` after it.

    `problem` says why the interval up to this reading is not known; "" = `states` covers it.
    """

    def __init__(self, source: HostSource, mhz: float, mode: Mode) -> None:
        self._source = source
        self._mhz = mhz
        self._child = trace_child(mode) if mode != "off" else None
        self._stream = 0
        self._lost = 0
        self._fresh = True  # no reading of this stream was made yet
        self.full = mode == "full"
        self.states = RunStates(mhz)
        self.problem = "tracing is switched off"

    def drain(self) -> None:
        """Take what the stream brought since the last reading."""
        if self._child is None:
            return
        try:
            stream, data, self.problem = _piece(self._source.value("xentrace", self._read_child))
            if stream != self._stream:
                if self._stream and not self.problem:
                    self.problem = "xentrace was started anew"
                self._stream, self._fresh, self._lost, self.states = stream, True, 0, RunStates(self._mhz)
            self.states.feed(data)
        except OSError as error:
            self.problem = f"xentrace: {error.strerror or 'cannot be read'}"
        except ParseError as error:
            self._give_up(error)

    def _read_child(self) -> dict[str, Any]:
        """A piece of the trace as a recording holds it."""
        if self._child is None:
            return {}
        piece = self._child.read()
        data = base64.b64encode(piece.data).decode("ascii")
        return {"stream": piece.stream, "data": data, "problem": piece.problem}

    def advance(self, monotonic_s: float) -> None:
        """Count up to this reading, and judge whether the interval is known."""
        if self._child is None:
            return
        try:
            self.states.advance(monotonic_s)
        except ParseError as error:
            self._give_up(error)
        lost, self._lost = self.states.lost - self._lost, self.states.lost
        fresh, self._fresh = self._fresh, False
        if not self.problem and lost > 0 and not fresh:  # what was lost before the first reading is in no interval
            self.problem = f"Xen lost {lost} trace records, because Dom0 read them too late"
        if not self.problem and self.states.seconds <= 0:
            self.problem = "xentrace has given too few records yet"

    def _give_up(self, error: ParseError) -> None:
        self.problem = error.reason
        self.states = RunStates(self._mhz)
        self._lost = 0
        if self._child is not None:
            self._child.give_up(error.reason)

    def close(self) -> None:
        """Stop the child; harmless when called twice."""
        if self._child is not None:
            self._child.close()


def _piece(value: Any) -> tuple[int, bytes, str]:
    """Check what came from a recording or from the child."""
    try:
        return int(value["stream"]), base64.b64decode(value["data"], validate=True), str(value["problem"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ParseError("xentrace", "", 1, f"the recording holds no piece of a trace ({error})") from None
