"""Counters of sources that the profiler does not use or uses otherwise, as rates over exactly its window."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_RING = re.compile(r"/sys/kernel/debug/xen-netback/(?P<vif>vif\d+\.\d+)/io_ring_q\d+")
_USED = re.compile(r"^(TX|RX):.*\nreq prod \d+ \(-?\d+\) cons (\d+)", re.MULTILINE)
_TICKS_PER_S = 100  # USER_HZ, in /proc/stat of every Linux on x86
_STEAL = 8  # column in the line "cpu" of /proc/stat


@dataclass(frozen=True, slots=True)
class Witness:
    """Samples over time; `rate` gives any counter's rate per second between two moments, by interpolation."""

    samples: tuple[dict[str, Any], ...]

    @classmethod
    def parse(cls, lines: str) -> Witness:
        """From what witness.py wrote."""
        return cls(tuple(json.loads(line) for line in lines.splitlines()))

    def rate(self, counter: Callable[[dict[str, Any]], float], begin_s: float, end_s: float) -> float:
        """(counter at `end_s` - counter at `begin_s`) / (end_s - begin_s); ValueError outside the samples."""
        return (self._at(counter, end_s) - self._at(counter, begin_s)) / (end_s - begin_s)

    def _at(self, counter: Callable[[dict[str, Any]], float], moment_s: float) -> float:
        key = "list_time_s" if getattr(counter, "of_list", False) else "time_s"
        times = [float(sample[key]) for sample in self.samples]
        after = bisect_left(times, moment_s)
        if not 0 < after < len(times):
            raise ValueError(f"{moment_s} is outside the samples {times[0]} to {times[-1]}")
        first, second = counter(self.samples[after - 1]), counter(self.samples[after])
        share = (moment_s - times[after - 1]) / (times[after] - times[after - 1])
        return first + share * (second - first)


def list_seconds(domain: str) -> Callable[[dict[str, Any]], float]:
    """CPU seconds of a domain as `xl list` says (resolution 0.1 s)."""

    def counter(sample: dict[str, Any]) -> float:
        rows = (line.split() for line in sample["list"].splitlines())
        return next(float(row[-1]) for row in rows if row and row[0] == domain)

    counter.of_list = True  # type: ignore[attr-defined]
    return counter


def ring_slots(vif: str) -> Callable[[dict[str, Any]], float]:
    """Requests that netback took from both of a guest's rings: one page each."""
    return lambda sample: sum(
        int(match[2])
        for path, text in sample["files"].items()
        if (ring := _RING.fullmatch(path)) and ring["vif"] == vif
        for match in _USED.finditer(text)
    )


def _device(sample: dict[str, Any], vif: str) -> list[int]:
    line = next(line for line in sample["files"]["/proc/net/dev"].splitlines() if line.strip().startswith(f"{vif}:"))
    return [int(word) for word in line.split(":")[1].split()]


def packets(vif: str) -> Callable[[dict[str, Any]], float]:
    """Packets both ways through a guest's interface in Dom0."""
    return lambda sample: _device(sample, vif)[1] + _device(sample, vif)[9]


def octets(vif: str) -> Callable[[dict[str, Any]], float]:
    """Bytes both ways through a guest's interface in Dom0."""
    return lambda sample: _device(sample, vif)[0] + _device(sample, vif)[8]


def guest_upcalls(sample: dict[str, Any]) -> float:
    """Interrupts of event channels that Dom0 took; not those of timers, of its own CPUs and of devices."""
    lines = (line.split() for line in sample["files"]["/proc/interrupts"].splitlines())
    return sum(int(words[1]) for words in lines if "-event" in words)


def dom0_busy_seconds(sample: dict[str, Any]) -> float:
    """CPU seconds that Dom0's own kernel accounts as not idle and not stolen."""
    user, nice, system, _, _, irq, softirq = (int(word) for word in sample["files"]["/proc/stat"].split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS_PER_S


@dataclass(frozen=True, slots=True)
class GuestTimes:
    """A guest's own account: seconds up, on a CPU, and stolen (runnable, but another domain ran)."""

    up_s: float
    idle_s: float
    stolen_s: float

    @classmethod
    def parse(cls, text: str) -> GuestTimes:
        """From the output of stat.cgi."""
        up, cpu = (line.split() for line in text.splitlines()[:2])
        return cls(float(up[0]), (int(cpu[4]) + int(cpu[5])) / _TICKS_PER_S, int(cpu[_STEAL]) / _TICKS_PER_S)

    def stolen_percent(self, earlier: GuestTimes) -> float:
        return 100 * (self.stolen_s - earlier.stolen_s) / (self.up_s - earlier.up_s)

    def idle_percent(self, earlier: GuestTimes) -> float:
        return 100 * (self.idle_s - earlier.idle_s) / (self.up_s - earlier.up_s)


@dataclass(frozen=True, slots=True)
class Traced:
    """What xenalyze says of a trace: per domain and run state, how often it was entered and its seconds."""

    seconds: float
    states: dict[int, dict[str, tuple[int, float]]]

    @classmethod
    def parse(cls, summary: str) -> Traced:
        """From `xenalyze --summary`; domains have one vCPU each here, and the idle domain's are added up."""
        (seconds,) = re.findall(r"^Total time: ([\d.]+) seconds", summary, re.MULTILINE)
        states: dict[int, dict[str, tuple[int, float]]] = {}
        for domain, text in re.findall(
            r"^\|-- Domain (\d+) --\|\n(.*?)(?=^\|--|\Z)", summary, re.MULTILINE | re.DOTALL
        ):
            sums = states.setdefault(int(domain), {})
            for state, number, took in re.findall(
                r"^ +(running|runnable|blocked): +(\d+) +([\d.]+)s", text, re.MULTILINE
            ):
                before = sums.get(state, (0, 0.0))
                sums[state] = (before[0] + int(number), before[1] + float(took))
        return cls(float(seconds), states)

    def percent(self, domain: int, state: str) -> float:
        """Share of the time that a domain was in a state."""
        return 100 * self.states[domain].get(state, (0, 0.0))[1] / self.seconds

    def executions_per_s(self, domain: int | None = None) -> float:
        """How often a domain, or any one with the idle domain, came to run: each time out of the run queue.

        Times in `running` are not counted: a vCPU that is let run on begins a new one there.
        """
        chosen = self.states.values() if domain is None else [self.states[domain]]
        return sum(sums.get("runnable", (0, 0.0))[0] for sums in chosen) / self.seconds
