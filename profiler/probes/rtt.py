"""Round-trip times (E4): ten probes a second by ICMP or UDP, the first fifty dropped, lost and late ones counted."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from profiler.observed import Quantity
from profiler.pictures import Figure, cumulative, distribution, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, described
from profiler.probes.icmp import SO_TIMESTAMPNS, Icmp, kernel_time
from profiler.probes.sessions import SESSION_S, Peer, ProbeSession

# Sends echo probes at fixed intervals and matches the answers, over any transport; used by rtt.


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


_SAMPLES, _PER_SECOND, _DROPPED = 5000, 10.0, 50  # EC2NET sections III-A and V-B
_LATE_MS = 1000.0  # what ping waits for the last answer, twice over
_MOST_PER_SECOND = 1000.0
_BYTES = 64  # of a UDP probe: what an ICMP echo of ping has behind its IP header
_NOTICEABLE_PERCENT = 1.0


class Rtt:
    """The minimum is the propagation delay; the rest is queueing, and waiting for CPUs."""

    name = "rtt"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        amount = parser.add_mutually_exclusive_group()
        amount.add_argument("--count", type=count(10**7), default=_SAMPLES, metavar="N", help=f"probes ({_SAMPLES})")
        amount.add_argument("--seconds", type=above(0, 7200), metavar="S", help="probe for this long instead")
        parser.add_argument(
            "--per-second", type=above(0, _MOST_PER_SECOND), default=_PER_SECOND, metavar="N",
            help=f"probes a second ({_PER_SECOND:g})",
        )  # fmt: skip
        parser.add_argument(
            "--drop", type=count(10**6, 0), metavar="N",
            help=f"leave out the first N ({_DROPPED}, or a tenth of fewer than {10 * _DROPPED} probes)",
        )  # fmt: skip
        parser.add_argument(
            "--late-ms", type=above(0, 60_000), default=_LATE_MS, metavar="MS",
            help=f"later answers are counted as late and left out of statistics ({_LATE_MS:g})",
        )  # fmt: skip
        parser.add_argument("--udp", action="store_true", help="UDP to a responder instead of ICMP")

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        wait_s = 2 * options.late_ms / 1e3
        takes_s = options.count / options.per_second if options.seconds is None else options.seconds
        if options.udp and takes_s + wait_s > SESSION_S:
            raise ProbeError(
                f"this takes {takes_s + wait_s:,.0f} s, and a responder serves for {SESSION_S:,.0f} s at most:"
                " ask for less, or leave --udp out"
            )
        with contextlib.ExitStack() as stack:
            line: UdpLine | IcmpLine
            if options.udp:
                line = UdpLine(stack.enter_context(options.peer.open("echo-udp")))
            else:
                line = IcmpLine(options.peer)
            stack.callback(line.close)
            echoes = exchange(line, options.count, options.per_second, options.seconds, wait_s, progress)
        dropped = options.drop if options.drop is not None else min(_DROPPED, len(echoes.sent) // 10)
        values = summarise(echoes, dropped, options.late_ms)
        kernel = any(probe.by_kernel for probe in echoes.sent)
        circumstances = {
            "by": line.how, "per_second": f"{options.per_second:g}", "dropped": str(dropped),
            "receive_times": "kernel" if kernel else "our own", "late": f"{options.late_ms:g} ms",
        }  # fmt: skip
        series = RawSeries({
            "at_s": [probe.sent_s for probe in echoes.sent], "rtt_ms": [probe.rtt_ms for probe in echoes.sent],
        })  # fmt: skip
        return ProbeRun(values, "median", series, circumstances, marks(echoes, options.per_second))

    def draw(self, run: ProbeRun) -> Figure:
        figure, (times, shares) = new_figure(2)
        answered = [(at, rtt) for at, rtt in run.series.rows() if isinstance(at, float) and isinstance(rtt, float)]
        rtts = [rtt for _, rtt in answered]
        over_time(times, [at for at, _ in answered], rtts, "ms", "Round-trip time")
        times.set_ylim(bottom=0)
        distribution(shares, [(run.circumstances["by"], cumulative(rtts))], "ms", "Distribution", log=True)
        return figure


def summarise(echoes: Echoes, dropped: int, late_ms: float) -> dict[str, Quantity]:
    """Numbers of all probes but the first `dropped`; ProbeError when none was answered in time."""
    counted = echoes.sent[dropped:]
    answered = [probe.rtt_ms for probe in counted if probe.rtt_ms is not None]
    in_time = [rtt for rtt in answered if rtt <= late_ms]
    if not in_time:
        raise ProbeError(f"none of {len(counted)} probes was answered within {late_ms:g} ms: is the far end there?")
    lost = len(counted) - len(answered)
    return described(in_time, "ms") | {
        "samples": Quantity(len(counted), "1"),
        "lost": Quantity(lost, "1"),
        "lost_share": Quantity(100 * lost / len(counted), "%"),
        "late": Quantity(len(answered) - len(in_time), "1"),
        "duplicates": Quantity(echoes.duplicates, "1"),
    }


def marks(echoes: Echoes, per_second: float) -> tuple[str, ...]:
    """Marks: times that include waiting for our CPU, probes that left late, and probes that the kernel did not send."""
    texts = []
    blurred = sum(probe.rtt_ms is not None and not probe.by_kernel for probe in echoes.sent)
    if 100 * blurred > _NOTICEABLE_PERCENT * len(echoes.sent):
        texts.append(f"{blurred} of {len(echoes.sent)} answers have no receive time of the kernel: waiting for our CPU"
                     " is in them")  # fmt: skip
    held = sum(probe.sent_s - probe.planned_s > 0.5 / per_second for probe in echoes.sent)
    if 100 * held > _NOTICEABLE_PERCENT * len(echoes.sent):
        texts.append(f"{held} of {len(echoes.sent)} probes left late: this machine had no CPU for the probe")
    if echoes.refused:
        texts.append(f"this host's kernel refused to send {echoes.refused} probes, which count as lost")
    return tuple(texts)


class IcmpLine:
    """Probes as ICMP echo requests."""

    def __init__(self, peer: Peer) -> None:
        self._icmp = Icmp(*peer.address())
        self.how = f"ICMP ({self._icmp.how})"

    def fileno(self) -> int:
        return self._icmp.socket.fileno()

    def send(self, sequence: int) -> None:
        self._icmp.send(sequence)

    def receive(self) -> Iterator[EchoAnswer]:
        return (
            EchoAnswer(answer.sequence, answer.kernel_ns) for answer in self._icmp.receive() if answer.kind == "reply"
        )

    def close(self) -> None:
        self._icmp.close()


class UdpLine:
    """Probes as datagrams to the echo of a responder: 16 random bytes by which we know our own, then the number."""

    how = f"UDP ({_BYTES} bytes)"

    def __init__(self, session: ProbeSession) -> None:
        self._socket = session.datagrams()
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.setblocking(False)
        self._ours = os.urandom(16)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, sequence: int) -> None:
        self._socket.send((self._ours + sequence.to_bytes(2, "big")).ljust(_BYTES, b"\0"))

    def receive(self) -> Iterable[EchoAnswer]:
        while True:
            try:
                data, control, _, _ = self._socket.recvmsg(2 * _BYTES, 256)
            except BlockingIOError:
                return
            except OSError as error:
                raise ProbeError(f"the responder is gone ({error.strerror})") from None
            if len(data) == _BYTES and data.startswith(self._ours):
                yield EchoAnswer(int.from_bytes(data[16:18], "big"), kernel_time(control))

    def close(self) -> None:
        self._socket.close()


PROBE = Rtt()
