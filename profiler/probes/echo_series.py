"""Sends echo probes at fixed intervals and matches the answers, over any transport; used by rtt."""

from __future__ import annotations

import select
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from profiler.probes.base import ProbeError, Progress


@dataclass(frozen=True, slots=True)
class EchoAnswer:
    """An answer: the number of its probe, and when the kernel received it (real-time clock, None = unknown)."""

    sequence: int
    kernel_ns: int | None


class EchoLine(Protocol):
    """Carries probes to the far end and answers back. Sequence numbers wrap at 65536."""

    def fileno(self) -> int:
        """The socket to wait for."""

    def send(self, sequence: int) -> None:
        """Send one probe; OSError when the kernel refuses."""

    def receive(self) -> Iterable[EchoAnswer]:
        """All answers that can be read without waiting."""


@dataclass(slots=True)
class EchoProbe:
    """One probe: when it was planned and sent (s after the first), and its round-trip time."""

    planned_s: float
    sent_s: float
    sent_ns: int  # on the real-time clock, as the kernel's receive times
    rtt_ms: float | None = None
    by_kernel: bool = False


@dataclass(slots=True)
class Echoes:
    """All probes in order; `duplicates` are answers to probes that had one, `refused` those the kernel did not send."""

    sent: list[EchoProbe] = field(default_factory=list)
    duplicates: int = 0
    refused: int = 0


def exchange(
    line: EchoLine, samples: int, per_second: float, seconds: float | None, wait_s: float, progress: Progress
) -> Echoes:
    """Send `samples` probes (or for `seconds`), `per_second` apart on a fixed grid, and wait `wait_s` for the last.

    Answers that come late are matched as well, as long as the exchange goes on.
    """
    if seconds is not None:
        samples = max(1, int(seconds * per_second))
    echoes = Echoes()
    poll = select.poll()
    poll.register(line.fileno(), select.POLLIN)
    progress.begin(samples, "probes")
    first = time.monotonic()
    with progress.interruptible():
        for number in range(samples):
            due = first + number / per_second
            for now in _until(due, poll):
                _take(line, echoes, first, now)
            if progress.stopped:
                break
            _send(line, echoes, number, due - first, first)
            progress.update(number + 1)
        end = time.monotonic() + wait_s
        for now in _until(end, poll):
            _take(line, echoes, first, now)
            if all(probe.rtt_ms is not None for probe in echoes.sent[-(1 << 15) :]):
                break
    if progress.stopped:  # probes still on their way are not lost: leave them out
        young_s = time.monotonic() - first - wait_s
        while echoes.sent and echoes.sent[-1].rtt_ms is None and echoes.sent[-1].sent_s > young_s:
            echoes.sent.pop()
    return echoes


def _send(line: EchoLine, echoes: Echoes, number: int, planned_s: float, first: float) -> None:
    probe = EchoProbe(planned_s, time.monotonic() - first, time.time_ns())
    try:
        line.send(number & 0xFFFF)
    except OSError as error:
        echoes.refused += 1
        if echoes.refused == number + 1 > 3:  # every probe so far was refused
            raise ProbeError(f"this host refuses to send: {error.strerror}") from None
    echoes.sent.append(probe)


def _take(line: EchoLine, echoes: Echoes, first: float, now: float) -> None:
    """Match all answers that have come; a number that wraps belongs to the youngest probe with it."""
    for back in line.receive():
        newest = len(echoes.sent) - 1
        place = newest - ((newest - back.sequence) & 0xFFFF)
        if place < 0:
            continue  # the answer to no probe of ours
        probe = echoes.sent[place]
        if probe.rtt_ms is not None:
            echoes.duplicates += 1
            continue
        probe.rtt_ms, probe.by_kernel = round_trip(probe, now - first, back.kernel_ns)


def round_trip(probe: EchoProbe, seen_s: float, kernel_ns: int | None) -> tuple[float, bool]:
    """Round-trip time in ms, and whether it ends at the kernel's receive time.

    Our own time, on the monotonic clock, includes waiting for a CPU. The kernel's receive time lies between sending and
    reading the answer; where it does not, the real-time clock was set meanwhile, and our own time is taken.
    """
    ours_ms = (seen_s - probe.sent_s) * 1e3
    if kernel_ns is not None and 0 < (kernel_ms := (kernel_ns - probe.sent_ns) / 1e6) <= ours_ms + 0.01:
        return kernel_ms, True
    return ours_ms, False


def _until(due: float, poll: select.poll) -> Iterator[float]:
    """The times at which something came, until `due` on the monotonic clock."""
    while (left := due - time.monotonic()) > 0:
        if poll.poll(left * 1e3):
            yield time.monotonic()
