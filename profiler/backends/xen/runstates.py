"""Turns run state changes into cumulative vCPU times: running, runnable, blocked, and execution periods. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from profiler.parse.text import ParseError
from profiler.parse.xentrace import BLOCKED, OFFLINE, RUNNABLE, RUNNING, TraceStream

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
